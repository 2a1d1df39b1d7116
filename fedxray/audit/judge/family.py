"""p-values of all primary rows of an audit, adjusted together so that any false "leaks" stays below the level.

Rows with a split test form one group, the others another; each gets the share of the level that it has of the rows, and
a group whose rows are all rejected passes its share on. Rows that no test can decide take no share. Within the first
group Holm's steps are used. In the second the swap test and the run test divide the share, and both step down together:
a row that either test has rejected no longer counts for the other. The swap test is adjusted by Westfall and Young's
maximum over the rows still there, under one joint draw of assignments for all rows, so that more rows of the same runs
cost little.

All weights depend on the design (rows, runs, clients) and never on a score. Why the family-wise error is kept: up to
the first false rejection only rows with a leak were removed, so every row without one is still counted. The run test
divides its part by at least their number, the swap test compares with at least their maximum, and the parts add up to
the level. A group passes its share on only when none of its rows is left to be falsely rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedxray.audit.judge.statistics import Floats, Layout, holm, standardised, swap_p

Test = Literal["split", "swap", "runs"]
SWAP_SHARE, MOST_SWAP_SHARE = 2 / 3, 0.8


@dataclass(frozen=True, kw_only=True)
class RowTests:
    """The tests of one row: p-values, and the means of the swap test under every joint assignment of its layout."""

    split: float | None = None
    runs: float | None = None
    finest_runs: float = 0.0  # the smallest p that the run test can give
    swaps: Floats | None = None  # [joint], first the true assignment
    layout: int = 0  # rows of the same layout share their assignments
    is_split: bool = False  # whether the row is judged by its split test, fixed before any score


@dataclass(frozen=True, kw_only=True)
class Adjusted:
    """The p-value of a row after adjusting, the test that gave it, and the row's place in the family."""

    p: float | None  # of that test, before adjusting
    p_adjusted: float | None
    test: Test | None
    group: Literal["split", "swap and runs"]
    share: float  # of the level that the group has
    rows: int  # of the family
    factors: Mapping[Test, float]  # by which the p of each test is multiplied at the first step
    p_exact: float | None = None  # adjusted p of the split or swap test, where the run test decides more easily


def exactly(row: Adjusted, tests: RowTests) -> Adjusted:
    """Return a row as its split or swap test alone adjusts it, without the help of the run test."""
    if row.test != "runs" or row.p_exact is None or tests.swaps is None:
        return row
    return replace(row, p=swap_p(tests.swaps), p_adjusted=row.p_exact, test="swap")


def adjust(tests: Sequence[RowTests], *, level: float) -> list[Adjusted]:
    """Return every row's adjusted p, which may be compared with `level`.

    A row's swap test is also adjusted by itself (`p_exact`), at the step at which either test removes the row: up to
    the first false rejection every row without a leak is still among those it is compared with.
    """
    able = [index for index, row in enumerate(tests) if _can_decide(row, level)]
    split = [index for index in able if tests[index].is_split]
    rest = [index for index in able if not tests[index].is_split]
    share = len(split) / len(able) if able else 0.0
    first = _by_split([tests[index] for index in split], share)
    second = _by_swaps_and_runs([tests[index] for index in rest], 1 - share, level)
    if split and rest and _all_rejected(first, level):
        second = _by_swaps_and_runs([tests[index] for index in rest], 1.0, level)
    elif split and rest and _all_rejected(second, level):
        first = _by_split([tests[index] for index in split], 1.0)
    placed = dict(zip([*split, *rest], [*first, *second], strict=True))
    return [replace(placed.get(index) or _untested(row), rows=len(able)) for index, row in enumerate(tests)]


def _can_decide(row: RowTests, level: float) -> bool:
    """Return whether the design lets any test of a row reach the level: a single run without swaps has none."""
    if row.is_split:
        return row.split is not None
    return row.runs is not None or (row.swaps is not None and len(row.swaps) * level >= 1)


def _untested(row: RowTests) -> Adjusted:
    """Return the place of a row that no test can decide."""
    group: Literal["split", "swap and runs"] = "split" if row.is_split else "swap and runs"
    return Adjusted(p=None, p_adjusted=None, test=None, group=group, share=0.0, rows=0, factors={})


def _all_rejected(rows: Sequence[Adjusted], level: float) -> bool:
    return all(row.p_adjusted is not None and row.p_adjusted <= level for row in rows)


def _by_split(tests: Sequence[RowTests], share: float) -> list[Adjusted]:
    """Return Holm's adjusted p-values within the group's share."""
    ps = [row.split for row in tests]
    return [
        Adjusted(
            p=p,
            p_adjusted=None if adjusted is None else min(1.0, adjusted / share),
            test=None if p is None else "split",
            group="split",
            share=share,
            rows=len(tests),
            factors={"split": len(tests) / share},
            p_exact=None if adjusted is None else min(1.0, adjusted / share),
        )
        for p, adjusted in zip(ps, holm(ps), strict=True)
    ]


