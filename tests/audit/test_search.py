from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.audit.search import (
    Point,
    Ranges,
    SearchResult,
    Study,
    Trial,
    ask,
    check,
    check_library,
    finite,
    search_result,
    spread,
)  # fmt: skip
from fedxray.errors import BadInput
from fedxray.seeds import fork

RANGES: dict[str, Any] = {"x": (-3.0, 3.0, "linear"), "rate": (1e-4, 1.0, "log"), "k": (1, 9, "int")}


def bowl(point: Point) -> float:
    return (point["x"] - 1) ** 2 + (math.log10(point["rate"]) + 2) ** 2 + (point["k"] - 4) ** 2 / 4


def search(
    objective: Callable[[Point], float],
    ranges: Ranges,
    *,
    generator: torch.Generator,
    backwards: bool = False,
    **more: Any,
) -> SearchResult:
    study = Study(ranges=ranges, **more)
    check(study)
    check_library(study)
    done: list[Trial] = []
    while points := ask(study, done, generator):
        order = -1 if backwards else 1
        done += [Trial(point, finite(objective(point))) for point in points[::order]][::order]
    return search_result(done)


def found(sampler: str, **more: Any) -> SearchResult:
    settings = {"trials": 14, "batch": 4, "generator": fork(0, "search"), **more}
    return search(bowl, RANGES, sampler=sampler, **settings)


@pytest.fixture(params=["random", "gp"])
def sampler(request: pytest.FixtureRequest, extra: Any) -> str:
    if request.param == "gp":
        extra("optuna")
    return str(request.param)


def test_the_same_seed_finds_the_same_and_changes_nothing_around(sampler: str) -> None:
    generator = fork(0, "search")
    before, ambient = generator.get_state(), torch.get_rng_state()
    first = found(sampler, generator=generator)
    assert torch.equal(generator.get_state(), before) and torch.equal(torch.get_rng_state(), ambient)
    assert found(sampler) == first
    assert found(sampler, generator=fork(1, "search")) != first
    assert len(first.trials) == 14 and first.status == "ok"
    assert first.best.loss == min(bowl(trial.point) for trial in first.trials)


def test_batches_may_be_worked_on_in_any_order(sampler: str) -> None:
    assert found(sampler, backwards=True) == found(sampler)
    sizes = Study(ranges=RANGES, trials=14, batch=4, sampler=sampler).sizes()
    assert sizes == ([10, 4] if sampler == "gp" else [4, 4, 4, 2])  # random starts are one batch


def test_points_lie_in_their_ranges_and_differ(sampler: str) -> None:
    points = [trial.point for trial in found(sampler).trials]
    for point in points:
        assert set(point) == set(RANGES)
        assert all(low <= point[name] <= high for name, (low, high, _) in RANGES.items())
        assert isinstance(point["k"], int)
    assert len({tuple(sorted(point.items())) for point in points}) == len(points)


def test_random_trials_do_not_depend_on_the_batch() -> None:
    assert found("random", batch=1) == found("random", batch=14)


def test_the_gaussian_process_learns(extra: Any) -> None:
    extra("optuna")
    assert found("gp", trials=20, batch=2).best.loss < found("random", trials=20).best.loss


def test_a_loss_that_is_no_number_is_never_the_best(sampler: str) -> None:
    def sometimes(point: Point) -> float:
        return float("nan") if point["x"] < 0 else bowl(point)

    best = search(sometimes, RANGES, trials=14, batch=7, generator=fork(0, "search"), sampler=sampler).best
    assert best.point["x"] >= 0 and math.isfinite(best.loss)


def test_without_any_finite_loss_the_outcome_is_undetermined(sampler: str) -> None:
    outcome = search(lambda point: math.inf, RANGES, trials=3, batch=2, generator=fork(0), sampler=sampler)
    assert outcome.status == "undetermined" and "finite" in outcome.reason


@given(st.floats(0, 1, exclude_max=True), st.integers(-5, 5), st.integers(0, 9))
def test_whole_numbers_are_drawn_evenly(share: float, low: int, width: int) -> None:
    value = spread(share, low, low + width, "int")
    assert low <= value <= low + width
    assert value == low + [share * (width + 1) >= step for step in range(1, width + 1)].count(True)


@given(st.floats(0, 1), st.floats(1e-6, 1.0), st.floats(1.0, 1e6))
def test_logarithmic_ranges_are_even_in_the_exponent(share: float, low: float, factor: float) -> None:
    value = spread(share, low, low * factor, "log")
    assert low <= value <= low * factor
    assert math.log(value / low) == pytest.approx(share * math.log(factor), abs=1e-9)


def test_a_grid_holds_both_ends_of_every_range_and_no_point_twice() -> None:
    ranges: Ranges = {"x": (0.01, 1.0, "log"), "n": (2, 4, "int")}
    points = [
        one.point for one in search(lambda point: 0.0, ranges, trials=10, generator=fork(0), sampler="grid").trials
    ]
    assert points == [{"n": n, "x": pytest.approx(x)} for n in (2, 3, 4) for x in (0.01, 0.1, 1.0)]
    whole: Ranges = {"n": (1, 2, "int")}
    few = search(lambda point: 0.0, whole, trials=7, batch=2, generator=fork(0), sampler="grid")
    assert [one.point["n"] for one in few.trials] == [1, 2]
    (middle,) = search(lambda point: 0.0, ranges, trials=1, generator=fork(0), sampler="grid").trials
    assert middle.point == {"n": 3, "x": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampler": "grids"}, "sampler"),
        ({"ranges": {"x": (1.0, 0.0, "linear")}}, "ranges.x"),
        ({"ranges": {"x": (0.0, 1.0, "log")}}, "ranges.x"),
        ({"ranges": {"x": (0.5, 2.0, "int")}}, "ranges.x"),
        ({"ranges": {"x": (0.0, math.inf, "linear")}}, "ranges.x"),
        ({"ranges": {"x": (math.nan, 1.0, "linear")}}, "ranges.x"),
        ({"ranges": {"x": (1, 10**400, "int")}}, "ranges.x"),
        ({"ranges": {"x": (2.0, 2.0, "linear")}}, "One value is no search"),
    ],
)
def test_impossible_searches_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check(Study(**{"ranges": RANGES, "trials": 2} | change))


def test_without_optuna_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"sampler: expected Optuna to be installed.*'\.\[tune\]'; or use sampler"):
        found("gp")
