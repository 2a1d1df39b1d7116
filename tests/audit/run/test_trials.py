"""Trials ahead of their cases: shared by workers, kept when killed, the same outcome whoever works."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedxray.attacks.inversion.awa import Awa
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.audit import Completed, run_audit
from fedxray.audit.run.execute import execute_trial
from fedxray.audit.run.grid import TrialTask, case_costs, expand, save_trial_time, trial_batches, trial_time
from fedxray.audit.run.store import Store, open_store
from fedxray.audit.workers.engines import make_engine
from tests.audit.forks import start
from tests.audit.stored import stored_evidence
from tests.audit.workers.test_engines import timeless

STUDY = {"trials": 12, "starts": 6, "batch": 3, "sampler": "gp", "give_up": 0.5}


def plan(study: dict[str, Any] | None = None, **attack: Any) -> Plan:
    """Two clients with two tiny pictures each, and a search that costs next to nothing."""
    part = {"name": "awa", "steps": 4, "targets": [0], "controls": [], "search": study or STUDY, **attack}
    return make_plan(
        {
            "name": "searched",
            "data": {"name": "digits", "clients": 2, "limit": 2, "public": 0.2},
            "model": {"name": "lenet", "width": 2, "hidden": 8},
            "federation": {"rounds": 1, "batch_size": "all", "learning_rate": 0.1},
            "attack": [part],
        },
        Path(__file__).parents[1],
    )


def audited(wanted: Plan, folder: Path, engine: str = "inline", jobs: int | None = None) -> Completed:
    with make_engine(engine, jobs) as workers:
        return run_audit(wanted, folder, engine=workers, resume=folder.exists(), power=False)


def kept(folder: Path) -> dict[str, bytes]:
    """All answers of the attack, and the points that were asked for, as they are on the disk."""
    return {key: content for key, content in stored_evidence(folder).items() if not key.startswith("time-")}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Which trials were begun, also in forked processes."""
    notes, real = tmp_path / "begun", Awa.attack
    notes.touch()

    def noting(self: Awa, *rest: Any) -> Any:
        with notes.open("a") as stream:
            stream.write(f"{self.identity()}\n")
        return real(self, *rest)

    monkeypatch.setattr(Awa, "attack", noting)
    return lambda: notes.read_text().splitlines()


def test_the_outcome_is_the_same_with_any_number_of_workers(tmp_path: Path, extra: Any) -> None:
    extra("optuna")
    here = audited(plan(steps=8), tmp_path / "inline")
    one, two = (audited(plan(steps=8), tmp_path / f"of {jobs}", "processes", jobs) for jobs in (1, 2))
    assert timeless(here.document) == timeless(one.document) == timeless(two.document)
    assert kept(tmp_path / "inline") == kept(tmp_path / "of 1") == kept(tmp_path / "of 2")
    reported = here.document["cases"][0]["search"]
    assert len(reported["trials"]) == 12 and reported["starts"] == 6
    assert any(trial.get("given_up") for trial in reported["trials"])


