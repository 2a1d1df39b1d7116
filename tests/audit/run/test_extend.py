"""Audits that grow: seeds by themselves, and by hand more seeds, targets, attacks and defences."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge.results import read_results
from fedxray.audit.judge.verdict import is_settled
from fedxray.audit.plan import make_plan, read_plan
from fedxray.audit.run import execute, extend
from fedxray.audit.run.audit import StagedProgress, look_in_words, run_audit, with_look
from fedxray.audit.run.journal import Journal
from fedxray.audit.run.store import Store, check_folder
from fedxray.errors import BadInput
from tests.audit.plans import tiny, write_toml
from tests.audit.stored import case_entries

HERE = Path(__file__).parents[1]
FEW = tiny(seeds=[0, 1, 2], attack=[{"name": "membership-loss", "targets": [0]}])


def run(folder: Path, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    execute._open_run.clear()
    return run_audit(make_plan(document, HERE), folder, **more).document


def test_seeds_come_by_themselves_until_every_verdict_is_settled(tmp_path: Path) -> None:
    auto = {**FEW, "seeds": "auto"}
    found = run(tmp_path / "out", auto)
    counts = [look["seeds"] for look in found["looks"]]
    assert counts == [3, 5, 10, 20][: len(counts)] and found["plan"]["seeds"] == "auto"
    assert [look["spent"] for look in found["looks"]] == [0.02, 0.01, 0.01, 0.01][: len(counts)]
    assert {case["seed"] for case in found["cases"]} == set(range(counts[-1]))
    (row,) = (row for row in found["summary"] if row["primary"])
    assert counts[-1] == 20 or is_settled([row]), row["reason"]
    before = case_entries(tmp_path / "out")
    assert run(tmp_path / "out", auto, resume=True) == found == read_results(tmp_path / "out")
    assert case_entries(tmp_path / "out") == before


@dataclass
class Stages:
    """The stages of an audit and what every look found, as they were reported."""

    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    weighed: int = 0

    def audit(self, name: str) -> None:
        self.names.append(name)

    def stage(self, name: str) -> None:
        self.names.append(name)

    def note(self, line: str) -> None:
        self.notes.append(line)

    def weigh(self, seconds: Mapping[str, float]) -> None:
        self.weighed += 1
        assert self.weighed == len(self.names), "progress starts again with a name"

    def __call__(self, done: int, total: int, label: str) -> None: ...


def test_every_stage_is_named_and_every_look_reported(tmp_path: Path) -> None:
    stages = Stages()
    assert isinstance(stages, StagedProgress)
    found = run(tmp_path / "out", {**FEW, "seeds": "auto"}, progress=stages)
    counts = [look["seeds"] for look in found["looks"]]
    seeds = [f"{count} of at most 20 seeds" for count in counts]
    assert [name for name in stages.names if not name.startswith("power")] == seeds
    assert {name.partition(" after ")[2] for name in stages.names if name.startswith("power")} <= set(seeds)
    assert [line.partition(":")[0] for line in stages.notes] == [f"tiny, {count} seeds" for count in counts]
    assert all("continuing with" in line for line in stages.notes[:-1]) and "ending" in stages.notes[-1]
    log = (tmp_path / "out" / "log").read_text()
    assert all(line in log for line in stages.notes)
    by_hand = Stages()
    run(tmp_path / "by-hand", FEW, progress=by_hand, power=False)
    assert (by_hand.names, by_hand.notes) == (["3 seeds"], [])


def test_a_look_in_words() -> None:
    open_row = {"primary": True, "oracle": False, "state": "suspected", "upper": None, "margin": 0.05}
    rows = [open_row, {**open_row, "state": "leaks"}, {**open_row, "primary": False}, {**open_row, "oracle": True}]
    assert look_in_words(rows, 3) == "3 seeds: more seeds could settle 1 of 2 rows, continuing with 5 (at most 20)"
    assert look_in_words(rows, 20) == "20 seeds: more seeds could settle 1 of 2 rows, ending: no more are planned"
    assert look_in_words(rows[1:], 5) == "5 seeds: more seeds would settle no further row, ending"


def test_an_interrupted_audit_looks_as_often_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = {**FEW, "seeds": "auto"}
    asked = iter([False, True, False, True])
    monkeypatch.setattr("fedxray.audit.run.audit.is_settled", lambda rows: next(asked))
    whole = run(tmp_path / "whole", auto)
    with monkeypatch.context() as during:
        during.setattr("fedxray.audit.run.audit.is_settled", lambda rows: True)
        assert [look["seeds"] for look in run(tmp_path / "out", auto)["looks"]] == [3]
    again = run(tmp_path / "out", auto, resume=True)
    assert [look["seeds"] for look in again["looks"]] == [3, 5]
    assert again["summary"] == whole["summary"] and again["looks"] == whole["looks"]


def test_the_time_of_a_budget_ends_the_looks_and_the_results_of_the_last_whole_one_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedxray.audit.run.audit.is_settled", lambda rows: False)
    clock = iter([0.0] * 400 + [1e9] * 10_000)
    ended: list[str] = []

    def now() -> float:
        return 1e9 if len(ended) > 8 else next(clock)

    def count(done: int, total: int, label: str) -> None:
        ended.append(label)

    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", now)
    found = run(tmp_path / "out", {**FEW, "seeds": "auto"}, budget="1h", progress=count)
    assert [look["seeds"] for look in found["looks"]] == [3] and {case["status"] for case in found["cases"]} == {"ok"}


def test_by_hand_every_look_is_stored_and_spends_its_part(tmp_path: Path) -> None:
    first = run(tmp_path / "out", FEW)
    there = {"attacks": ["membership-loss"], "defences": ["none"], "clients": [0]}
    assert first["looks"] == [{"seeds": 3, "spent": 0.04, **there}]
    before = case_entries(tmp_path / "out")
    more = run(tmp_path / "out", FEW, resume=True, seeds=5)
    assert more["looks"] == [first["looks"][0], {"seeds": 5, "spent": pytest.approx(0.005), **there}]
    assert [case["seed"] for case in more["cases"]] == [0, 1, 2, 3, 4]
    assert before.items() <= case_entries(tmp_path / "out").items()
    assert run(tmp_path / "out", FEW, resume=True) == more, "what was asked for stays"
    with pytest.raises(BadInput, match=r"--seeds.*at least 5"):
        run(tmp_path / "out", FEW, resume=True, seeds=4)
    fresh = run(tmp_path / "fresh", {**FEW, "seeds": [0, 1, 2, 3, 4]})
    assert [case["scores"] for case in fresh["cases"]] == [case["scores"] for case in more["cases"]]
    assert with_look(more["looks"], 5, more["cases"], auto=False) == more["looks"]


def test_fewer_seeds_than_the_plan_lists_may_be_raised_by_one(tmp_path: Path) -> None:
    run(tmp_path / "out", FEW, seeds=1, power=False)
    plan = make_plan(FEW, HERE)
    with pytest.raises(BadInput, match=r"--seeds.*at least 1"):
        extend.extended(tmp_path / "out", plan, total=0)
    assert extend.extended(tmp_path / "out", plan, total=2).seeds == [0, 1]


def test_targets_attacks_and_defences_are_added_and_finished_cases_stay(tmp_path: Path) -> None:
    run(tmp_path / "out", FEW)
    before = case_entries(tmp_path / "out")
    attacks = [{"name": "membership-loss", "targets": "all"}, {"name": "attribute-from-model", "controls": []}]
    wider = {**FEW, "attack": attacks, "defence": [{"name": "quantise", "bits": 4}]}
    found = run(tmp_path / "out", wider, resume=True)
    assert {(case["attack"], case["defence"]) for case in found["cases"]} == {
        (attack["name"], defence) for attack in attacks for defence in ("none", "quantise")
    }
    assert {case["client"] for case in found["cases"]} == {0, 1}
    assert [look["spent"] for look in found["looks"]] == [0.04, pytest.approx(0.005)], "it is another look"
    assert found["looks"][1]["clients"] == [0, 1] and len(found["looks"][1]["attacks"]) == 2
    kept = {name: time for name, time in before.items() if not name.startswith("planted")}
    assert kept and kept.items() <= case_entries(tmp_path / "out").items()
    again = run(tmp_path / "out", FEW, resume=True)
    assert len(again["cases"]) == len(found["cases"]), "a row that was judged cannot be left out"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": {**FEW["data"], "records": 50}}, "data.records"),
        ({"federation": {"rounds": 3}}, "federation.rounds"),
        ({"model": {"name": "mlp", "hidden": [5]}, "federation": {"rounds": 3}}, "model.*; federation.rounds"),
        ({"attack": [{"name": "membership-loss", "targets": [0], "rounds": "last"}]}, "attack membership-loss.rounds"),
        ({"attack": [{"name": "membership-loss", "targets": 1}]}, "targets of membership-loss: a number is drawn"),
        ({"seeds": "auto"}, "seeds"),
    ],
)
def test_what_would_change_finished_cases_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    run(tmp_path / "out", {**FEW, "seeds": [0]})
    before = (tmp_path / "out" / "audit.json").read_bytes()
    with pytest.raises(BadInput, match=f"differs in {named}"):
        run(tmp_path / "out", {**FEW, "seeds": [0], **change}, resume=True)
    assert (tmp_path / "out" / "audit.json").read_bytes() == before


def test_a_plan_without_a_name_is_extended_also_by_a_file_of_another_name(tmp_path: Path) -> None:
    """A plan without a name has that of its file, which the folder's plan.toml does not hold."""
    unnamed = {key: value for key, value in FEW.items() if key != "name"} | {"seeds": [0]}
    run_audit(read_plan(write_toml(tmp_path / "monthly.toml", unnamed)), tmp_path / "out", power=False)
    plan = read_plan(tmp_path / "monthly.toml")
    assert extend.extended(tmp_path / "out", plan, total=3).seeds == [0, 1, 2]
    wider = read_plan(write_toml(tmp_path / "wider.toml", unnamed | {"seeds": [3]}))
    assert extend.extended(tmp_path / "out", wider).seeds == [0, 1, 2, 3]
    other = read_plan(write_toml(tmp_path / "other.toml", unnamed | {"federation": {"rounds": 7}}))
    with pytest.raises(BadInput, match=r"differs in federation\.rounds"):
        extend.extended(tmp_path / "out", other)


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_gates_and_name_are_those_of_the_new_plan(tmp_path: Path, seeds: list[int]) -> None:
    """Also where the folder has more seeds than the plan."""
    gates = [[{"attack": "membership-loss", "metric": "auc", "limit": limit}] for limit in (0.9, 0.6)]
    run(tmp_path / "out", {**FEW, "seeds": seeds, "gate": gates[0]}, power=False)
    changed = make_plan({**FEW, "seeds": [0], "gate": gates[1], "name": "stricter"}, HERE)
    merged = extend.extended(tmp_path / "out", changed)
    assert merged.seeds == seeds and merged.gate[0].limit == 0.6 and merged.name == "stricter"
    again = extend.extended(tmp_path / "out", changed)
    assert again.digest() == merged.digest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished audit with a planted run and its case, and a digest of inputs that depends on the plan."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    run(folder, {**FEW, "seeds": [0]}, power=False)
    (folder / "private" / "runs" / "planted-x").mkdir()
    Store(folder).write_case("planted.x", {})
    (folder / "private" / "records.json").write_text('{"sha256": {"a": "1 attacks"}}')
    return folder


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("steps", range(7))
def test_an_extension_that_is_killed_is_resumed_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path, steps: int
) -> None:
    """Killed before each of its six steps: marker, planted case and run, records, plan, marker."""
    folder, left = tmp_path / "out", iter(range(steps))
    shutil.copytree(finished, folder)
    monkeypatch.setattr("fedxray.audit.run.audit.digests_of_inputs", lambda plan: {"a": f"{len(plan.attacks)} attacks"})
    more = {**FEW, "seeds": [0], "attack": [*FEW["attack"], {"name": "attribute-from-model", "controls": []}]}

    def killed_before(step: Any) -> Any:
        def stopping(*given: Any, **more: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return step(*given, **more)

        return stopping

    with monkeypatch.context() as during:
        during.setattr(extend, "write_whole", killed_before(extend.write_whole))
        during.setattr(Journal, "forget", killed_before(Journal.forget))
        during.setattr(Store, "remove_run", killed_before(Store.remove_run))
        if steps < 6:
            with pytest.raises(Killed):
                extend.extended(folder, make_plan(more, HERE))
        else:
            extend.extended(folder, make_plan(more, HERE))
    merged = extend.extended(folder, make_plan(more, HERE))
    check_folder(folder, merged.digest(), resume=True, records={"a": "2 attacks"})
    assert [part.title for part in merged.attacks] == ["membership-loss", "attribute-from-model"]
    assert not list(folder.rglob("planted*")) and not [key for key in case_entries(folder) if "planted" in key]
    assert set(json.loads((folder / "audit.json").read_bytes())) == {"format", "kind", "plan", "version"}
    assert extend.extended(folder, make_plan({**FEW, "seeds": [0]}, HERE)).digest() == merged.digest()


def test_more_seeds_without_resume_leave_a_folder_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "out", FEW)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    with pytest.raises(BadInput, match="Continue with --resume"):
        run(tmp_path / "out", FEW, seeds=3)
    with pytest.raises(BadInput):
        run(tmp_path / "out", FEW, seeds=4)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()} == before


