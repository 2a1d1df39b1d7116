"""Intervals against an independent library and by simulation, Holm against its definition."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from fedxray.audit.judge.statistics import Interval, drawn_permutations, holm, interval, paired, smallest_seen
from fedxray.errors import BadInput

finite = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 3))
ps = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8)


def bounds(result: Interval) -> tuple[float, float]:
    assert result.low is not None and result.high is not None
    return result.low, result.high


def probability(result: Interval) -> float:
    assert result.p is not None
    return result.p


def test_one_run_of_few_clients_is_the_textbook_t_interval() -> None:
    values = [0.1, 0.4, 0.35, 0.2, 0.0, 0.3]
    result = interval(values, [7] * 6)
    assert bounds(result) == pytest.approx(
        stats.t.interval(0.95, 5, loc=np.mean(values), scale=stats.sem(values)), rel=1e-12
    )
    assert probability(result) == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue, rel=1e-10)


def test_several_equal_runs_are_a_t_interval_of_run_means() -> None:
    runs = [[0.1, 0.3], [0.2, 0.5], [0.0, 0.4]]
    values, seeds = list(itertools.chain(*runs)), [0, 0, 1, 1, 2, 2]
    means = [float(np.mean(run)) for run in runs]
    result = interval(values, seeds)
    assert result.mean == pytest.approx(np.mean(values))
    assert bounds(result) == pytest.approx(
        stats.t.interval(0.95, 2, loc=np.mean(means), scale=stats.sem(means)), rel=1e-12
    )
    assert probability(result) == pytest.approx(stats.ttest_1samp(means, 0, alternative="greater").pvalue, rel=1e-10)


def test_unequal_runs_use_the_cluster_robust_error_written_out() -> None:
    values, seeds = [1.0, 2.0, 4.0, 3.0, 3.5, 0.5], ["a", "a", "a", "b", "b", "c"]
    mean = sum(values) / 6
    total = 0.0
    for seed in "abc":
        total += sum(value - mean for value, own in zip(values, seeds, strict=True) if own == seed) ** 2
    error = math.sqrt(3 / 2 * total) / 6
    low, high = bounds(interval(values, seeds))
    assert high - mean == pytest.approx(stats.t.ppf(0.975, 2) * error, rel=1e-10)
    assert mean - low == pytest.approx(high - mean, rel=1e-12)


def test_many_blocks_agree_with_an_independent_bootstrap() -> None:
    values = np.random.default_rng(5).exponential(size=12)
    mean, error = values.mean(), stats.sem(values)
    other = np.random.default_rng(6)
    ts = []
    for _ in range(20_000):
        again = other.choice(values, size=12)
        ts.append((again.mean() - mean) / max(again.std(ddof=1) / math.sqrt(12), error / 3))
    below, above = np.quantile(ts, [0.025, 0.975])
    low, high = bounds(interval(list(values), [0] * 12))
    assert low == pytest.approx(mean - above * error, abs=0.05 * error)
    assert high == pytest.approx(mean - below * error, abs=0.25 * error)


def test_bootstrap_p_agrees_with_the_lower_bound() -> None:
    for shift in (0.0, 0.2, 0.4, 0.6):
        values = list(np.random.default_rng(3).normal(shift, 1.0, size=14))
        result = interval(values, [0] * 14)
        assert (bounds(result)[0] > 0) == (probability(result) < 0.025)


def test_far_beyond_the_resamples_the_p_value_keeps_falling() -> None:
    near = [1.0 + 0.3 * math.sin(k) for k in range(20)]
    far = [100.0 + 0.3 * math.sin(k) for k in range(20)]
    assert probability(interval(far, [0] * 20)) < probability(interval(near, [0] * 20)) < 1e-4


def test_one_unit_has_no_interval() -> None:
    assert interval([0.3], [0]) == Interval(mean=0.3, low=None, high=None, n=1, p=None)


def test_equal_differences_have_no_width_and_a_sign_test() -> None:
    assert interval([0.5] * 8, [0, 1] * 4) == Interval(mean=0.5, low=0.5, high=0.5, n=8, p=1 / 256)
    assert interval([0.0] * 8, [0, 1] * 4).p == 1.0
    assert interval([-0.5] * 12, list(range(12))).p == 1.0


def test_runs_of_equal_means_fall_back_to_the_clients() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 0.2, 0.8]
    low, high = bounds(interval(values, [0, 0, 1, 1, 2, 2]))
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 5, loc=0.5, scale=stats.sem(values)))


@pytest.mark.parametrize(
    ("values", "seeds"), [([], []), ([1.0], [0, 1]), ([math.nan, 1.0], [0, 0]), ([math.inf, 1.0], [0, 1])]
)
def test_bad_units_are_refused(values: list[float], seeds: list[int]) -> None:
    with pytest.raises(BadInput, match=r"expected .* got "):
        interval(values, seeds)


@given(st.lists(st.tuples(finite, st.integers(0, 12)), min_size=2, max_size=24), st.randoms(use_true_random=False))
def test_order_of_units_and_names_of_seeds_do_not_matter(units: list[tuple[float, int]], order: random.Random) -> None:
    shuffled = order.sample(units, len(units))
    first = interval([v for v, _ in units], [s for _, s in units], resamples=99)
    second = interval([v for v, _ in shuffled], [f"seed-{s}" for _, s in shuffled], resamples=99)
    assert first == second
    low, high = bounds(first)
    assert low <= first.mean <= high
    assert 0 <= probability(first) <= 1


@given(st.lists(finite, min_size=2, max_size=9), st.sampled_from([0.5, 2.0, 8.0]))
def test_intervals_scale_with_their_values(values: list[float], factor: float) -> None:
    plain, scaled = (interval(values, [0] * len(values)), interval([factor * v for v in values], [0] * len(values)))
    assert bounds(scaled) == pytest.approx([factor * bound for bound in bounds(plain)], rel=1e-9, abs=1e-9)


def covered(draw: Callable[[np.random.Generator], np.ndarray], truth: float, *, times: int = 1500) -> float:
    """Share of simulated audits whose interval holds the truth; draw gives units [runs, clients]."""
    generator = np.random.default_rng(20)
    hits = 0
    for _ in range(times):
        units = draw(generator)
        seeds = np.repeat(np.arange(units.shape[0]), units.shape[1])
        low, high = bounds(interval(units.ravel().tolist(), seeds.tolist(), resamples=999))
        hits += low <= truth <= high
    return hits / times


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7])
@pytest.mark.parametrize(("runs", "clients"), [(1, 6), (1, 12), (2, 5), (3, 2), (3, 10), (5, 4), (12, 2)])
def test_coverage_is_95_percent_whatever_the_correlation_inside_a_run(
    runs: int, clients: int, correlation: float
) -> None:
    # With one run the effect that its clients share cannot be seen: the interval is for this run.
    shared = 0.0 if runs == 1 else math.sqrt(correlation)

    def draw(generator: np.random.Generator) -> np.ndarray:
        own = generator.standard_normal((runs, clients))
        return shared * generator.standard_normal((runs, 1)) + math.sqrt(1 - correlation) * own

    assert 0.93 <= covered(draw, 0.0) <= 0.97


@pytest.mark.parametrize(
    ("name", "truth"), [("skewed", 1.0), ("mirrored", -1.0), ("shares", 0.8), ("skewed runs", 1.0)]
)
def test_coverage_holds_for_skewed_and_coarse_scores(name: str, truth: float) -> None:
    draws: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
        "skewed": lambda generator: generator.exponential(size=(1, 16)),
        "mirrored": lambda generator: -generator.exponential(size=(1, 16)),
        "shares": lambda generator: generator.binomial(20, 0.8, size=(1, 12)) / 20,
        "skewed runs": lambda generator: generator.exponential(size=(15, 2)),
    }
    assert 0.93 <= covered(draws[name], truth) <= 0.97


def test_taking_correlated_clients_for_independent_would_not_cover() -> None:
    def draw(generator: np.random.Generator) -> np.ndarray:
        values = 0.6 * generator.standard_normal((3, 1)) + 0.8 * generator.standard_normal((3, 10))
        return values.reshape(1, 30)

    assert covered(draw, 0.0, times=400) < 0.85


def test_unequal_runs_cover_nearly_as_well() -> None:
    generator, hits = np.random.default_rng(4), 0
    seeds = [0] * 4 + [1] * 4 + [2] * 3 + [3] * 4 + [4] * 2
    for _ in range(1500):
        shared = generator.standard_normal(5)
        values = [0.5 * shared[seed] + generator.standard_normal() for seed in seeds]
        low, high = bounds(interval(values, seeds))
        hits += low <= 0 <= high
    assert 0.93 <= hits / 1500 <= 0.97


def test_holm_on_a_known_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(ps)
def test_holm_rejects_exactly_what_its_step_down_procedure_rejects(values: list[float | None]) -> None:
    adjusted = holm(values)
    known = sorted((p, index) for index, p in enumerate(values) if p is not None)
    rejected = set()
    for rank, (p, index) in enumerate(known):
        if p * (len(known) - rank) > 0.05:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(adjusted) if p is not None and p <= 0.05} == rejected
    assert [p is None for p in adjusted] == [p is None for p in values]


def test_differences_are_signed_so_that_larger_leaks_more() -> None:
    assert paired([0.9, 0.8], [0.5, 0.6], down=False) == pytest.approx([0.4, 0.2])
    assert paired([0.1, 0.2], [0.5, 0.6], down=True) == pytest.approx([0.4, 0.4])


@pytest.mark.parametrize("looks", [1, 20])
def test_a_leak_of_the_stated_size_is_seen_in_four_of_five_audits(looks: int) -> None:
    margin, level, seen, least = 0.05, 0.05, 0, 0.0
    generator = np.random.default_rng(8)
    noise = generator.normal(0.0, 0.1, size=(1000, 8))
    sizes = [smallest_seen(interval(list(n), [0] * 8), margin=margin, level=level, comparisons=looks) for n in noise]
    least = float(np.median([size for size in sizes if size is not None]))
    for units in generator.normal(least, 0.1, size=(1000, 8)):
        found = interval(list(units), [0] * 8)
        seen += bounds(found)[0] > margin and probability(found) <= level / looks
    assert 0.74 < seen / 1000 < 0.88


def test_where_nothing_varies_the_smallest_leak_is_the_margin_and_one_unit_knows_none() -> None:
    assert smallest_seen(interval([0.0] * 6, [0] * 6), margin=0.05, level=0.05, comparisons=3) == 0.05
    assert smallest_seen(interval([0.0] * 6, [0] * 6), margin=0.05, level=0.05, comparisons=4) is None
    assert smallest_seen(interval([0.0], [0]), margin=0.05, level=0.05, comparisons=3) is None


def test_few_clients_are_permuted_in_all_ways_and_many_by_three_draws_of_the_run() -> None:
    assert drawn_permutations(0, [4, 2]) == [{2: 4, 4: 2}] and drawn_permutations(0, [1]) == []
    assert len(drawn_permutations(5, range(4))) == 23 and {0: 0, 1: 1, 2: 2, 3: 3} not in drawn_permutations(
        5, range(4)
    )
    drawn = drawn_permutations(7, range(6))
    assert len(drawn) == 3 and all(sorted(one.values()) == list(range(6)) for one in drawn)
    assert drawn == drawn_permutations(7, reversed(range(6))) != drawn_permutations(8, range(6))
