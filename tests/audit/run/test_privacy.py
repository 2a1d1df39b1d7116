"""Budgets in results: of every client, of what an active case spent on top, and the weakest one beside utility."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge.results import privacy_words
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.utility import PRIVACY, promise_kept, promised, worst_promise, write_promises
from fedxray.errors import BadInput
from tests.audit.plans import tiny

DP = {"name": "dp-sgd", "noise_multiplier": 2.0, "clip": 0.5}


@pytest.fixture(autouse=True, scope="module")
def opacus(extra: Any) -> None:
    extra("opacus")


def planned(**changes: Any) -> Any:
    given = {"federation": {"rounds": 2, "batch_size": "all", "participation": 0.5}, "defence": [DP], **changes}
    return make_plan(tiny(**given), Path())


def test_only_rounds_worked_count(tmp_path: Path) -> None:
    federation = prepare(planned(), "dp-sgd", 0).federation
    write_promises(tmp_path, federation, 0)
    reported = json.loads((tmp_path / PRIVACY).read_text())
    assert [one["rounds"] for one in reported] in ([1, 1], [2, 0], [0, 2])
    assert all(one["epsilon"] == promised(federation, 0, one["rounds"])["epsilon"] for one in reported)  # type: ignore[index]
    assert [one["steps"] for one in reported] == [one["rounds"] for one in reported]


def test_rounds_spent_by_an_active_server_count_too(tmp_path: Path) -> None:
    federation = prepare(planned(), "dp-sgd", 0).federation
    write_promises(tmp_path, federation, 0)
    plain, more = (promise_kept(tmp_path, federation, 1, spent) for spent in (0, 7))
    assert plain is not None and more is not None
    assert more["rounds"] == plain["rounds"] + 7 and more["epsilon"] > plain["epsilon"]


def test_without_a_promise_nothing_is_said(tmp_path: Path) -> None:
    federation = prepare(planned(defence=[{"name": "gaussian-noise", "scale": 1.0}]), "gaussian-noise", 0).federation
    write_promises(tmp_path, federation, 0)
    assert promise_kept(tmp_path, federation, 0, 3) is None and worst_promise([tmp_path]) is None
    assert worst_promise([]) is None and promise_kept(tmp_path / "none", federation, 0, 0) is None


def test_the_weakest_promise_is_the_largest_epsilon_or_none(tmp_path: Path) -> None:
    rest = {"delta": 1e-5, "noise_multiplier": 1.0, "rate": 1.0, "steps": 2, "rounds": 2, "accountant": "prv"}

    def reported(*epsilons: float | None) -> Path:
        folder = tmp_path / str(epsilons)
        folder.mkdir()
        kept = [{**rest, "note": "", "epsilon": one} for one in epsilons]
        (folder / PRIVACY).write_text(json.dumps(kept))
        return folder

    assert (worst_promise([reported(1.0, 3.0), reported(2.0)]) or {})["epsilon"] == 3.0
    assert (worst_promise([reported(1.0, None)]) or {"epsilon": 0})["epsilon"] is None


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"epsilon": 1.0}]', '[{"epsilon'])
def test_a_damaged_promise_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / PRIVACY).write_text(content)
    with pytest.raises(BadInput, match=r"privacy\.json.*--resume"):
        worst_promise([tmp_path])


def test_in_an_audit_budgets_stand_in_ledger_and_utility(tmp_path: Path) -> None:
    plan = planned(defence=[{"name": "none"}, DP], federation={"rounds": 2, "batch_size": "all"})
    document = run_audit(plan, tmp_path / "out").document
    private = [case for case in document["cases"] if case["defence"] == "dp-sgd"]
    found = {case["ledger"]["privacy"]["epsilon"] for case in private}
    assert (
        len(private) == 4
        and len(found) == 1
        and not any("privacy" in case["ledger"] for case in document["cases"] if case["defence"] == "none")
    )
    rows = {row["defence"]: row for row in document["utility"]}
    assert rows["none"]["epsilon"] is None and rows["dp-sgd"]["epsilon"] in found
    assert rows["dp-sgd"]["privacy"] == "delta 1e-05, accountant prv" == privacy_words(private[0]["ledger"]["privacy"])
