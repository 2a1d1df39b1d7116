"""One run and one case, from the plan to the store, and every way in which they can end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedxray.attacks.base import compute
from fedxray.attacks.evidence import of_membership
from fedxray.attacks.membership import MembershipLoss
from fedxray.audit.judge.results import versions
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run import execute, execute as room
from fedxray.audit.run.comparisons import CaseContext
from fedxray.audit.run.evaluate import CaseOutcome, evaluate
from fedxray.audit.run.execute import (
    ended_cases,
    execute_case,
    execute_run,
    galleries,
    metrics_of_the_lost,
    oracles_of,
    results_document,
    write_failed_case,
)
from fedxray.audit.run.grid import Case, Run, expand
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import Store, open_store
from fedxray.errors import BadInput
from fedxray.federation.folder import Damaged
from fedxray.files import NoSpaceError
from tests.attacks.by_hand import linear, table, view_with
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    execute._open_run.clear()
    with open_store(tmp_path / "out", "digest") as opened:
        yield opened


def planned(**changes: Any) -> tuple[Plan, list[Run], list[Case]]:
    plan = make_plan(tiny(**changes), HERE)
    return plan, *expand(plan)


def test_a_run_is_simulated_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, runs, _ = planned()
    execute_run(plan, store, runs[0])
    files = sorted(path.name for path in store.run_folder(runs[0].id).iterdir())
    assert files == ["proof.json", "transcript", "utility.json"]
    monkeypatch.setattr(room, "simulate", broken)
    execute_run(plan, store, runs[0])
    assert store.lost_run(runs[0].id) is None


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("by nothing")


def mended(*_: Any, **__: Any) -> Any:
    raise BadInput("x", expected="y", got="z", remedy="Mend it.")


def full(*_: Any, **__: Any) -> Any:
    raise NoSpaceError("the disk is full")


@pytest.mark.parametrize(("how", "words"), [(broken, "ZeroDivisionError"), (mended, "BadInput")])
def test_a_run_that_breaks_leaves_its_reason(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: Callable[..., Any], words: str
) -> None:
    plan, runs, _ = planned()
    monkeypatch.setattr(room, "simulate", how)
    execute_run(plan, store, runs[0])
    lost = store.lost_run(runs[0].id) or {}
    assert f"could not be run: {words} in test_execute.py, line " in lost["reason"] and not store.has_run(runs[0].id)
    assert how.__name__ in lost["traceback"]


def test_a_case_that_succeeds(store: Store) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    for case in cases:
        execute_case(plan, store, case)
    found = store.read_case(cases[0].id)
    assert found["status"] == "ok" and found["reason"] is None and found["oracle"] is False
    assert set(found["scores"]) == {"accuracy", "balanced_accuracy"} == set(found["floors"]["majority"])
    assert set(found["controls"]) == {"held-out", "other-client", "global-model"}
    assert (found["seed"], found["defence"], found["client"], found["aware"]) == (0, "none", 0, None)
    ended = ended_cases(plan, store)
    assert not execute._open_run  # the judge needs no message and no record
    guessed = galleries(ended)
    assert [one["case"] for one in guessed] == [case.id for case in cases]
    assert all(value[0] == "smoker" for value in guessed[0]["records"][0]["values"])
    document = results_document(plan, store, ended=ended)
    assert document == results_document(plan, store)
    assert [case["id"] for case in document["cases"]] == [case.id for case in cases]
    assert not any("traceback" in case or "pictures" in case for case in document["cases"])
    assert {row["metric"] for row in document["utility"]} >= {"loss"}


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [(broken, "failed", "ZeroDivisionError"), (mended, "failed", "BadInput in test_execute.py")],
)
def test_a_case_that_breaks_is_an_outcome(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: Callable[..., Any], status: str, words: str
) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    monkeypatch.setattr(room, "evaluate", how)
    execute_case(plan, store, cases[0])
    found = store.read_case(cases[0].id)
    assert found["status"] == status and words in found["reason"] and how.__name__ in found["traceback"]
    assert found["scores"] == found["floors"] == found["controls"] == {}


@pytest.mark.parametrize(
    ("score", "status", "kept"),
    [(float("nan"), "ok", {"accuracy": None}), (float("inf"), "ok", {"accuracy": None}), (object(), "failed", {})],
)
def test_a_score_that_cannot_be_written_costs_its_own_case_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch, score: Any, status: str, kept: dict[str, Any]
) -> None:
    plan, _, cases = planned()
    context = SimpleNamespace(truth=None, attack=MembershipLoss(), own=False)
    monkeypatch.setattr(room, "case_context", lambda *_: (None, context))
    monkeypatch.setattr(room, "evaluate", lambda _: None)
    monkeypatch.setattr(
        room, "_described", lambda *_: room._without_outcome("ok", "") | {"scores": {"accuracy": score}}
    )
    execute_case(plan, store, cases[0])
    found = store.read_case(cases[0].id)
    assert (found["status"], found["scores"]) == (status, kept)


def test_a_case_keeps_its_time_by_the_clock_and_of_the_processor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _, cases = planned()
    clock, processor = iter([10.0, 12.5004]), iter([3.0, 3.25])
    monkeypatch.setattr(room, "time", SimpleNamespace(perf_counter=clock.__next__, process_time=processor.__next__))
    monkeypatch.setattr(room, "run_of", broken)
    execute_case(plan, store, cases[0])
    found = store.read_case(cases[0].id)
    assert (found["seconds"], found["cpu_seconds"]) == (2.5, 0.25)


def test_a_case_that_is_refused(store: Store) -> None:
    plan, runs, cases = planned(attack=[{"name": "membership-loss", "grants": []}])
    execute_run(plan, store, runs[0])
    execute_case(plan, store, cases[0])
    found = store.read_case(cases[0].id)
    assert found["status"] == "refused" and "needs the grant target-records" in found["reason"]
    assert metrics_of_the_lost({"membership-loss": "membership"}, [found]) == {"membership-loss": ["auc"]}


def test_a_case_is_not_run_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    execute_case(plan, store, cases[0])
    monkeypatch.setattr(room, "evaluate", broken)
    execute_case(plan, store, cases[0])
    assert store.read_case(cases[0].id)["status"] == "ok"


@pytest.mark.parametrize("what", ["records", "network"])
def test_a_case_that_changed_the_truth_has_failed_and_the_next_starts_afresh(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    execute_case(plan, store, cases[1])
    expected = store.read_case(cases[1].id)
    store.cases.forget(cases[1].id)

    def careless(context: CaseContext) -> CaseOutcome:
        outcome = evaluate(context)
        if context.client == 0:
            spoilt = context.truth.public.x if what == "records" else next(context.truth.model.parameters())
            spoilt.data.zero_()
        return outcome

    monkeypatch.setattr(room, "evaluate", careless)
    for case in cases[:2]:
        execute_case(plan, store, case)
    changed, after = store.read_case(cases[0].id), store.read_case(cases[1].id)
    assert changed["status"] == "failed" and "changed in place" in changed["reason"] and changed["scores"] == {}
    assert [after[part] for part in ("scores", "floors", "controls")] == [
        expected[part] for part in ("scores", "floors", "controls")
    ]


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(index: Path) -> None:
        index.write_text(json.dumps(json.loads(index.read_bytes()) | changes))

    return change


def swap_replies(index: Path) -> None:
    found = json.loads(index.read_bytes())
    first, second = [one for one in found["messages"] if one["what"] == "reply"][:2]
    first["parts"], second["parts"] = second["parts"], first["parts"]
    index.write_text(json.dumps(found))


def cut_shard(index: Path) -> None:
    shard = next(index.parent.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])


def alter_shard(index: Path) -> None:
    shard = next(index.parent.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")


def no_proof(index: Path) -> None:
    (index.parent.parent / execute.PROOF).unlink()


@pytest.mark.parametrize(
    "damage",
    [
        edit(loss="cross-entropy"), edit(clients=5), edit(secure_aggregation=True), edit(messages=[]),
        swap_replies, cut_shard, alter_shard, no_proof, Path.unlink, lambda index: shutil.rmtree(index.parent),
    ],
)  # fmt: skip
def test_a_run_that_was_altered_is_removed_and_its_cases_fail(store: Store, damage: Callable[[Path], Any]) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    damage(store.run_folder(runs[0].id) / "transcript" / "transcript.json")
    for case in cases:
        execute_case(plan, store, case)
        found = store.read_case(case.id)
        assert found["status"] == "failed" and "--resume simulates it again" in found["reason"]
    assert not store.has_run(runs[0].id) and list((store.private / "runs").iterdir()) == []
    assert results_document(plan, store)["utility"] == []
    execute_run(plan, store, runs[0])
    store.cases.forget(cases[0].id)
    execute_case(plan, store, cases[0])
    assert store.read_case(cases[0].id)["status"] == "ok"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": "cross-entropy"}, "loss = mse as in the plan"),
        ({"clients": 5}, "clients = 2 as in the plan"),
        ({"secure_aggregation": True}, "secure_aggregation = False"),
        ({"recorded": True}, "recorded = False"),
        ({"messages": []}, r"rounds = \[0, 1\] as in the plan, got \[\]"),
    ],
)
def test_a_run_with_a_proof_must_be_of_this_federation(store: Store, changes: dict[str, Any], words: str) -> None:
    plan, runs, _ = planned()
    execute_run(plan, store, runs[0])
    folder = store.run_folder(runs[0].id)
    edit(**changes)(folder / "transcript" / "transcript.json")
    execute.write_proof(folder)
    with pytest.raises(Damaged, match=words):
        execute.read_run(folder, prepare(plan, "none", 0).federation)


@pytest.mark.parametrize("content", ['{"loss": "x"}', "[]", "3", "{"])
def test_a_utility_that_was_altered_is_refused(store: Store, content: str) -> None:
    plan, runs, cases = planned()
    execute_run(plan, store, runs[0])
    for case in cases:
        execute_case(plan, store, case)
    (store.run_folder(runs[0].id) / "utility.json").write_text(content)
    with pytest.raises(BadInput, match=r"utility\.json.*Remove the folder of this run and continue"):
        results_document(plan, store)
    shutil.rmtree(store.run_folder(runs[0].id))
    execute_run(plan, store, runs[0])
    assert results_document(plan, store)["utility"]


@pytest.mark.parametrize("content", [b"{}", b"[]", b"3", b'{"status": "ok"}'])
def test_a_case_that_is_none_counts_as_not_ended(store: Store, content: bytes) -> None:
    _, _, cases = planned()
    store.cases.write(cases[0].id, [content], "case")
    assert not store.has_case(cases[0].id)
    with pytest.raises(BadInput, match=r"its stored outcome.*Continue with --resume"):
        store.read_case(cases[0].id)


def test_a_case_that_was_altered_counts_as_not_ended(store: Store) -> None:
    _, _, cases = planned()
    write_failed_case(store, cases[0], "killed")
    (file,) = (store.private / "cases").iterdir()
    file.write_bytes(file.read_bytes().replace(b"killed", b"listed"))
    assert not store.has_case(cases[0].id)
    with pytest.raises(BadInput, match=r"its stored outcome, got none.*Continue with --resume"):
        store.read_case(cases[0].id)


def test_a_full_disk_stops_the_audit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, runs, cases = planned()
    with monkeypatch.context() as patch:
        patch.setattr(room, "simulate", full)
        with pytest.raises(NoSpaceError):
            execute_run(plan, store, runs[0])
    execute_run(plan, store, runs[0])
    monkeypatch.setattr(room, "evaluate", full)
    with pytest.raises(NoSpaceError):
        execute_case(plan, store, cases[0])
    assert not store.has_case(cases[0].id)


def test_a_case_whose_worker_died(store: Store) -> None:
    _, _, cases = planned()
    write_failed_case(store, cases[1], "killed")
    found = store.read_case(cases[1].id)
    assert (found["status"], found["reason"], found["seconds"]) == ("failed", "killed", 0.0)


def test_ceilings_are_oracles_of_the_same_kind() -> None:
    kinds = {"a": "attributes", "best": "attributes", "m": "membership"}
    cases = [{"attack": name, "oracle": name == "best"} for name in kinds]
    assert oracles_of(kinds, cases) == {"a": "best"}
    assert oracles_of(kinds, [{**case, "oracle": False} for case in cases]) == {}


def test_versions_are_reported() -> None:
    found = versions()
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] == torch.__version__
    assert {"python", "platform", "fedxray", "numpy"} <= found.keys()


def test_nothing_remembered_without_a_store() -> None:
    view, asked = view_with(linear([[1.0]]), table(1)), []
    for _ in range(2):
        compute(MembershipLoss(), view, lambda: asked.append(1) or of_membership(torch.zeros(1)))  # type: ignore[func-returns-value]
    assert len(asked) == 2
