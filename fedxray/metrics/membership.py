"""How well members were told from non-members by a score that is larger for likelier members.

A score that is NaN counts as the worst: lowest for a member, highest for a non-member.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.metrics.scores import Scores


def auc(score: Tensor, member: Tensor) -> float:
    """Chance that a member [n, member true] scores above a non-member, ties counted half."""
    inside, outside = _split(score, member)
    ordered = outside.sort().values
    below = torch.searchsorted(ordered, inside, right=False)
    not_above = torch.searchsorted(ordered, inside, right=True)
    wins = int(below.sum()) + int(not_above.sum())
    return wins / (2 * len(inside) * len(outside))


def placements(score: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """For each member the share of non-members below it, for each non-member that of members above it, ties half.

    Both have the auc as their mean; their spreads give its variance (DeLong).
    """
    inside, outside = _split(score, member)
    return _share_below(inside, outside), 1.0 - _share_below(outside, inside)


def _share_below(values: Tensor, others: Tensor) -> Tensor:
    ordered = others.sort().values
    left = torch.searchsorted(ordered, values, right=False)
    right = torch.searchsorted(ordered, values, right=True)
    return (left + right).double() / (2 * len(others))


def tpr_at_fpr(score: Tensor, member: Tensor, *, fpr: float = 0.01) -> float:
    """Share of members named by the best threshold that names at most fpr of the non-members, ties in random order.

    Blind guessing gives (allowed + 1) / (non-members + 1), where `allowed` non-members may be named: with few
    non-members that is well above fpr, and equal scores for all give just that, so the floor is fair.
    """
    inside, outside = _split(score, member)
    allowed = math.floor(fpr * len(outside) + 1e-9)  # 0.01 * 2900 is 28.999...
    if allowed >= len(outside):
        return 1.0
    limit = outside.sort(descending=True).values[allowed]
    above, level = int((inside > limit).sum()), int((inside == limit).sum())
    left = allowed - int((outside > limit).sum())  # non-members at the limit that may still be named
    named = above + level * (left + 1) / (int((outside == limit).sum()) + 1)
    return named / len(inside)


def membership_scores(score: Tensor, member: Tensor) -> Scores:
    """Both metrics of scores [n]; absent if there are only members or only non-members."""
    _check(score, member)
    if bool(member.all()) or not bool(member.any()):
        return Scores(means={}, records={})
    means = {"auc": auc(score, member), "tpr_at_1pct_fpr": tpr_at_fpr(score, member, fpr=0.01)}
    return Scores(means=means, records={})


def _split(score: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    _check(score, member)
    inside, outside = score[member].double(), score[~member].double()
    if not len(inside) or not len(outside):
        remedy = "Score records held out of training beside the training records."
        raise BadInput("member", expected="members and non-members", got="only one kind", remedy=remedy)
    lowest, highest = -math.inf, math.inf
    return inside.nan_to_num(lowest, highest, lowest), outside.nan_to_num(highest, highest, lowest)


def _check(score: Tensor, member: Tensor) -> None:
    if score.shape != member.shape or score.ndim != 1 or member.dtype != torch.bool:
        got = f"score {list(score.shape)}, member {list(member.shape)} of {member.dtype}"
        remedy = "Give one score and one true or false per record."
        raise BadInput("member", expected="score [n] and member [n] of bool", got=got, remedy=remedy)
