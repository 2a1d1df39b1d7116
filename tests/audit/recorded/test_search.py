"""Recipes that are not known: the one that explains the reply best, and fields that are not distinguished."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.recorded import recipe as recorded_search
from fedxray.audit.recorded.recipe import _judged
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.audit.search import SearchResult, Trial
from fedxray.errors import BadInput
from fedxray.report.overview import notices
from tests.audit.recordings import record_simulation

NODE: dict[str, Any] = {
    "data": {"name": "digits", "clients": 2, "limit": 4},
    "model": {"name": "mlp", "hidden": [6]},
    "federation": {"rounds": 1, "batch_size": 4, "learning_rate": 0.1},
    "attack": [{"name": "inverting-gradients", "steps": 3, "controls": []}],
}
KNOWN = {"epochs": 1, "batch_size": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    record_simulation(make_plan(NODE, folder), folder / "quiet", [0])
    record_simulation(make_plan(NODE, folder), folder / "reported", [0], config={"lr": 0.1})
    return folder


def plan(
    place: Path, grid: dict[str, Any], *, federation: dict[str, Any] = KNOWN, path: str = "quiet", **transcript: Any
) -> Plan:  # fmt: skip
    table = {"path": path, "optimizer": "sgd", "recipe": grid, **transcript}
    return make_plan({**NODE, "federation": federation, "transcript": table}, place)


def test_the_learning_rate_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_search, "STEPS", 40)
    found = plan(place, {"learning_rate": [0.01, 0.1, 1.0]})
    preflight(found)
    prepared = prepare(found, "none", 0)
    assert prepared.federation.recipe.learning_rate == 0.1 and prepared.unknown == ()
    reported = (prepared.recorded or {})["recipe_searched"]
    assert reported["chosen"] == {"learning_rate": 0.1} and reported["alike"] == []
    misfits = {one["learning_rate"]: one["misfit"] for one in reported["tried"]}
    assert misfits[0.1] < 0.6 * min(misfits[0.01], misfits[1.0])
    lines = understood(prepared)
    assert any("searched by the attacker's own loss: learning_rate 0.1 (best of 3)" in line for line in lines)


def test_the_ledger_says_what_was_searched(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_search, "STEPS", 2)
    ended = run_audit(plan(place, {"learning_rate": [0.1, 1.0]}), tmp_path / "out").document
    case = ended["cases"][0]
    assert case["status"] == "ok", case["reason"]
    found = case["ledger"]["recording"]
    assert found["recipe_missing"] == [] and found["recipe_searched"]["chosen"].keys() == {"learning_rate"}
    assert [one["learning_rate"] for one in found["recipe_searched"]["tried"]] == [0.1, 1.0]
    assert "Part of the recipe was searched." in [headline for headline, _ in notices(ended)]


def test_nothing_is_searched_while_more_is_missing(place: Path) -> None:
    found = plan(place, {"learning_rate": [0.01, 0.1]}, federation={"epochs": 1})
    with pytest.raises(BadInput, match=r"federation.batch_size: .* Give it, or candidates in \[transcript.recipe\]"):
        preflight(found)


def test_a_search_that_fails_is_reported(place: Path) -> None:
    """The number of examples is taken as unknown, so that nothing can be replayed."""
    found = plan(place, {"learning_rate": [0.01, 0.1]}, examples="any")
    prepared = prepare(found, "none", 0)
    assert prepared.unknown == ("recipe",)
    assert any("! the search of the recipe failed: " in line for line in understood(prepared))
    with pytest.raises(BadInput, match=r"federation.learning_rate: .*candidates that could not be judged \(.*examples"):
        preflight(found)


def judged(*losses: float) -> recorded_search.Search:
    points = [{"learning_rate": rate, "epochs": epochs} for rate in (0.1, 0.2) for epochs in (1, 2)]
    trials = tuple(Trial(point, loss) for point, loss in zip(points, losses, strict=True))
    bad = all(math.isinf(loss) for loss in losses)
    return _judged(SearchResult(trials=trials, status="undetermined" if bad else "ok", reason="none" if bad else ""))


def test_fields_that_are_not_distinguished_are_named() -> None:
    """0.1 in two epochs against 0.2 in one: both fields are open; else only the one whose values fit alike."""
    assert judged(9.0, 1.0, 1.1, 9.0).alike == ("learning_rate", "epochs")
    assert judged(1.2, 1.0, 9.0, 9.0).alike == ("epochs",)
    assert judged(9.0, 1.0, 1.3, 9.0).alike == ()
    assert judged(9.0, 1.0, 1.3, math.inf).chosen == {"learning_rate": 0.1, "epochs": 2}
    lost = judged(math.inf, math.inf, math.inf, math.inf)
    assert lost.chosen == {} and lost.tried[0]["misfit"] is None and lost.reason == "none"


@pytest.mark.parametrize(
    ("grid", "more", "reported"),
    [
        ({}, {}, "transcript.recipe: expected from 1 to 40 candidates in all, got none"),
        ({"learning_rate": [0.1] * 20, "epochs": [1, 2, 3]}, {"federation": {}}, "candidates in all, got 60"),
        ({"epochs": [1, 2]}, {}, "transcript.recipe.epochs: expected candidates for what is not known"),
        ({"learning_rate": [0.1, -1.0]}, {}, "transcript.recipe.learning_rate[1]: expected a list of numbers above 0"),
        ({"momentum": [0.9]}, {}, "momentum"),
        ({"learning_rate": [0.1]}, {"federation": {"algorithm": "fedsgd"}}, "federation.algorithm = fedsgd beside it"),
        ({"learning_rate": [0.1]}, {"path": "reported"}, "nothing: the clients were sent 0.1 in round 0"),
    ],
)  # fmt: skip
def test_candidates_that_make_no_sense_are_refused(
    place: Path, grid: dict[str, Any], more: dict[str, Any], reported: str
) -> None:
    with pytest.raises(BadInput) as caught:
        preflight(plan(place, grid, **more))
    assert reported in str(caught.value)