def test_a_killed_search_continues_without_trying_anything_twice(
    tmp_path: Path, extra: Any, begun: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra("optuna")
    whole = audited(plan(), tmp_path / "whole")
    alone = begun()
    assert len(alone) == len(set(alone)) == 12

    noting = Awa.attack

    def shot(self: Awa, *rest: Any) -> Any:
        if len(begun()) == len(alone) + 8:  # in the middle of a batch
            noting(self, *rest)
            os.kill(os.getpid(), signal.SIGKILL)
        return noting(self, *rest)

    monkeypatch.setattr(Awa, "attack", shot)
    ended = os.waitpid(start(lambda: audited(plan(), tmp_path / "killed")), 0)[1]
    assert os.waitstatus_to_exitcode(ended) == -signal.SIGKILL
    monkeypatch.setattr(Awa, "attack", noting)
    resumed = audited(plan(), tmp_path / "killed")
    assert begun()[12:21] == alone[:9], "the last of these was killed"
    assert begun()[21:] == alone[8:], "so it is begun again, and nothing else"
    assert timeless(resumed.document) == timeless(whole.document)
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")


def test_points_that_were_asked_for_are_not_asked_for_again(
    tmp_path: Path, extra: Any, begun: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra("optuna")
    whole = audited(plan(), tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "private" / "cases")

    def other(*rest: Any, **more: Any) -> Any:
        raise AssertionError("another version of a library might ask for other points")

    monkeypatch.setattr("fedxray.audit.search.improving_points", other)
    again = audited(plan(), tmp_path / "out")
    assert len(begun()) == 12 and timeless(again.document) == timeless(whole.document)


def test_controls_read_the_trials_of_other_cases(tmp_path: Path, begun: Callable[[], list[str]]) -> None:
    study = {"trials": 3, "ranges": {"q_conv": [1.0, 9.0]}}
    both = audited(plan(study, targets="all", controls=["other-client"]), tmp_path / "both")
    assert len(begun()) == 6, "each of two clients is the other's control"
    one = audited(plan(study, controls=["other-client"]), tmp_path / "one")
    assert len(begun()) == 12, "here nobody else has tried for the control"
    assert one.document["cases"][0]["controls"] == both.document["cases"][0]["controls"]
    ahead = [trial for batch in trial_batches(*of_cases(study, controls=["other-client"])) for trial in batch]
    assert [trial.messages_of for trial in ahead] == [None] * 3 + [1] * 3
    assert len({trial.id for trial in ahead}) == 6


def of_cases(study: dict[str, Any], **attack: Any) -> tuple[Plan, Any]:
    wanted = plan(study, **attack)
    return wanted, expand(wanted)[1]


def test_batches_come_in_order_and_starts_are_one() -> None:
    batches = trial_batches(*of_cases(STUDY))
    assert [len(batch) for batch in batches] == [6, 3, 3]
    assert [(one.batch, one.index) for one in batches[1]] == [(1, 0), (1, 1), (1, 2)]
    both = trial_batches(*of_cases(STUDY, targets="all"))
    assert [len(batch) for batch in both] == [12, 6, 6], "cases go through their batches side by side"


def test_a_trial_that_fails_is_reported_by_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def broken(self: Awa, *rest: Any) -> Any:
        nonlocal calls
        calls += 1
        raise RuntimeError("no such luck")

    monkeypatch.setattr(Awa, "attack", broken)
    ended = audited(plan({"trials": 6, "batch": 3}), tmp_path / "out")
    (case,) = ended.document["cases"]
    assert case["status"] == "failed" and case["reason"].startswith("RuntimeError in test_trials.py")
    assert calls == 3 + 1, "the first batch ahead, then the case; what comes after a batch with a hole is left"


def test_a_search_whose_trials_all_diverge_is_undetermined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Awa.attack

    def lost(self: Awa, *rest: Any) -> Any:
        answer = real(self, *rest)
        return replace(answer, status="diverged", curve=(float("nan"),), facts={"own_loss": [float("inf")]})

    monkeypatch.setattr(Awa, "attack", lost)
    (case,) = audited(plan({"trials": 2}), tmp_path / "out").document["cases"]
    assert case["status"] == "undetermined" and "finite loss" in case["reason"]
    assert case["search"]["best"] is None and case["curve"]["losses"] == [None]


def test_time_spent_ahead_is_the_cases_time(tmp_path: Path) -> None:
    wanted, cases = of_cases(STUDY)
    with open_store(tmp_path / "out", wanted.digest()) as store:
        for batch in trial_batches(wanted, cases):
            for one in batch:
                save_trial_time(store, one, {"seconds": 2.0, "cpu_seconds": 0.5})
        assert trial_time(wanted, store, cases[0]) == {"seconds": 24.0, "cpu_seconds": 6.0}
    costs = case_costs(wanted, cases, 1.0, lambda attack: 20.0)
    assert costs[cases[0].id] == 1.0 and sum(costs.values()) == pytest.approx(21.0)
    assert set(costs) == {cases[0].id, *(one.id for batch in trial_batches(wanted, cases) for one in batch)}


def test_a_grid_has_no_trial_beyond_its_points(tmp_path: Path, begun: Callable[[], list[str]]) -> None:
    study = {"trials": 5, "sampler": "grid", "ranges": {"q_conv": [1.0, 9.0], "q_norm": [1.0, 9.0]}}
    wanted, cases = of_cases(study)
    audited(wanted, tmp_path / "out")
    assert len(begun()) == 4
    beyond = TrialTask(case=cases[0], messages_of=None, batch=0, index=4)
    execute_trial(wanted, Store(tmp_path / "out"), beyond)
    assert len(begun()) == 4
    assert json.loads((tmp_path / "out" / "results.json").read_text())["cases"][0]["search"]["best"] is not None
