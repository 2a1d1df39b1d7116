from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.results import read_results
from fedxray.audit.plan import make_plan
from fedxray.audit.run import budget as budgets
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.budget import Budget, Choice, Cost, choose, parse_budget
from fedxray.audit.run.preflight import Planted, preflight
from fedxray.audit.workers.engines import (
    DEADLINE_PASSED,
    Deadline,
    Engine,
    Inline,
    Processes,
    Progress,
    Shared,
    Task,
    TaskFailure,
    cut_off,
    no_deadline,
)
from fedxray.errors import BadInput
from fedxray.lookup import load
from fedxray.report.overview import CUT, REDUCED, notices
from tests.audit.plans import tiny
from tests.audit.workers.test_engines import ProgressLog, has_gone, task, timeless, wait_for

SECONDS = {"inversion": 100.0, "membership": 0.0}


def whole(clients: int = 10, seeds: int = 2) -> Choice:
    """An expensive attack that optimises, and a cheap one that does not."""
    costs = {
        name: Cost(clients=tuple(range(clients)), groups=1, fixed=1.0, optimising=seconds)
        for name, seconds in SECONDS.items()
    }
    return Choice(costs=costs, seeds=tuple(range(seeds)), run_seconds=10.0)


def chosen(seconds: float, **more: int) -> Choice:
    return choose(whole(**more), Budget(text="x", seconds=seconds / budgets.SPARE))


