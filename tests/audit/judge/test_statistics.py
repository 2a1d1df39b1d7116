"""Intervals and tests against independent libraries, slow versions and simulation; Holm against its definition."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from fedxray.audit.judge import statistics as judge_statistics
from fedxray.audit.judge.statistics import (
    AUTO_LOOKS,
    Interval,
    SplitUnit,
    drawn_permutations,
    holm,
    interval,
    joint_assignments,
    over_records,
    paired,
    seeds_for_exact,
    seeds_to_reassure,
    seeds_to_show,
    share_interval,
    smallest_seen,
    spending,
    split_facts,
    split_tests,
    standardised,
    swap_error,
    swap_p,
    swapped_means,
    upper_bound,
)
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


def test_the_parts_of_a_bootstrap_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(np.random.default_rng(5).exponential(size=13))
    whole = interval(values, [0] * 13)
    monkeypatch.setattr(judge_statistics, "PART", 1001)
    assert interval(values, [0] * 13) == whole


def test_p_is_that_of_student_whatever_the_shown_interval() -> None:
    values = list(np.random.default_rng(3).normal(0.4, 1.0, size=14))
    expected = stats.ttest_1samp(values, 0, alternative="greater").pvalue
    assert probability(interval(values, list(range(14)))) == pytest.approx(expected, rel=1e-10)


def test_one_unit_has_no_interval() -> None:
    assert interval([0.3], [0]) == Interval(mean=0.3, low=None, high=None, n=1, p=None)


def test_equal_differences_have_no_p_and_the_error_of_their_records() -> None:
    assert interval([0.5] * 8, [0, 1] * 4) == Interval(mean=0.5, low=0.5, high=0.5, n=8, p=None)
    least = interval([0.5] * 8, [0, 1, 2, 3] * 2, least_error=0.1)
    assert bounds(least) == pytest.approx(stats.t.interval(0.95, 3, loc=0.5, scale=0.1))
    assert probability(least) == pytest.approx(stats.t.sf(5.0, 3))


def test_runs_of_equal_means_have_at_least_the_error_of_their_records() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 0.2, 0.8]
    assert interval(values, [0, 0, 1, 1, 2, 2]).p is None
    low, high = bounds(interval(values, [0, 0, 1, 1, 2, 2], least_error=0.05))
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, loc=0.5, scale=0.05))
    wide = interval([0.0, 0.5, 1.0], [0, 1, 2], least_error=0.01)
    assert bounds(wide) == bounds(interval([0.0, 0.5, 1.0], [0, 1, 2]))


def test_a_share_equal_in_all_units_is_counted() -> None:
    low, high = share_interval(1.0, 6)
    assert (low, high) == (pytest.approx(0.5407, abs=1e-4), 1.0)
    assert share_interval(0.0, 6) == (0.0, pytest.approx(1 - 0.5407, abs=1e-4))
    expected = stats.binomtest(3, 6).proportion_ci(method="exact")
    assert share_interval(0.5, 6) == pytest.approx((expected.low, expected.high))


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
    assert first.p is None or 0 <= first.p <= 1


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


# Split test


def slow_split_p(units: list[tuple[list[float], list[bool], list[int]]]) -> float:
    """Every labelling of every unit, pair by pair."""

    def auc(scores: list[float], member: tuple[bool, ...], stratum: list[int]) -> float:
        won, pairs = 0.0, 0
        for i, j in itertools.permutations(range(len(scores)), 2):
            if member[i] and not member[j] and stratum[i] == stratum[j]:
                won += 1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
                pairs += 1
        return won / pairs

    def labellings(member: list[bool], stratum: list[int]) -> list[tuple[bool, ...]]:
        counts = {name: sum(m for m, own in zip(member, stratum, strict=True) if own == name) for name in stratum}
        every = itertools.product([False, True], repeat=len(member))
        return [
            one
            for one in every
            if all(sum(m for m, own in zip(one, stratum, strict=True) if own == k) == n for k, n in counts.items())
        ]

    observed = sum(auc(s, tuple(m), c) for s, m, c in units)
    tables = [[auc(s, one, c) for one in labellings(m, c)] for s, m, c in units]
    sums = [sum(picked) for picked in itertools.product(*tables)]
    return sum(one >= observed - 1e-9 for one in sums) / len(sums)


def split_unit(seed: int, scores: list[float], member: list[bool], stratum: list[int] | None = None) -> SplitUnit:
    draws = {"scores": scores, "member": member} | ({} if stratum is None else {"stratum": stratum})
    return SplitUnit(seed=seed, client=0, split=split_facts(scores, member, stratum) or {}, draws=draws)


def test_the_split_test_counts_labellings() -> None:
    first = ([0.9, 0.8, 0.3, 0.3, 0.1, 0.2], [True, True, True, False, False, False])
    second = ([0.5, 0.4, 0.7, 0.1, 0.4], [True, True, False, False, False])
    units = [split_unit(0, *first), split_unit(1, *second)]
    expected = slow_split_p([(*first, [0] * 6), (*second, [0] * 5)])
    assert split_tests([units], 7)[0] == pytest.approx(expected, abs=0.012)
    classes = [0, 0, 1, 1, 1, 0]
    stratified = split_unit(0, *first, classes)
    assert split_tests([[stratified]], 7)[0] == pytest.approx(slow_split_p([(*first, classes)]), abs=0.02)


def test_the_split_test_of_one_untied_unit_is_mann_and_whitney() -> None:
    generator = np.random.default_rng(2)
    members, others = generator.normal(0.4, 1, 20), generator.normal(0, 1, 8)
    unit = split_unit(0, [*members, *others], [True] * 20 + [False] * 8)
    expected = stats.mannwhitneyu(members, others, alternative="greater", method="exact")
    assert unit.split["u"] == expected.statistic
    assert split_tests([[unit]], 1)[0] == pytest.approx(expected.pvalue, abs=0.015)


def test_facts_of_a_split_hold_the_exact_variance() -> None:
    scores, member = [1.0, 2.0, 2.0, 3.0, 0.0, 2.0], [True, False, True, True, False, False]
    facts = split_facts(scores, member)
    assert facts is not None and (facts["n1"], facts["n0"], facts["ties"]) == (3, 3, [3])
    aucs = []
    for picked in itertools.combinations(range(6), 3):
        other = split_facts(scores, [k in picked for k in range(6)])
        assert other is not None
        aucs.append(other["u"] / 9)
    assert facts["variance"] == pytest.approx(np.var(aucs))
    by_class = split_facts(scores, member, [0, 0, 0, 1, 1, 1])
    assert by_class is not None and (by_class["n1"], by_class["n0"]) == ([2, 1], [1, 2])
    assert split_facts(scores, [True] * 6) is None and split_facts(scores, member, list(range(6))) is None


def test_p_of_a_split_is_the_same_to_the_bit_and_the_public_numbers_come_near() -> None:
    generator = np.random.default_rng(4)
    rows = []
    for shift in (0.0, 0.3, 0.8):
        units = []
        for seed in range(3):
            scores = [*generator.normal(shift, 1, 40), *generator.normal(0, 1, 10)]
            units.append(split_unit(seed, scores, [True] * 40 + [False] * 10))
        rows.append(units)
    exact = split_tests(rows, 5)
    assert split_tests(rows, 5) == exact and split_tests([rows[1]], 5) == [exact[1]]
    public = split_tests([[SplitUnit(seed=u.seed, client=u.client, split=u.split) for u in units] for units in rows], 5)
    assert [p or 0 for p in public] == pytest.approx([p or 0 for p in exact], abs=0.01)
    assert split_tests([[]], 5) == [None]


def test_a_clear_split_goes_below_the_draws_unless_ties_make_the_tail_heavy() -> None:
    clear = split_unit(0, [*range(50, 100), *range(50)], [True] * 50 + [False] * 50)
    assert (split_tests([[clear]], 0)[0] or 1) < 1e-12
    # 20 rare records of 1000, 9 of them among 100 members: exactly about 1e-4, the normal tail would say 1e-7.
    scores = [1.0] * 9 + [0.0] * 91 + [1.0] * 11 + [0.0] * 889
    rare = split_unit(0, scores, [True] * 100 + [False] * 900)
    assert (split_tests([[rare]], 0)[0] or 0) >= 1e-4


def test_large_units_are_drawn_as_normal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(9)
    scores = [*generator.normal(0.15, 1, 200), *generator.normal(0, 1, 100)]
    unit = split_unit(0, scores, [True] * 200 + [False] * 100)
    exact = split_tests([[unit]], 0)[0]
    monkeypatch.setattr(judge_statistics, "MOST_DRAWN", 100)
    assert split_tests([[unit]], 0)[0] == pytest.approx(exact, abs=0.015)


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(BadInput, match="finite"):
        split_facts([math.nan, 1.0], [True, False])


# Swap test


def slow_swap_p(runs: list[np.ndarray]) -> float:
    """Every joint permutation of all runs, runs given as [client, messages of]."""
    orders = [list(itertools.permutations(range(len(run)))) for run in runs]
    observed = sum(run.trace() for run in runs)
    sums = [
        sum(run[c, order[c]] for run, order in zip(runs, joint, strict=True) for c in range(len(run)))
        for joint in itertools.product(*orders)
    ]
    return sum(one >= observed - 1e-9 for one in sums) / len(sums)


def table(runs: list[np.ndarray]) -> dict[int, dict[int, dict[int, float]]]:
    return {
        seed: {c: {m: float(run[c, m]) for m in range(len(run))} for c in range(len(run))}
        for seed, run in enumerate(runs)
    }


@given(st.integers(0, 10_000), st.sampled_from([(2, 3), (3, 2), (4, 1), (2, 5)]))
def test_the_swap_test_counts_joint_permutations(draw: int, design: tuple[int, int]) -> None:
    clients, seeds = design
    generator = np.random.default_rng(draw)
    runs = [generator.normal(size=(clients, clients)).round(1) for _ in range(seeds)]
    layout = {seed: tuple(range(clients)) for seed in range(seeds)}
    joint = joint_assignments(layout, 0)
    assert len(joint) == math.factorial(clients) ** seeds
    means = swapped_means(table(runs), layout, joint)
    assert means is not None and swap_p(means) == pytest.approx(slow_swap_p(runs))


def test_main_effects_of_records_and_messages_cancel() -> None:
    run = np.array([[0.9], [0.5], [0.1]]) + np.array([[0.3, 0.0, -0.3]])
    layout = {0: (0, 1, 2)}
    means = swapped_means(table([run]), layout, joint_assignments(layout, 0))
    assert means is not None and swap_p(means) == 1.0 and not standardised(means).any()


def test_many_joint_permutations_are_drawn_with_the_true_one_first() -> None:
    layout = {seed: (0, 1, 2, 3) for seed in range(3)}
    joint = joint_assignments(layout, 0)
    assert joint.shape == (10_000, 3) and not joint[0].any()
    assert (joint == joint_assignments(layout, 0)).all() and (joint[1:].max(axis=0) == 23).all()


def test_more_than_four_clients_use_three_drawn_permutations() -> None:
    clients = (1, 2, 4, 5, 7, 9)
    drawn = drawn_permutations(3, clients)
    assert len(drawn) == 3 and drawn == drawn_permutations(3, clients[::-1]) != drawn_permutations(4, clients)
    assert all(sorted(order) == sorted(order.values()) == list(clients) for order in drawn)
    assert drawn_permutations(0, [4, 2]) == [{2: 4, 4: 2}] and drawn_permutations(0, [1]) == []
    assert len(drawn_permutations(5, range(4))) == 23 and {k: k for k in range(4)} not in drawn_permutations(
        5, range(4)
    )
    generator = np.random.default_rng(0)
    scores = {client: {owner: float(generator.normal()) for owner in clients} for client in clients}
    joint = joint_assignments({3: clients}, 0)
    means = swapped_means({3: scores}, {3: clients}, joint)
    by_hand = [sum(scores[c][order[c]] for c in clients) / 6 for order in ({c: c for c in clients}, *drawn)]
    assert means is not None and means.tolist() == pytest.approx(by_hand)


def test_a_swap_test_reads_the_assignments_that_are_tried_and_no_others() -> None:
    asked: list[int] = []

    class Row(dict[int, float]):
        def get(self, owner: int, missing: Any = None) -> Any:
            asked.append(owner)
            return super().get(owner, missing)

    clients = tuple(range(40))
    scores: Any = {3: {client: Row(dict.fromkeys(clients, 0.5)) for client in clients}}
    means = swapped_means(scores, {3: clients}, joint_assignments({3: clients}, 0))
    assert means is not None and means.tolist() == [0.5] * 4 and len(asked) == 4 * 40


def test_only_attacked_clients_count_and_a_unit_without_a_swap_is_left_out() -> None:
    clients = (0, 1, 2)
    scores = {0: {0: 1.0, 1: 0.0, 2: 0.0}, 2: {0: 0.2, 1: 0.1, 2: 0.9}}
    joint = joint_assignments({5: clients}, 0)
    means = swapped_means({5: scores}, {5: clients}, joint)
    assert means is not None and means[0] == pytest.approx(0.95) and len(means) == 6
    del scores[2][1]
    kept = swapped_means({5: scores}, {5: clients}, joint)
    assert kept is not None and kept[0] == 1.0
    assert swapped_means({5: {0: {0: 1.0}}}, {5: clients}, joint) is None


def test_other_clients_messages_show_how_much_an_attack_varies() -> None:
    runs = [np.random.default_rng(k).normal(size=(3, 3)) for k in range(2)]
    total, count = 0.0, 0
    for client in range(3):
        own = [run[client, m] for run in runs for m in range(3) if m != client]
        total += sum((value - np.mean(own)) ** 2 for value in own)
        count += len(own) - 1
    assert swap_error(table(runs)) == pytest.approx(math.sqrt(total / count / 6))
    assert swap_error({0: {0: {0: 1.0, 1: 0.5}}}) == 0.0 and swap_error({}) == 0.0


@pytest.mark.parametrize("clients", [3, 6])
def test_the_swap_test_is_exact_without_a_leak(clients: int) -> None:
    generator, small, times = np.random.default_rng(12), 0, 1500
    for number in range(times):
        layout = {seed: tuple(range(clients)) for seed in (2 * number, 2 * number + 1)}
        runs = {
            seed: generator.normal(size=(clients, 1))
            + generator.normal(size=clients)
            + generator.normal(size=(clients,) * 2)
            for seed in layout
        }
        scores = {s: {c: dict(enumerate(run[c])) for c in range(clients)} for s, run in runs.items()}
        means = swapped_means(scores, layout, joint_assignments(layout, 0))
        assert means is not None
        small += swap_p(means) <= 0.125
    assert abs(small / times - (0.125 if clients == 6 else 4 / 36)) < 0.025


# Smallest leak, more seeds, looks


def test_a_leak_of_the_stated_size_is_seen_in_four_of_five_audits() -> None:
    generator, runs, level = np.random.default_rng(8), 5, 0.95
    size = smallest_seen(0.1 / math.sqrt(runs), runs, level)
    seen = sum(
        probability(interval(list(units), list(range(runs)))) <= 1 - level
        for units in generator.normal(size, 0.1, size=(3000, runs))
    )
    assert 0.78 < seen / 3000 < 0.82
    assert smallest_seen(0.1, runs, 0.99) > smallest_seen(0.1, runs, level) > smallest_seen(0.1, 9, level)


def test_the_upper_bound_is_students() -> None:
    assert upper_bound(0.1, 0.02, 4, 0.975) == pytest.approx(0.1 + stats.t.ppf(0.975, 3) * 0.02)


def test_more_seeds_are_the_fewest_that_settle() -> None:
    more = seeds_to_reassure(0.0, 0.03, 3, 0.05, 0.975)
    assert more is not None
    for total, settled in ((3 + more, True), (2 + more, False)):
        error = 0.03 * math.sqrt(3 / total)
        bounded = upper_bound(0.0, error, total, 0.975) <= 0.05 and smallest_seen(error, total, 0.975) <= 0.1
        assert bounded is settled
    assert seeds_to_reassure(0.049, 0.03, 3, 0.05, 0.975) is None
    shown = seeds_to_show(0.1, 0.05, 3, 0.01)
    assert shown is not None
    ps = [stats.t.sf(0.1 / (0.05 * math.sqrt(3 / total)), total - 1) for total in (2 + shown, 3 + shown)]
    assert ps[0] > 0.01 >= ps[1]
    assert seeds_to_show(0.001, 0.05, 3, 0.01) is None
    assert seeds_for_exact(1 / 8, 3, 0.033, 1 / 8) == 2  # 2^5 = 32 assignments of two clients
    assert (
        seeds_for_exact(0.05, 3, 0.005, None) == math.ceil(3 * (stats.norm.ppf(0.005) / stats.norm.ppf(0.05)) ** 2) - 3
    )
    assert seeds_for_exact(0.7, 3, 0.01, None) is None


def test_looks_never_spend_more_than_five_percent() -> None:
    looks: list[dict[str, float]] = []
    for expected in (0.04, 0.005, 0.0025):
        assert spending(looks) == pytest.approx(expected)
        looks.append({"seeds": 3, "spent": spending(looks)})
    auto: list[dict[str, float]] = []
    for expected in (0.02, 0.01, 0.01, 0.01, 0.0):
        assert spending(auto, auto=True) == pytest.approx(expected, abs=1e-12)
        auto.append({"seeds": (*AUTO_LOOKS, 30)[len(auto)], "spent": spending(auto, auto=True)})
    extended = [{"seeds": 3, "spent": 0.02}, {"seeds": 3, "spent": 0.015}]
    assert spending(extended, auto=True) == pytest.approx(0.0075)


def test_records_of_a_recording_are_delongs_interval() -> None:
    members, others = np.array([0.9, 0.8, 1.0, 0.7]), np.array([0.85, 0.95, 0.75])
    found = over_records([[members, others]])
    error = math.sqrt(members.var(ddof=1) / 4 + others.var(ddof=1) / 3)
    assert bounds(found) == pytest.approx(stats.t.interval(0.95, 2, loc=members.mean(), scale=error))
    assert over_records([[np.array([1.0, math.nan])]]).low is None
    assert over_records([[np.ones(5)]]).p is None


def test_a_labelling_that_is_the_same_in_all_runs_is_redrawn_once() -> None:
    """Five equal runs of fixed members show no more than one of them."""
    scores, member = [3.0, 2.0, 1.5, 1.0, 0.5, 0.2, 0.1, 0.0], [1, 1, 1, 0, 1, 0, 0, 0]
    facts = split_facts(scores, member)
    assert facts is not None
    draws = {"scores": scores, "member": member}

    def p_of(runs: int, fixed: bool) -> float:
        split = {**facts, "drawn": not fixed}
        p = split_tests([[SplitUnit(seed=seed, client=0, split=split, draws=draws) for seed in range(runs)]], 7)[0]
        assert p is not None
        return p

    assert p_of(5, fixed=True) == pytest.approx(p_of(1, fixed=True), abs=0.01)
    assert p_of(5, fixed=False) < p_of(1, fixed=False) / 3


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9))
def test_sign_flips_agree_with_trying_them_one_by_one(gains: list[float]) -> None:
    patterns = [math.fsum(signs) for signs in itertools.product(*((gain, -gain) for gain in gains))]
    assert judge_statistics.flip_test(gains) == pytest.approx(
        sum(total >= math.fsum(gains) - 1e-9 for total in patterns) / len(patterns)
    )


def test_sign_flips_know_coins_that_t_does_not() -> None:
    assert judge_statistics.flip_test([0.3] * 10) == 0.5**10
    assert judge_statistics.flip_test([0.3] * 9 + [-0.3]) == pytest.approx(11 / 1024)
    assert judge_statistics.run_test(0.24, 0.06, 10) < 0.002 < 11 / 1024
    many = judge_statistics.flip_test([0.3] * 18 + [-0.3] * 2)  # 20 runs: drawn
    assert many == pytest.approx(211 / 2**20, abs=2e-3) and many == judge_statistics.flip_test([0.3] * 18 + [-0.3] * 2)
