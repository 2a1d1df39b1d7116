"""The ROC curve of a membership row: records of all its cases together, at few false-positive rates on a log scale.

Scores of different clients and runs have no common scale, so the ranks within a case become normal scores before they
are pooled. A point is the share of members above the k-th highest non-member, at the false-positive rate k / (n + 1) of
n non-members: guessing lies on the diagonal. Ties are in random order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedxray.audit.judge.statistics import Floats
from fedxray.metrics.table import BY_PERSON

POINTS = 32  # at most
DIGITS = 4


def roc_of(cases: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any] | None:
    """Return the curve of the cases of a row; None where a case lacks its private ranks, or they are not the metric's.

    Where records have subjects the ranks are of people.
    """
    ranked = [case.get("draws") for case in cases]
    of_people = any("people_in_question" in case["ledger"] for case in cases)
    if not ranked or not all(ranked) or of_people is not (metric in BY_PERSON):
        return None
    scores = np.concatenate([_normal_scores(np.asarray(draws["scores"], np.float64)) for draws in ranked if draws])
    member = np.concatenate([np.asarray(draws["member"], dtype=bool) for draws in ranked if draws])
    return curve(scores[member], scores[~member]) if member.any() and not member.all() else None


def _normal_scores(scores: Floats) -> Floats:
    """Return the normal quantiles of mid-ranks [records]."""
    from scipy.special import ndtri

    ordered = np.sort(scores)
    twice = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    quantiles: Floats = ndtri(twice / (2 * len(scores)))
    return quantiles


def curve(inside: Floats, outside: Floats) -> dict[str, Any]:
    """Return the numbers of members and others, and true-positive rates at false-positive rates."""
    ordered = np.sort(outside)[::-1]
    counts = np.unique(np.geomspace(1, len(outside), POINTS).round().astype(int))
    limits = ordered[counts - 1]
    above = (inside[None] > limits[:, None]).sum(1)
    level = (inside[None] == limits[:, None]).sum(1)
    # Of others at the limit, this one is the j-th in random order: a tied member comes before it with j / (ties + 1)
    place = counts - (outside[None] > limits[:, None]).sum(1)
    ties = (outside[None] == limits[:, None]).sum(1)
    rates = (above + level * place / (ties + 1)) / len(inside)
    return {
        "members": len(inside),
        "others": len(outside),
        "fpr": [_short(count / (len(outside) + 1)) for count in counts],
        "tpr": [_short(rate) for rate in rates],
    }


def _short(rate: float) -> float:
    return float(f"{rate:.{DIGITS}g}")
