"""The power check: who waits for it, what is run for it, and what it opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge.results import document, read_results
from fedxray.audit.judge.verdict import NO_POWER_CHECK
from fedxray.audit.plan import make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.execute import execute_case, execute_run
from fedxray.audit.run.power import Check, planted_seeds, planted_work, power_rows, to_compare, waiting
from fedxray.audit.run.store import Store, open_store
from tests.audit.plans import tiny
from tests.audit.recordings import record_simulation
from tests.audit.stored import case_entries

HERE = Path(__file__).parents[1]


PLACE = {"attack": "membership-loss", "defence": "quantise", "aware": False}


def planted_case(value: float | None, client: int, **changes: Any) -> dict[str, Any]:
    """How a planted case ended, with its only floor at one half."""
    return {
        "id": f"c{client}",
        "attack": "a",
        "role": "server",
        "defence": "none",
        "aware": None,
        "seed": 0,
        "client": client,
        "plant": "attributes",
        "oracle": False,
        "ledger": {},
        "status": "ok" if value is not None else "failed",
        "reason": None if value is not None else "out of memory",
        "scores": {} if value is None else {"accuracy": value},
        "floors": {"majority": {"accuracy": 0.5}},
        "controls": {},
        **changes,
    }


A = [Check(attack="a")]


def plan_of(**changes: Any) -> Any:
    return make_plan(tiny(**changes), HERE)


def test_only_verdicts_that_a_check_could_settle_wait_for_it() -> None:
    plan = plan_of(defence=[{"name": "none", "label": "plain"}, {"name": "quantise", "bits": 4}])
    plain = {"defence": "plain", "aware": None, "oracle": False}
    rows = [
        {**plain, "attack": "a", "awaits_power": True},
        {**plain, "attack": "b", "awaits_power": False},
        {**plain, "attack": "a", "awaits_power": True},
        {**plain, "attack": "o", "oracle": True, "awaits_power": True},
        {**plain, "attack": "a", "defence": "quantise", "aware": True, "awaits_power": True},
    ]
    assert waiting(plan, rows) == [Check(attack="a"), Check(attack="a", defence="quantise", aware=True)]


def test_a_leak_that_a_defence_hides_is_looked_for_without_it_where_all_cases_ended() -> None:
    row = {"defence": "noise", "passed": False, "lost": 0}
    rows = [
        {**row, "attack": "a"},
        {**row, "attack": "a"},
        {**row, "attack": "b", "passed": True},
        {**row, "attack": "c", "lost": 2},
        {**row, "attack": "d"},
        {**row, "attack": "d", "defence": "none"},
    ]
    assert to_compare(rows) == [Check(attack="a")]


def test_checks_of_a_defence_share_its_runs_and_who_cannot_adapt_is_run_once() -> None:
    attacks = [{"name": "membership-loss"}, {"name": "membership-entropy", "label": "other"}]
    plan = plan_of(attack=attacks[:1], defence=[{"name": "none"}, {"name": "quantise", "bits": 4}])
    checks = [Check(attack="membership-loss", defence="quantise", aware=aware) for aware in (False, True)]
    runs, cases = planted_work(plan, [Check(attack="membership-loss"), *checks])
    assert [(run.defence, run.defended) for run in runs] == [("none", False), ("quantise", True)]
    assert (
        len(cases) == 12
        and len({case.id for case in cases}) == 12
        and {case.run for case in cases} == {run.id for run in runs}
    )
    rows = power_rows(plan, checks, [{**planted_case(0.9, one), **PLACE} for one in range(6)])
    assert [(row["defence"], row["aware"]) for row in rows] == [("quantise", False), ("quantise", True)]


def test_attacks_of_one_kind_share_a_run_and_every_client_is_a_unit() -> None:
    plan = plan_of(attack=[{"name": "attribute-from-model"}, {"name": "attribute-from-gradients"}])
    runs, cases = planted_work(plan, [Check(attack=part.title) for part in plan.attacks])
    assert len(runs) == 1 and runs[0].plant == "attributes" and len(cases) == 12
    assert {case.run for case in cases} == {runs[0].id} and len({case.id for case in cases}) == 12
    assert planted_work(plan, []) == ([], [])


def test_too_few_clients_make_several_runs_and_seats_are_spared() -> None:
    summed = plan_of(attack=[{"name": "membership-loss", "role": "secure-aggregation"}], seeds=[4, 9])
    runs, cases = planted_work(summed, [Check(attack="membership-loss")])
    assert [run.seed for run in runs] == [4, 9, 10, 11] and len(cases) == 8
    seated = plan_of(attack=[{"name": "membership-loss", "role": "curious-client", "seat": 1}])
    assert {case.client for case in planted_work(seated, [Check(attack="membership-loss")])[1]} == {0, 2, 3, 4, 5, 6}
    assert planted_seeds([3], 3) == [3, 4, 5]


def test_a_planted_leak_must_be_found_by_the_margin() -> None:
    seen = power_rows(plan_of(), A, [planted_case(0.9 + client / 100, client) for client in range(6)])
    assert seen[0]["passed"] and seen[0]["planted"] == "attributes" and "finds a planted leak" in seen[0]["reason"]
    assert seen[0]["difference"] == pytest.approx(0.925 - 0.5)
    blind = power_rows(plan_of(), A, [planted_case(0.5 + client / 100, client) for client in range(6)])
    assert not blind[0]["passed"] and "planted leak was not seen: 0.025 over majority" in blind[0]["reason"]


def test_a_lost_planted_case_is_no_power() -> None:
    cases = [planted_case(0.9 + client / 100 if client else None, client) for client in range(6)]
    row = power_rows(plan_of(), A, cases)[0]
    assert not row["passed"] and row["reason"] == "a planted case failed: out of memory"
    nothing = power_rows(plan_of(), A, [planted_case(None, client) for client in range(6)])
    assert nothing and not any(one["passed"] for one in nothing)


def test_an_attack_without_a_plant_has_no_power_in_any_metric() -> None:
    rows = power_rows(plan_of(), [Check(attack="attribute-from-model")], [])
    assert [row["passed"] for row in rows] == [False] and rows[0]["metric"] is None


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """An audit in which nobody can tell members: many records, a small network."""
    execute._open_run.clear()
    folder = tmp_path_factory.mktemp("power") / "out"
    return run_audit(make_plan(SAFE, HERE), folder), folder


SAFE = tiny(
    seeds=[0, 1, 2],
    data={"records": 1000, "clients": 8, "holdout": 0.4},
    federation={"rounds": 2, "epochs": 1, "learning_rate": 0.02, "record": "last"},
    attack=[{"name": "membership-loss", "controls": []}],
)
FLIPS = {"factory": "tests.audit.users_parts:flips", "label": "flips"}


def test_a_defence_that_only_hides_blinds_the_attack_and_is_no_safety(tmp_path: Path) -> None:
    """Every update with its sign changed was "no leak found" before the planted leak had the defence too."""
    execute._open_run.clear()
    found = run_audit(make_plan({**SAFE, "defence": [FLIPS]}, HERE), tmp_path / "out").document
    assert [(row["defence"], row["aware"], row["passed"]) for row in found["power"]] == [
        ("flips", False, False),
        ("flips", True, False),
        ("none", None, True),
    ]
    rows = [row for row in found["summary"] if row["primary"]]
    assert {row["state"] for row in rows} == {"blinded"}, [row["reason"] for row in rows]
    assert {case["ledger"]["adapts"] for case in found["cases"]} == {None, False}


def test_an_audit_checks_its_power_by_itself(audited: tuple[Any, Path]) -> None:
    ended, folder = audited
    found = ended.document
    assert [row["passed"] for row in found["power"] if row["metric"] == "auc"] == [True]
    rows = [row for row in found["summary"] if row["metric"] == "auc"]
    assert {row["verdict"] for row in rows} == {"no leak found"}, [row["reason"] for row in rows]
    assert not any("planted" in case["id"] for case in found["cases"])
    assert read_results(folder) == found
    assert "power checks, 1 runs, 6 cases" in (folder / "log").read_text()


def test_planted_cases_are_cases_of_the_store_and_resumed(audited: tuple[Any, Path]) -> None:
    from fedxray.audit.plan import Plan

    ended, folder = audited
    before = {key: entry for key, entry in case_entries(folder).items() if key.startswith("planted.")}
    assert len(before) == 6
    first = next(iter(before))
    Store(folder).cases.forget(first)
    again = run_audit(Plan.from_document(ended.document["plan"], HERE), folder, resume=True)
    after = case_entries(folder)
    assert [key for key, entry in before.items() if after[key] != entry] == [first]
    assert again.document["power"] == ended.document["power"]
    assert again.document["summary"] == ended.document["summary"]


def test_without_a_passed_check_nothing_is_safe() -> None:
    values = [0.49, 0.5, 0.51]
    plain = [
        planted_case(values[seed], client, seed=seed, id=f"{seed}.{client}") for seed in range(3) for client in range(8)
    ]
    cases = [{**one, "rounds_spent": 0, "seconds": 0.0} for one in plain]
    blind = power_rows(plan_of(), A, [planted_case(0.5 + client / 100, client) for client in range(6)])
    for power, words in ((blind, "the power check failed"), ((), NO_POWER_CHECK)):
        row = document({}, {}, cases, [], power=power)["summary"][0]
        assert row["verdict"] == "inconclusive" and words in row["reason"]


def test_a_recording_is_checked_by_a_simulation_of_its_recipe(tmp_path: Path) -> None:
    base = tiny(attack=[{"name": "membership-loss"}], federation={"rounds": 2, "batch_size": 8})
    record_simulation(make_plan(base, tmp_path), tmp_path / "node", [1])
    known = {"federation": {"epochs": 1, "batch_size": 8, "learning_rate": 0.05}}
    plan = make_plan(base | known | {"transcript": {"path": "node", "optimizer": "sgd"}}, tmp_path)
    runs, cases = planted_work(plan, [Check(attack="membership-loss")])
    assert len(runs) == 1 and [case.client for case in cases] == list(range(6))
    execute._open_run.clear()
    with open_store(tmp_path / "out", plan.digest()) as store:
        execute_run(plan, store, runs[0])
        execute_case(plan, store, cases[0])
        found = store.read_case(cases[0].id)
    assert found["status"] == "ok" and set(found["scores"]) == {"auc"}, found["reason"]
    assert "recording" not in found["ledger"] and found["ledger"]["target_name"] == "planted 0"
    unknown = make_plan(base | {"federation": {}, "transcript": {"path": "node"}}, tmp_path)
    assert planted_work(unknown, [Check(attack="membership-loss")]) == ([], [])
    row = power_rows(unknown, [Check(attack="membership-loss")], [])[0]
    assert not row["passed"] and "recipe of the recording is not known" in row["reason"]


def test_a_person_found_by_planted_copies_is_said_so() -> None:
    plan = plan_of(attack=[{"name": "membership-loss", "label": "a", "primary": "auc_subject_other"}])
    by = {"scores": {"auc_subject_other": 0.9}, "floors": {"chance": {"auc_subject_other": 0.5}}, "plant": "membership"}
    row = power_rows(plan, A, [planted_case(0.9, client, **by) for client in range(6)])[0]
    assert row["passed"] and "it recognises exact copies; whether" in row["reason"]
