"""Adjusted p-values: against Holm, a slow Westfall-Young, hand-made shares, and by simulation without any leak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.family import RowTests, adjust, exactly, layouts_of
from fedxray.audit.judge.statistics import holm, swap_p

ps = st.lists(st.floats(0.0001, 1), min_size=1, max_size=6)


def split_row(p: float | None) -> RowTests:
    return RowTests(split=p, is_split=True)


def adjusted(rows: list[RowTests], level: float = 0.05) -> list[float | None]:
    return [row.p_adjusted for row in adjust(rows, level=level)]


@given(ps)
def test_split_rows_alone_are_holm(values: list[float]) -> None:
    assert adjusted([split_row(p) for p in values]) == pytest.approx(holm(values))


@given(ps)
def test_run_rows_alone_are_holm(values: list[float]) -> None:
    found = adjust([RowTests(runs=p) for p in values], level=0.05)
    assert [row.p_adjusted for row in found] == pytest.approx(holm(values))
    assert {row.test for row in found} == {"runs"} and found[0].rows == len(values)


def permuted(generator: np.random.Generator, rows: int, joint: int, shift: float = 0.0) -> list[np.ndarray]:
    """Means of correlated rows under every assignment, first the true one."""
    shared = generator.normal(size=joint)
    means = [0.7 * shared + 0.7 * generator.normal(size=joint) for _ in range(rows)]
    for row in means:
        row[0] += shift
    return means


def slow_westfall_young(means: list[np.ndarray]) -> list[float]:
    scores = [(row - row.mean()) / row.std() for row in means]
    order = sorted(range(len(means)), key=lambda k: -scores[k][0])
    found, largest = [0.0] * len(means), 0.0
    for step, index in enumerate(order):
        left = order[step:]
        hits = sum(max(scores[k][pi] for k in left) >= scores[index][0] - 1e-9 for pi in range(len(means[0])))
        largest = max(largest, hits / len(means[0]))
        found[index] = largest
    return found


def test_the_swap_test_is_adjusted_by_itself_where_the_run_test_is_faster() -> None:
    means = permuted(np.random.default_rng(1), 3, 400, shift=6.0)
    rows = [RowTests(swaps=row, runs=1e-9) for row in means]
    found = adjust(rows, level=0.05)
    assert {row.test for row in found} == {"runs"} and all((row.p_adjusted or 0.0) < 1e-7 for row in found)
    for row, tests in zip(found, rows, strict=True):
        exact = exactly(row, tests)
        assert (exact.test, exact.p) == ("swap", swap_p(tests.swaps))
        assert exact.p_adjusted == row.p_exact == pytest.approx(1 / 400 / (2 / 3))
    (alone,) = adjust([RowTests(runs=0.01)], level=0.05)
    assert exactly(alone, RowTests(runs=0.01)) == alone and alone.p_exact is None
    (split,) = adjust([split_row(0.01)], level=0.05)
    assert split.p_exact == split.p_adjusted and exactly(split, split_row(0.01)) == split


def test_rows_without_a_usable_test_take_no_share() -> None:
    single = [split_row(0.02), RowTests(), RowTests(swaps=np.arange(6.0)[::-1])]  # 1/6 never reaches 0.05
    found = adjust(single, level=0.05)
    assert [row.p_adjusted for row in found] == [0.02, None, None] and {row.rows for row in found} == {1}
    # Three runs cannot decide, so the swap test gets the whole share; with ten they divide it.
    means = permuted(np.random.default_rng(1), 1, 400, shift=6.0)[0]
    for runs, p in ((3, 1 / 400), (10, 1.5 / 400)):
        (row,) = adjust([RowTests(runs=0.5, finest_runs=0.5**runs, swaps=means)], level=0.05)
        assert row.p_adjusted == pytest.approx(p) and "runs" in row.factors


@pytest.mark.parametrize("draw", range(5))
def test_swaps_of_one_run_are_westfall_and_young(draw: int) -> None:
    means = permuted(np.random.default_rng(draw), 4, 200, shift=2.0)
    found = adjusted([RowTests(swaps=row) for row in means])
    assert found == pytest.approx([min(1.0, p) for p in slow_westfall_young(means)])


def test_swap_and_run_tests_share_two_thirds_to_one() -> None:
    means = permuted(np.random.default_rng(1), 1, 216, shift=3.0)[0]
    (found,) = adjust([RowTests(swaps=means, runs=0.9)], level=0.05)
    assert (found.test, found.p) == ("swap", swap_p(means))
    assert found.p_adjusted == pytest.approx(1.5 * swap_p(means))
    (other,) = adjust([RowTests(swaps=means[::-1].copy() * 0, runs=0.01)], level=0.05)
    assert (other.test, other.p_adjusted) == ("runs", pytest.approx(0.03))


@pytest.mark.parametrize(("assignments", "level", "factor"), [(36, 0.05, 1.5), (32, 0.04, 32 * 0.04), (8, 0.05, None)])
def test_few_assignments_get_as_much_as_they_need_or_leave_it_to_the_runs(
    assignments: int, level: float, factor: float | None
) -> None:
    means = np.zeros(assignments)
    means[0] = 1.0
    (found,) = adjust([RowTests(swaps=means, runs=0.5)], level=level)
    if factor is None:
        assert (found.test, found.p_adjusted) == ("runs", 0.5)  # all of the level
    else:
        assert (found.test, found.p_adjusted) == ("swap", pytest.approx(factor / assignments))
        assert (found.p_adjusted or 1) <= level


def test_a_row_that_one_test_rejects_no_longer_counts_for_the_other() -> None:
    generator = np.random.default_rng(3)
    leaking, quiet = permuted(generator, 2, 2000)
    leaking[0] = 50.0
    rows = [RowTests(swaps=leaking, runs=0.9), RowTests(swaps=quiet, runs=0.012)]
    first, second = adjust(rows, level=0.05)
    assert first.test == "swap" and second.test == "runs"
    assert second.p_adjusted == pytest.approx(3 * 0.012)  # one row is left; with two it would be 6 * 0.012


def test_groups_get_shares_by_their_rows_and_pass_them_on() -> None:
    rows = [split_row(0.001), split_row(0.02), RowTests(runs=0.02), RowTests(runs=0.9)]
    found = adjust(rows, level=0.05)
    assert [row.share for row in found] == [0.5, 0.5, 1.0, 1.0] and [row.group for row in found][::2] == [
        "split",
        "swap and runs",
    ]
    assert [row.p_adjusted for row in found] == pytest.approx([0.004, 0.04, 0.04, 0.9])  # split rows all go
    weaker = adjust([split_row(0.001), split_row(0.03), *rows[2:]], level=0.05)
    assert [row.p_adjusted for row in weaker] == pytest.approx([0.004, 0.06, 0.08, 1.0])
    other = adjust([split_row(0.03), RowTests(runs=0.001)], level=0.05)
    assert [row.p_adjusted for row in other] == pytest.approx([0.03, 0.002])  # the run group passes its share on


def test_a_row_without_a_test_has_no_p() -> None:
    found = adjust([split_row(None), RowTests()], level=0.05)
    assert [row.p_adjusted for row in found] == [None, None] and adjust([], level=0.05) == []


@given(ps, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(values: list[float], order: object) -> None:
    generator = np.random.default_rng(len(values))
    rows = [
        RowTests(swaps=means, runs=p) for means, p in zip(permuted(generator, len(values), 50), values, strict=True)
    ]
    rows += [split_row(p) for p in values]
    assert adjusted(rows[::-1]) == pytest.approx(adjusted(rows)[::-1])


@given(ps, st.floats(0.01, 1))
def test_a_smaller_p_never_hurts(values: list[float], factor: float) -> None:
    before = adjusted([RowTests(runs=p) for p in values])
    after = adjusted([RowTests(runs=values[0] * factor), *(RowTests(runs=p) for p in values[1:])])
    assert all((new or 0) <= (old or 0) + 1e-12 for new, old in zip(after, before, strict=True))


def test_rows_join_a_layout_where_they_agree_and_curious_clients_get_their_own() -> None:
    numbers, layouts = layouts_of([{0: (0, 1, 2), 1: (0, 1, 2)}, {1: (0, 1, 2), 2: (0, 1, 2)}, {0: (1, 2)}, {}])
    assert numbers[:3] == [0, 0, 1] and layouts[0] == {seed: (0, 1, 2) for seed in range(3)}


@pytest.mark.parametrize("rows", [1, 8])
def test_without_a_leak_any_row_is_rejected_in_at_most_five_percent(rows: int) -> None:
    generator, times, wrong = np.random.default_rng(6), 600, 0
    for _ in range(times):
        own = permuted(generator, rows, 120)
        runs = generator.uniform(size=rows)
        tests = [RowTests(swaps=means, runs=float(p)) for means, p in zip(own, runs, strict=True)]
        tests += [split_row(float(p)) for p in generator.uniform(size=rows)]
        wrong += any(p is not None and p <= 0.05 for p in adjusted(tests))
    assert wrong / times <= 0.05 + 0.018