@pytest.mark.parametrize(("said", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h", 7200), ("1m5s", 65)])
def test_times_in_words(said: str, seconds: float) -> None:
    assert parse_budget(said, 3) == Budget(text=said, seconds=seconds, workers=3)


@pytest.mark.parametrize("said", ["", "10", "ten", "0m", "-5m", "5m 3h", "1.5h", "m", "9" * 5000 + "s"])
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="--budget: expected a time such as 90s, 10m or 1h30m"):
        parse_budget(said)


KEPT: dict[str, Any] = {"budget": "5s", "seconds": 5.0, "workers": 1, "seeds": [0], "steps": {}, "left_out": []}


def test_a_choice_about_everyone_at_once_is_kept_and_a_damaged_one_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text("{}")
    kept = KEPT | {"targets": {"inversion": [None]}}
    budgets.write_budget(tmp_path, kept)
    assert budgets.stored_budget(tmp_path, None, resume=True) == kept
    for damaged in (KEPT, kept | {"seeds": "0"}, kept | {"targets": {"inversion": ["all"]}}):
        budgets.write_budget(tmp_path, damaged)
        with pytest.raises(BadInput, match=r"budget\.json.*Put it back"):
            budgets.stored_budget(tmp_path, None, resume=True)


def test_where_there_is_time_nothing_is_left_out() -> None:
    assert chosen(2 * 10 + 2 * 10 * 102) == whole()


def test_an_attack_without_steps_loses_clients_and_seeds_alone() -> None:
    full = whole(clients=4, seeds=3)
    costs = {name: replace(cost, stepped=False, optimising=50.0) for name, cost in full.costs.items()}
    less = choose(replace(full, costs=costs), Budget(text="x", seconds=300 / budgets.SPARE))
    assert all(cost.share == 1.0 for cost in less.costs.values()) and len(less.seeds) * 2 < 6
    names = ("attribute-from-updates", "membership-best")
    plan = make_plan(tiny(seeds=[0, 1, 2], attack=[{"name": name} for name in names]), Path.cwd())
    estimate = replace(preflight(plan), optimising_seconds=dict.fromkeys(names, 9.0))
    decided = budgets.decide(plan, estimate, Budget(text="60s", seconds=60.0))
    assert decided["steps"] == {} and budgets.within_budget(plan, decided).seeds


def test_first_clients_go_then_steps_then_clients_then_seeds() -> None:
    """Reckoned by hand: 2 seeds cost 20 s of training, a client's case of the inversion 101 s, of the other 1 s."""
    some = chosen(20 + 2 * 10 * 1 + 2 * 5 * 101)
    assert len(some.costs["inversion"].clients) == 5 and some.costs["inversion"].share == 1.0
    assert len(some.costs["membership"].clients) == 10, "what costs nothing stays"
    shorter = chosen(20 + 2 * 10 * 1 + 2 * 3 * 85)
    assert len(shorter.costs["inversion"].clients) == 3 and len(shorter.costs["membership"].clients) == 10
    assert shorter.costs["inversion"].share == pytest.approx(0.84, abs=1e-3), "0.8, and what is left over"
    fewer = chosen(20 + 2 * 1 + 2 * 26)
    assert [len(one.clients) for one in fewer.costs.values()] == [1, 1] and len(fewer.seeds) == 2
    assert fewer.costs["inversion"].share == 0.25
    assert len(chosen(10 + 1 + 26).seeds) == 1
    with pytest.raises(BadInput, match=r"--budget: expected at least 50s, for one client.*got x"):
        chosen(36)


@given(seconds=st.floats(1, 5000), clients=st.integers(1, 12), seeds=st.integers(1, 4), workers=st.integers(1, 4))
def test_what_is_chosen_fits_and_no_attack_is_lost(seconds: float, clients: int, seeds: int, workers: int) -> None:
    plan = whole(clients, seeds)
    asked = Budget(text="x", seconds=seconds, workers=workers)
    try:
        found = choose(plan, asked)
    except BadInput:
        return
    assert found.seconds() <= seconds * workers * budgets.SPARE
    assert (found == plan) is (plan.seconds() <= seconds * workers * budgets.SPARE)
    assert all(one.clients and 0.25 <= one.share <= 1 for one in found.costs.values()) and found.seeds


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer on which a local step takes a hundredth of a second, any case one, and a clock that stands still."""
    monkeypatch.setattr("fedxray.audit.run.preflight.SECONDS_PER_CASE", 1.0)
    monkeypatch.setattr("fedxray.audit.run.preflight._step_seconds", lambda _: 0.01)
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: 0.0)


def two_attacks() -> dict[str, Any]:
    found = tiny(attack=[{"name": "tabular-inversion", "steps": 40}, {"name": "membership-loss"}])
    found["data"] |= {"records": 24}
    return found


@pytest.mark.usefixtures("slow_clock")
def test_a_budget_takes_its_share_and_says_so_and_a_resumed_audit_takes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(two_attacks(), tmp_path)
    first = run_audit(plan, tmp_path / "out", budget="5s")
    kept = json.loads((tmp_path / "out" / "budget.json").read_bytes())
    assert first.document["budget"] == kept and kept["estimate"]["chosen"] <= 5 * budgets.SPARE
    assert [(one["attack"], one["client"]) for one in first.document["cases"]] == [
        ("tabular-inversion", 0),
        ("membership-loss", 0),
        ("membership-loss", 1),
    ]
    assert 1 < kept["steps"]["tabular-inversion"] < 40, "steps go before the last clients"
    assert any(line.startswith("tabular-inversion: 1 of 2 clients") for line in kept["left_out"])
    assert "left out by --budget 5s: tabular-inversion" in (first.folder / "log").read_text()
    assert [headline for headline, _ in notices(read_results(first.folder))] == [REDUCED[0]]

    monkeypatch.setattr("fedxray.audit.run.preflight._step_seconds", lambda _: 10.0)
    for again in (None, "5s"):
        resumed = run_audit(plan, tmp_path / "out", resume=True, budget=again)
        assert resumed.document == first.document
    with pytest.raises(BadInput, match="--budget: expected 5s, with which this audit began, got 1h"):
        run_audit(plan, tmp_path / "out", resume=True, budget="1h")
    with pytest.raises(BadInput, match="--budget: expected at least"):
        run_audit(plan, tmp_path / "new", budget="5s")
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("slow_clock")
def test_an_audit_that_began_without_a_limit_continues_without(tmp_path: Path) -> None:
    plan = make_plan(tiny(), tmp_path)
    assert "budget" not in run_audit(plan, tmp_path / "out").document
    with pytest.raises(BadInput, match="--budget: expected none, as when this audit began"):
        run_audit(plan, tmp_path / "out", resume=True, budget="1h")


@pytest.mark.usefixtures("slow_clock")
def test_what_the_clock_cuts_is_truncated_and_never_safe_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tiny(attack=[{"name": "membership-loss"}]), tmp_path)
    undisturbed = run_audit(plan, tmp_path / "whole", budget="1h")
    ticks: Iterator[float] = iter([0.0, 1.0, 2.0, *[1e9] * 100])
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: next(ticks))
    ended = run_audit(plan, tmp_path / "out", budget="1h")
    assert [case["status"] for case in ended.document["cases"]] == ["ok", "truncated"] and ended.failed == 0
    assert ended.document["cases"][1]["reason"] == DEADLINE_PASSED
    assert {row["verdict"] for row in ended.document["summary"] if row["primary"]} == {"inconclusive"}
    assert [headline for headline, _ in notices(read_results(ended.folder))] == [CUT[0]]
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: 0.0)
    resumed = run_audit(plan, tmp_path / "out", resume=True)
    assert timeless(resumed.document)["cases"] == timeless(undisturbed.document)["cases"]
    assert resumed.document["summary"] == undisturbed.document["summary"]


@pytest.mark.usefixtures("slow_clock")
def test_short_cases_go_first_on_a_clock(tmp_path: Path) -> None:
    log = ProgressLog()
    run_audit(make_plan(two_attacks(), tmp_path), tmp_path / "out", budget="1h", progress=log)
    kinds = [label.partition(".")[0] for _, _, label in log.calls]
    assert kinds[1:5] == ["membership-loss"] * 2 + ["tabular-inversion"] * 2


@pytest.mark.usefixtures("slow_clock")
def test_no_time_for_a_federation_is_the_outcome_of_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, *[1e9] * 100])
    monkeypatch.setattr("fedxray.audit.run.audit.monotonic", lambda: next(ticks))
    ended = run_audit(make_plan(tiny(), tmp_path), tmp_path / "out", budget="1h")
    assert {case["status"] for case in ended.document["cases"]} == {"truncated"}


class Late(Engine):
    """An engine that says too late that the time was over."""

    def __enter__(self) -> Late:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(
        self, tasks: Sequence[Task], progress: Progress, deadline: Deadline = no_deadline, shared: Shared = ()
    ) -> list[TaskFailure]:
        for waiting in tasks:
            load(waiting.function)(*shared, waiting.item)
        return cut_off(tasks)


def test_what_ended_in_the_last_moment_is_kept(tmp_path: Path) -> None:
    ended = run_audit(make_plan(tiny(), tmp_path), tmp_path / "out", engine=Late())
    assert {case["status"] for case in ended.document["cases"]} == {"ok"}


def test_engines_stop_at_the_deadline(tmp_path: Path) -> None:
    begun = tmp_path / "a.began"
    with Processes(1) as engine:
        tasks = [task(tmp_path, "sleep", "a"), task(tmp_path, "note", "b")]
        failures = engine.run(tasks, ProgressLog(), begun.exists)
    assert [(one.task.label, one.reason, one.cut_off) for one in failures] == [
        ("a", DEADLINE_PASSED, True),
        ("b", DEADLINE_PASSED, True),
    ]
    assert has_gone(int(wait_for(begun))) and not (tmp_path / "b.txt").exists()
    with Inline() as inline:
        over = (tmp_path / "c.txt").exists
        failures = inline.run([task(tmp_path, "note", name) for name in "cd"], ProgressLog(), over)
    assert [one.task.label for one in failures] == ["d"]


def test_power_checks_are_counted_where_a_verdict_may_wait_for_one() -> None:
    """By hand: 6 planted cases of 2 + 10 s and a planted run of 7 s, as long as 3 runs are left."""
    planted = Planted(cases=6, optimising=10.0, running=7.0)
    cost = Cost(clients=(0, 1, 2), groups=1, fixed=2.0, optimising=20.0, planted=planted)
    assert cost.seconds(3) == 3 * 3 * 22 + 6 * 12 + 7
    assert cost.seconds(2) == 3 * 2 * 22, "two runs find no leak, so no verdict waits"
    assert replace(cost, share=0.5).seconds(3) == 3 * 3 * 12 + 6 * 7 + 7, "checked with the same steps"
    whole = Choice(costs={"a": replace(cost, clients=(0, 1))}, seeds=(0, 1, 2), run_seconds=0.0)
    room = 2 * 3 * 22 + 6 * 12 + 6  # a second too little
    found = choose(whole, Budget(text="x", seconds=room / budgets.SPARE))
    assert len(found.costs["a"].clients) == 2 and 0.9 < found.costs["a"].share < 1
    assert found.seconds() == pytest.approx(room, abs=0.5)


def test_an_estimate_holds_the_power_checks_of_attacks_that_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedxray.audit.run.preflight._step_seconds", lambda _: 0.01)
    attacks = [
        {"name": "membership-loss"},
        {"name": "attribute-from-model"},
        {"name": "attribute-from-gradients", "steps": 5},
    ]
    few = preflight(make_plan(tiny(attack=attacks, seeds=[0, 1]), Path.cwd()))
    assert (few.planted, few.power_seconds) == ({}, 0), "four units get no verdict, so none waits"
    plan = make_plan(tiny(attack=attacks, seeds=[0, 1, 2]), Path.cwd())
    found = preflight(plan)
    assert list(found.planted) == [part.title for part in plan.attacks]
    assert {one.cases for one in found.planted.values()} == {6}
    running = [one.running for one in found.planted.values()]
    assert running[0] == running[1] == 3 * found.run_seconds > 0 == running[2], "one run for each kind"
    cases = sum(one.cases * (found.fixed_seconds + one.optimising) for one in found.planted.values())
    assert found.power_seconds == pytest.approx(cases + sum(running))