def _by_swaps_and_runs(tests: Sequence[RowTests], share: float, level: float) -> list[Adjusted]:
    """Return the p-values of the joint steps of swap test and run test."""
    usable, parts = _swap_parts(tests, share * level, most=MOST_SWAP_SHARE)
    for_runs = 1 - sum(parts.values())
    finest = [row.finest_runs for row in tests if row.runs is not None]
    if not finest or min(finest) * len(finest) > share * level * for_runs:  # too few runs: the swap test gets all
        usable, parts = _swap_parts(tests, share * level, most=1.0)
        for_runs = 0.0
    weights = {layout: share * part for layout, part in parts.items()}
    scores = {
        index: standardised(row.swaps) for index, row in enumerate(tests) if row.swaps is not None and usable[index]
    }
    run_ps = {index: row.runs for index, row in enumerate(tests) if row.runs is not None and for_runs}
    left, largest = set(scores) | set(run_ps), 0.0
    steps: dict[int, tuple[str, float, float | None]] = {}
    while left:
        stepped = {
            (index, "swap"): p / weights[tests[index].layout] for index, p in _against_largest(scores, tests, left)
        }
        among = [index for index in left if index in run_ps]
        stepped |= {(index, "runs"): run_ps[index] * len(among) / (share * for_runs) for index in among}
        (chosen, test), q = min(stepped.items(), key=lambda step: (step[1], step[0]))
        largest = max(largest, min(1.0, q))
        swapped = stepped.get((chosen, "swap"))
        steps[chosen] = (test, largest, None if swapped is None else max(largest, min(1.0, swapped)))
        left.discard(chosen)
    later = for_runs or (1 - SWAP_SHARE if scores else 1.0)  # what the run test would get with more runs
    return [_adjusted(row, steps.get(index), share, later, weights, len(finest)) for index, row in enumerate(tests)]


def _adjusted(
    row: RowTests,
    step: tuple[str, float, float | None] | None,
    share: float,
    for_runs: float,
    weights: Mapping[int, float],
    run_rows: int,
) -> Adjusted:
    factors: dict[Test, float] = {"runs": max(run_rows, 1) / (share * for_runs)}
    factors |= {"swap": 1 / weights[row.layout]} if row.swaps is not None and row.layout in weights else {}
    bare = Adjusted(p=None, p_adjusted=None, test=None, group="swap and runs", share=share, rows=0, factors=factors)
    if step is None:
        return bare
    bare = replace(bare, p_adjusted=step[1], p_exact=step[2])
    if step[0] == "runs" or row.swaps is None:
        return replace(bare, p=row.runs, test="runs")
    return replace(bare, p=swap_p(row.swaps), test="swap")


def _swap_parts(tests: Sequence[RowTests], level: float, *, most: float) -> tuple[list[bool], dict[int, float]]:
    """Return for every row whether its swaps can decide, and by layout the part of the share that the swap test gets.

    It is two thirds, and up to `most` (four fifths; all of it with one run) where only that lets the fewest assignments
    decide (2 clients in 5 runs, 3 in 2). A layout with too few for this leaves its part to the run test.
    """
    swapped = [row for row in tests if row.swaps is not None]
    parts = {}
    for layout in dict.fromkeys(row.layout for row in swapped):
        own = [row for row in swapped if row.layout == layout]
        assignments = max(len(row.swaps) for row in own if row.swaps is not None)
        portion = len(own) / len(swapped)
        least = 1 / (assignments * level * portion) if level > 0 else np.inf
        if least <= most:
            parts[layout] = portion * (max(SWAP_SHARE, least) if most < 1 else 1.0)
    return [row.swaps is not None and row.layout in parts for row in tests], parts


def _against_largest(
    scores: Mapping[int, Floats], tests: Sequence[RowTests], left: set[int]
) -> list[tuple[int, float]]:
    """Return for the rows left the share of joint assignments whose largest standardised mean reaches theirs."""
    shares = []
    for layout in {tests[index].layout for index in left if index in scores}:
        own = [index for index in sorted(left) if index in scores and tests[index].layout == layout]
        largest = np.sort(np.max([scores[index] for index in own], axis=0))
        for index in own:
            below = int(np.searchsorted(largest, scores[index][0] - 1e-9))
            shares.append((index, (len(largest) - below) / len(largest)))
    return shares


def layouts_of(rows: Sequence[Layout]) -> tuple[list[int], list[Layout]]:
    """Return the number of each row's layout, and the layouts: rows join where they agree on all runs they share.

    A row that lacks a run, since its cases failed, thus keeps the assignments of the others.
    """
    layouts: list[Layout] = []
    numbers = []
    for row in rows:
        fitting = [
            number
            for number, layout in enumerate(layouts)
            if row.keys() & layout.keys() and all(layout.get(seed, clients) == clients for seed, clients in row.items())
        ]
        if fitting:
            layouts[fitting[0]].update(row)
        else:
            layouts.append(dict(row))
        numbers.append(fitting[0] if fitting else len(layouts) - 1)
    return numbers, layouts
