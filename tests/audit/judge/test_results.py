"""The results document: its schema, what never gets in, and every way a file can be wrong."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge import results
from fedxray.audit.judge.statistics import split_facts
from fedxray.errors import BadInput
from fedxray.files import NoSpaceError
from tests.report.states import make_results, make_row
from tests.report.synthetic import VERSIONS, make_cases, make_document, make_plan


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return make_document()


def accepts(content: Any) -> bool:
    """What the reference implementation of JSON schema says."""
    return bool(jsonschema.Draft202012Validator(results.schema()).is_valid(content))


def test_the_document_fits_its_schema_and_the_schema_is_sound(made: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(results.schema())
    jsonschema.validate(made, results.schema(), cls=jsonschema.Draft202012Validator)
    assert list(made) == ["format", "plan", "versions", "cases", "summary", "utility", "seed_of_draws", "attacks"]
    assert made["format"] == 2
    assert set(results.schema()["$defs"]["row"]["properties"]) == {*made["summary"][0], "roc"}  # which few rows have


def test_written_and_read_is_the_same_and_leaves_nothing_else(tmp_path: Path, made: dict[str, Any]) -> None:
    written = results.write(made, tmp_path)
    assert written == tmp_path / "results.json"
    assert results.read_results(tmp_path) == results.read_results(written) == made
    results.write(made, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["results.json"]


def test_a_missing_number_is_null_and_never_nan(tmp_path: Path) -> None:
    cases = make_cases()
    cases[0]["scores"] = {"psnr": math.nan, "ssim": math.inf, "mse": None}
    cases[1]["seconds"] = np.float32(2.5)
    cases[2]["seed"] = np.int64(7)
    path = results.write(make_document(cases), tmp_path)
    text = path.read_text()
    assert "NaN" not in text and "Infinity" not in text
    back = results.read_results(path)["cases"]
    assert back[0]["scores"] == {"psnr": None, "ssim": None, "mse": None}
    assert (back[1]["seconds"], back[2]["seed"]) == (2.5, 7)


def test_what_is_plain_already_is_shared_and_the_rest_is_made_anew() -> None:
    case = {"scores": {"auc": 0.5}, "exposed": [{"record": 1, "value": None}]}
    assert results.plain(case, "case") is case
    assert results.plain([case, (case,)], "cases")[1][0] is case
    assert results.plain({1: None, "x": case}, "case") == {"1": None, "x": case}
    assert results.plain([math.nan, 1.0], "scores") == [None, 1.0]


def test_values_that_json_has_no_word_for_are_refused() -> None:
    with pytest.raises(BadInput, match=r"plan\.data\.path.*PosixPath|plan\.data\.path.*WindowsPath"):
        results.document({"data": {"path": Path("x")}}, VERSIONS, [], [])


def test_an_audit_without_cases_is_still_a_document() -> None:
    assert results.document(make_plan(), VERSIONS, [], [])["summary"] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged or cut-off"),
        (b'{"format": 1, "plan": {', "damaged or cut-off"),
        (b"\x89PNG\r\n\x1a\n\xff", "bytes that are not text"),
        (b"[1, 2, 3]", "another kind of file"),
        (b'{"name": "somebody else"}', "another kind of file"),
        (b'{"format": 3}', "upgrade fedxray"),
        (b'{"format": "1"}', "expected 2, got '1'"),
        (b'{"format": true}', "expected 2, got True"),
        (b'{"format": 2}', r"\.plan: expected a value, got nothing"),
        (b'{"format": 1, "plan": {}, "cases": [3], "summary": 7}', r"cases\[0\]: expected object"),
        (b'{"format": 1}', r"\.plan: expected a value, got nothing"),
        (b'{"format": 1, "plan": {"x": NaN}}', "NaN is no JSON number"),
        (b"[" * 200_000, "nested without end"),
    ],
)
def test_damaged_foreign_and_newer_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        results.read_results(tmp_path)


def test_results_of_format_1_are_judged_again_by_primaries_and_runs(tmp_path: Path, made: dict[str, Any]) -> None:
    fields = [name for name in made["summary"][0] if name in OLD_FIELDS.split()]
    rows = [{name: row[name] for name in fields} | {"verdict": "inconclusive"} for row in made["summary"]]
    cases = [{name: value for name, value in case.items() if name not in ("split", "swaps")} for case in made["cases"]]
    old = {**made, "format": 1, "summary": rows, "cases": cases}
    del old["seed_of_draws"]
    results.write(old, tmp_path)
    read = results.read_results(tmp_path)
    assert (read["format"], read["notice"]) == (2, results.OLD) and "re-run with --resume" in results.OLD
    assert {row["test"] for row in read["summary"] if row["primary"] and row["p"]} == {"runs"}
    assert [row["ceiling"] for row in read["summary"]] == [row["ceiling"] for row in made["summary"]]
    assert len(read["summary"]) == len(rows) and any(row["state"] == "leaks" for row in read["summary"])


OLD_FIELDS = """attack role defence aware metric oracle mean mean_low mean_high floor over difference low high ceiling
    controls kind n unit worst margin verdict reason"""


def test_a_reader_can_check_every_p_in_the_public_file(tmp_path: Path) -> None:
    generator, cases = np.random.default_rng(1), []
    for case in make_cases():
        scores = [*generator.normal(0.3, 1, 30), *generator.normal(0, 1, 15)]
        member = [True] * 30 + [False] * 15
        if case["attack"] == "membership-loss":
            case |= {"split": split_facts(scores, member), "draws": {"scores": scores, "member": member}}
        cases.append(case)
    path = results.write(make_document(cases), tmp_path)
    assert "draws" not in path.read_text().replace("seed_of_draws", "")
    document = results.read_results(path)
    again = results.judged_again(document)
    assert {row["test"] for row in again} == {"split", "swap", "runs", None}
    for row, other in zip(document["summary"], again, strict=True):
        assert other["p_split"] == pytest.approx(row["p_split"], abs=0.01)
        near = {"p", "p_split", "p_adjusted", "reason", "more_seeds"} if row["p_split"] is not None else set()
        assert {k: v for k, v in other.items() if k not in near} == {k: v for k, v in row.items() if k not in near}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such file.*Run the audit again"):
        results.read_results(tmp_path)


def test_a_folder_of_audits_names_them(tmp_path: Path) -> None:
    for name in ("choose", "pilot"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").touch()
    with pytest.raises(BadInput, match=rf"Did you mean {tmp_path}/choose, {tmp_path}/pilot\?"):
        results.read_results(tmp_path)


def test_every_truncation_of_a_real_file_is_refused(tmp_path: Path, made: dict[str, Any]) -> None:
    whole = results.write(made, tmp_path).read_bytes()
    cut = tmp_path / "cut.json"
    for share in np.linspace(0, 0.999, 25):
        cut.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(BadInput):
            results.read_results(cut)


def places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [place, *(deeper for key, value in inner for deeper in places(value, (*place, key)))]


SMALL = make_document(make_cases()[:2])
PLACES = places(SMALL)
STRANGE = st.sampled_from([None, True, -1, 0, 1, 1.0, 1.5, "x", "ok", "leaks", [], {}, [None], {"x": None}, "drop"])


@given(st.sampled_from(PLACES[1:]), STRANGE)
def test_the_check_at_run_time_agrees_with_the_reference(place: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(SMALL)
    holder: Any = changed
    for key in place[:-1]:
        holder = holder[key]
    if value == "drop":
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    assert (results.misfit(changed, results.schema()) is None) == accepts(changed)


def test_a_misfit_is_named_with_its_place(made: dict[str, Any]) -> None:
    changed = copy.deepcopy(made)
    changed["summary"][3]["verdict"] = "safe"
    with pytest.raises(BadInput, match=r"results\.json\.summary\[3\]\.verdict.*'leaks'.*got 'safe'"):
        results.validate(changed)


def test_a_primary_row_without_a_state_is_refused(tmp_path: Path, made: dict[str, Any]) -> None:
    rows = [{**row, "state": None} for row in made["summary"]]
    (tmp_path / results.RESULTS).write_text(json.dumps({**made, "summary": rows}))
    with pytest.raises(BadInput, match="a state, since this row is primary"):
        results.read_results(tmp_path)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *[(kind, key) for kind in ("small", "leaks", "suspected") for key in ("metric", "margin", "difference")],
        *[("trace", key) for key in ("metric", "margin", "difference", "p_adjusted", "family")],
        ("small by split", "p_adjusted"),
        ("coarse", "margin"),
    ],
)
def test_a_row_without_what_its_state_or_test_comes_with_is_refused(tmp_path: Path, kind: str, key: str) -> None:
    rows = [row | make_row(kind) for row in make_document()["summary"][:2]]
    document = make_results(*rows)
    results.write(document, tmp_path)
    assert results.read_results(tmp_path)["summary"] == document["summary"]
    document["summary"][1][key] = None
    results.write(document, tmp_path)
    with pytest.raises(BadInput, match=rf"summary\[1\]\.{key}: expected a value, since the (state|test) is "):
        results.read_results(tmp_path)


def test_an_open_row_may_lack_a_metric(tmp_path: Path, made: dict[str, Any]) -> None:
    row = made["summary"][0] | {"state": "open", "verdict": "inconclusive", "primary": True, "test": None}
    empty = dict.fromkeys(("metric", "margin", "difference", "p_adjusted", "family"))
    results.write({**made, "summary": [row | empty]}, tmp_path)
    assert results.read_results(tmp_path)["summary"][0]["metric"] is None


SPLIT: dict[str, Any] = {"u": 4.0, "n1": 3, "n0": 2, "ties": []}
LISTS: dict[str, Any] = {"u": [4.0], "n1": [3], "n0": [2], "ties": [[2]]}
WRONG_INPUT: list[tuple[str, Any]] = [
    ("split", SPLIT | {"n1": 0}),
    ("split", SPLIT | {"n0": -1}),
    ("split", SPLIT | {"n1": 10**15}),
    ("split", SPLIT | {"n1": [3]}),
    ("split", SPLIT | {"ties": ["a"]}),
    ("split", SPLIT | {"ties": [[2]]}),
    ("split", SPLIT | {"ties": [6]}),
    ("split", SPLIT | {"variance": -1.0}),
    ("split", LISTS | {"n0": [2, 2]}),
    ("split", LISTS | {"n0": 2}),
    ("split", LISTS | {"ties": [2]}),
    ("split", LISTS | {"n1": [[3]]}),
    ("split", {key: [] for key in SPLIT}),
    ("record_variance", {"accuracy": -0.1}),
    ("swaps", {"x": {"accuracy": 0.5}}),
    ("swaps", {"3": {"accuracy": 0.5}}),
    ("swaps", {"2": {"accuracy": 0.5}}),
]


@pytest.mark.parametrize(("key", "value"), WRONG_INPUT)
def test_input_of_exact_tests_that_no_audit_writes_is_refused(
    tmp_path: Path, made: dict[str, Any], key: str, value: Any
) -> None:
    case = made["cases"][0] | {"client": 0, "split": LISTS, "swaps": {"1": {"accuracy": 0.5}}}
    case["ledger"] = case["ledger"] | {"clients": 3, "seats": [2]}
    results.write({**made, "cases": [case]}, tmp_path)
    assert results.read_results(tmp_path)["cases"] == [case]
    results.write({**made, "cases": [case | {key: value}]}, tmp_path)
    with pytest.raises(BadInput, match=rf"cases\[0\]\.{key}"):
        results.read_results(tmp_path)


@pytest.mark.parametrize("clients", [10**6, 10**9])
def test_swaps_in_a_run_of_more_clients_than_a_plan_may_have_are_refused(
    tmp_path: Path, made: dict[str, Any], clients: int
) -> None:
    case = made["cases"][0] | {"client": 0, "swaps": {"1": {"accuracy": 0.5}}}
    case["ledger"] = case["ledger"] | {"clients": clients}
    results.write({**made, "cases": [case]}, tmp_path)
    with pytest.raises(BadInput, match=r"swaps: expected clients of the run, which has at most 100000"):
        results.read_results(tmp_path)


def test_looks_spend_at_most_the_level(tmp_path: Path, made: dict[str, Any]) -> None:
    for spent, fits in (((0.02, 0.01, 0.01, 0.01), True), ((0.9,), False), ((0.04, 0.04), False)):
        results.write({**made, "looks": [{"seeds": 1, "spent": part} for part in spent]}, tmp_path)
        if fits:
            assert results.read_results(tmp_path)
        else:
            with pytest.raises(BadInput, match=r"looks.*0\.05"):
                results.read_results(tmp_path)


def test_format_1_is_judged_without_the_input_of_exact_tests(tmp_path: Path, made: dict[str, Any]) -> None:
    cases = [{key: value for key, value in case.items() if key not in results.EXACT_INPUT} for case in SMALL["cases"]]
    results.write({**made, "format": 1, "cases": cases}, tmp_path)
    without = results.read_results(tmp_path)
    for key, value in [*WRONG_INPUT, ("draws", {"scores": "x"})]:
        hostile = [case | {key: value} for case in cases]
        hostile[0]["ledger"] = hostile[0]["ledger"] | {"clients": 10**9}
        looks = [{"seeds": 1, "spent": 0.9}]
        results.write({**made, "format": 1, "cases": hostile, "looks": looks}, tmp_path)
        read = results.read_results(tmp_path)
        assert read["summary"] == without["summary"] and "looks" not in read


def test_a_missing_value_of_the_worst_record_is_judged_again(tmp_path: Path) -> None:
    cases = make_cases()
    for case in cases:
        case["worst_record"] = {name: {"record": 0, "value": None} for name in case["scores"]}
    document = results.read_results(results.write(make_document(cases), tmp_path))
    assert {row["worst"]["record"] for row in document["summary"] if row["worst"]} == {None}


@pytest.mark.parametrize("inside", [{}, {"mean": {}, "floors": {}, "controls": {}}, {"mean": 3}])
def test_intervals_within_a_recording_have_their_fields(tmp_path: Path, made: dict[str, Any], inside: Any) -> None:
    case = made["cases"][0] | {"within": {name: inside for name in made["cases"][0]["scores"]}}
    for number in (1, 2):
        results.write({**made, "format": number, "cases": [case]}, tmp_path)
        with pytest.raises(BadInput, match=r"cases\[0\]\.within\."):
            results.read_results(tmp_path)


def test_a_ledger_that_was_altered_is_refused(made: dict[str, Any]) -> None:
    for change in ({"grants": 3}, {"grants": [3]}, {"rounds_seen": "x"}, {"sums": []}, {"sees": []}):
        changed = copy.deepcopy(made)
        changed["cases"][0]["ledger"] = change
        with pytest.raises(BadInput, match=rf"cases\[0\]\.ledger\.{next(iter(change))}"):
            results.validate(changed)


def test_a_write_that_fails_keeps_the_old_file(
    tmp_path: Path, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = results.write(made, tmp_path)

    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(NoSpaceError, match="no space left for results"):
        results.write({**made, "plan": {}}, tmp_path)
    assert json.loads(path.read_text()) == made
    assert [one.name for one in tmp_path.iterdir()] == ["results.json"]


def test_reading_needs_no_torch() -> None:
    code = "import sys; import fedxray.audit.judge.results as r; r.schema(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
