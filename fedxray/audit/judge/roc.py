"""The ROC curve of a membership row: the mean over its cases, by their members, at few false-positive rates.

Scores of different clients and runs have no common scale: every score is placed among the non-members of its own case,
and one exposed client stays visible. With n non-members the k-th highest stands for the false-positive rate k / (n + 1)
and rates between these are interpolated, so that guessing lies on the diagonal, however few or unequal they are. Ties
are in random order. The curve starts where the case with most non-members does: below, no rate can be distinguished.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedxray.audit.judge.statistics import Floats
from fedxray.metrics.table import BY_PERSON, RATES

POINTS = 32  # at most, beside the rates that are printed
DIGITS = 4

Sides = tuple[Floats, Floats]  # scores of members, and of the non-members of the same case


def roc_of(cases: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return the curve of the cases of a row; None where a case lacks its private ranks, or they are not the metric's.

    Where records have subjects the ranks are of people.
    """
    ranked = [case.get("draws") for case in cases]
    of_people = any("people_in_question" in case["ledger"] for case in cases)
    if not ranked or not all(ranked) or of_people is not (metric in BY_PERSON):
        return None
    return curve([_sides(draws) for draws in ranked if draws])


def _sides(draws: Mapping[str, Any]) -> Sides:
    scores, member = np.asarray(draws["scores"], np.float64), np.asarray(draws["member"], dtype=bool)
    return scores[member], scores[~member]


def curve(cases: Sequence[Sides]) -> dict[str, Any] | None:
    """Return the numbers of members and others, the area pooled by members, and rates of true and false positives."""
    known = [(inside, outside) for inside, outside in cases if len(inside) and len(outside)]
    if not known:
        return None
    most = max(len(outside) for _, outside in known)
    printed = [math.floor(rate * most + 1e-9) + 1 for rate, least in RATES.values() if most >= least]
    counts = np.unique([*np.geomspace(1, most, POINTS).round().astype(int), *printed])
    rates = counts / (most + 1)
    return {
        "members": sum(len(inside) for inside, _ in known),
        "others": sum(len(outside) for _, outside in known),
        "auc": _short(pooled_auc(known)),
        "fpr": [_short(rate) for rate in rates],
        "tpr": [_short(rate) for rate in mean_tpr(known, rates)],
    }


def mean_tpr(cases: Sequence[Sides], fpr: Floats) -> Floats:
    """Return the mean over all members of the probability to be named at false-positive rates [rates].

    A member below a of n non-members of its case and level with t lies at a rate between a / (n + 1) and
    (a + t + 1) / (n + 1), each equally likely.
    """
    named, members = np.zeros(len(fpr)), 0
    for inside, outside in cases:
        ordered = np.sort(outside)
        left, right = np.searchsorted(ordered, inside, "left"), np.searchsorted(ordered, inside, "right")
        above, ties = len(outside) - right, right - left
        places = fpr[:, None] * (len(outside) + 1) - above[None]  # [rates, members]
        named += np.clip(places / (ties[None] + 1), 0.0, 1.0).sum(1)
        members += len(inside)
    mean: Floats = named / members
    return mean


def pooled_auc(cases: Sequence[Sides]) -> float:
    """Return the mean over all members of the share of the non-members of their case that they exceed; ties are half.

    The metric is the mean over cases: it counts clients, this one members.
    """
    exceeded, members = 0.0, 0
    for inside, outside in cases:
        ordered = np.sort(outside)
        places = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
        exceeded, members = exceeded + float(places.sum()) / 2 / len(outside), members + len(inside)
    return exceeded / members


def _short(rate: float) -> float:
    return float(f"{rate:.{DIGITS}g}")