def test_a_plan_that_extends_an_audit_is_refused_with_the_option_that_extends_it(tmp_path: Path) -> None:
    run(tmp_path / "out", {**FEW, "seeds": [0]}, power=False)
    (attack,) = FEW["attack"]
    for change in (
        {"seeds": [0, 1]},
        {"defence": [{"name": "none"}, {"name": "quantise", "bits": 4}]},
        {"attack": [attack, {"name": "attribute-from-model"}]},
        {"attack": [{**attack, "targets": "all"}]},
    ):
        with pytest.raises(BadInput, match=r"this plan extends\. Add --resume to extend it"):
            run(tmp_path / "out", {**FEW, "seeds": [0], **change})
    for change in ({"federation": {"rounds": 3}}, {"attack": [{"name": "attribute-from-model"}]}, {"seeds": [1]}):
        with pytest.raises(BadInput, match=r"its plan differs\)\. Choose another --out"):
            run(tmp_path / "out", {**FEW, "seeds": [0], **change})


def test_a_folder_of_another_format_is_refused_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "out", FEW)
    marker = tmp_path / "out" / "audit.json"
    marker.write_text(json.dumps({**json.loads(marker.read_bytes()), "format": 4}))

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}

    before, wider = files(), {**FEW, "attack": [*FEW["attack"], {"name": "attribute-from-model"}]}
    with pytest.raises(BadInput, match="format 4"):
        run(tmp_path / "out", wider, resume=True)
    assert files() == before
