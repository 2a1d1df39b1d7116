"""Scores, and those of guesses about records: attributes, label counts, membership, and rows of a table.

An undecided guess (-1 or NaN) counts as wrong everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.data.dataset import Column
from fedxray.errors import BadInput
from fedxray.imaging import assignment
from fedxray.metrics.table import RATES


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one guess; a metric that is undefined (nothing to compare) is absent, never NaN."""

    means: Mapping[str, float]
    records: Mapping[str, Tensor]  # per metric [true records]; NaN where a record got no guess
    # For reconstructions matched to originals: the index of the guess of each [true records], -1 for none.
    matched: Tensor | None = None


def mean_of(values: Tensor) -> float | None:
    """The mean over the records that have a value, or None if none has."""
    known = values[~torch.isnan(values)]
    return float(known.double().mean()) if len(known) else None


def from_records(records: Mapping[str, Tensor], matched: Tensor | None = None) -> Scores:
    """Scores whose means are the plain means of the records."""
    means = {name: mean_of(values) for name, values in records.items()}
    known = {name: mean for name, mean in means.items() if mean is not None}
    return Scores(means=known, records=records, matched=matched)


# Attributes


def correct(guess: Tensor, truth: Tensor) -> Tensor:
    """1 where the guessed category is the true one, else 0, both [n]; shape [n] float32."""
    _check_same_length(guess, truth)
    return (guess == truth).to(torch.float32)


def balanced_accuracy(guess: Tensor, truth: Tensor) -> float | None:
    """Mean over the true categories of the share inferred correctly, both [n]; None without records."""
    hits = correct(guess, truth).double()
    shares = [float(hits[truth == category].mean()) for category in sorted(set(truth.tolist()))]
    return sum(shares) / len(shares) if shares else None


def category_scores(guess: Tensor, truth: Tensor) -> Scores:
    """Accuracy and balanced accuracy of category numbers [n]."""
    plain = from_records({"accuracy": correct(guess, truth)})
    balanced = balanced_accuracy(guess, truth)
    known = {} if balanced is None else {"balanced_accuracy": balanced}
    return Scores(means={**plain.means, **known}, records=plain.records)


def continuous_scores(guess: Tensor, truth: Tensor, *, tolerance: float) -> Scores:
    """Share of values [n] inferred within the tolerance, the bound included."""
    _check_same_length(guess, truth)
    if not tolerance >= 0:
        remedy = "Give it in the unit of the attribute."
        raise BadInput("tolerance", expected="zero or more", got=tolerance, remedy=remedy)
    near = (guess.double() - truth.double()).abs() <= tolerance
    return from_records({"within_tolerance": near.to(torch.float32)})


def source_shares(named: Tensor, owner: Tensor) -> Tensor:
    """The share of each owner's records that is assigned to each client, less that of all owners', [clients, clients].

    `named` [records, clients] is 1 for the client that a record is assigned to (or a probability), `owner` [records].
    All owners count the same, and 1/K for K owners is added: one client for every record, or any at random, has 1/K
    everywhere, and the mean of the diagonal is the mean over owners of the share assigned correctly. Rows of
    clients without records are NaN.
    """
    named, clients = named.double(), named.shape[1]
    held = torch.nn.functional.one_hot(owner, clients).double()
    shares = (held.T @ named) / held.sum(0)[:, None]
    owners = held.any(0)
    return shares - shares[owners].mean(0) + 1 / int(owners.sum())


def _check_same_length(guess: Tensor, truth: Tensor) -> None:
    if guess.shape != truth.shape or truth.ndim != 1:
        remedy = "Give one guess per record."
        raise BadInput("guess", expected=f"shape {list(truth.shape)}", got=list(guess.shape), remedy=remedy)


# Label counts


def label_error(guess: Tensor, truth: Tensor) -> float:
    """Half the sum of |guess - truth|, counts [classes]; a guess that is not finite has all labels wrong."""
    if guess.shape != truth.shape or guess.ndim != 1:
        remedy = "Give one count per class, for all classes."
        raise BadInput("guess", expected=f"shape {list(truth.shape)}", got=list(guess.shape), remedy=remedy)
    difference = guess.double() - truth.double()
    if not bool(torch.isfinite(difference).all()):
        return float(truth.double().sum())
    return float(difference.abs().sum() / 2)


def label_accuracy(guess: Tensor, truth: Tensor) -> float | None:
    """1 - label_error / examples, negative if far too many were guessed, None without examples."""
    examples = float(truth.double().sum())
    return 1 - label_error(guess, truth) / examples if examples > 0 else None


def label_scores(guess: Tensor, truth: Tensor) -> Scores:
    """Both numbers for counts [classes]; there is no value for a single record."""
    accuracy = label_accuracy(guess, truth)
    known = {} if accuracy is None else {"label_accuracy": accuracy}
    return Scores(means={"label_error": label_error(guess, truth), **known}, records={})


# Membership: scores are larger for likelier members; NaN is the lowest for a member, the highest for a non-member


def auc(score: Tensor, member: Tensor) -> float:
    """ROC AUC of scores [n] for members [n] bool: probability that a member scores above a non-member, ties half."""
    inside, outside = _split(score, member)
    ordered = outside.sort().values
    # Non-members below a member, plus non-members below or equal to it: twice the wins with ties counted half.
    below = torch.searchsorted(ordered, inside, right=False)
    not_above = torch.searchsorted(ordered, inside, right=True)
    wins = int(below.sum()) + int(not_above.sum())
    return wins / (2 * len(inside) * len(outside))


def placements(score: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """For each member [m] the share of non-members below it, for each non-member [k] of members above it, ties half.

    The mean of either is the AUC; their variances give the variance of the AUC (DeLong).
    """
    inside, outside = _split(score, member)
    return _share_below(inside, outside), 1.0 - _share_below(outside, inside)


def _share_below(values: Tensor, others: Tensor) -> Tensor:
    ordered = others.sort().values
    left = torch.searchsorted(ordered, values, right=False)
    right = torch.searchsorted(ordered, values, right=True)
    return (left + right).double() / (2 * len(others))


def by_subject(score: Tensor, member: Tensor, subject: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For every person its mean normal score, whether its records are members', and its number; each [people].

    Scores [n] become normal quantiles of their ranks among all records, so that no single record decides.
    """
    _check(score, member)
    worst = torch.where(member, -math.inf, math.inf).to(score.device)
    known = torch.where(score.isnan(), worst, score.double())
    people, index = torch.unique(subject.to(score.device), return_inverse=True)
    empty = known.new_zeros(len(people))
    sums = empty.index_add(0, index, torch.special.ndtri(_share_below(known, known)))
    inside = empty.index_add(0, index, member.to(known)) > 0
    return sums / torch.bincount(index), inside, people


def tpr_at_fpr(score: Tensor, member: Tensor, *, fpr: float = 0.01) -> float:
    """True-positive rate at the threshold with a false-positive rate of at most `fpr`, ties in random order.

    Guessing at random gives (allowed + 1) / (non-members + 1), where `allowed` is the number of false positives: with
    few non-members that is well above fpr, and equal scores for all give exactly that, so the floor is fair.
    """
    inside, outside = _split(score, member)
    allowed = math.floor(fpr * len(outside) + 1e-9)  # 0.01 * 2900 is 28.999...
    if allowed >= len(outside):
        return 1.0
    limit = outside.sort(descending=True).values[allowed]
    above, level = int((inside > limit).sum()), int((inside == limit).sum())
    left = allowed - int((outside > limit).sum())  # false positives still allowed at the limit itself
    # With ties in random order, a member at the limit comes before the first non-member too many with this probability.
    positives = above + level * (left + 1) / (int((outside == limit).sum()) + 1)
    return positives / len(inside)


def membership_scores(score: Tensor, member: Tensor) -> Scores:
    """AUC of scores [n], and the true-positive rates that the number of non-members allows (ten false positives).

    Absent if there are only members or only non-members.
    """
    _check(score, member)
    if bool(member.all()) or not bool(member.any()):
        return Scores(means={}, records={})
    others = int((~member).sum())
    rates = {name: tpr_at_fpr(score, member, fpr=fpr) for name, (fpr, least) in RATES.items() if others >= least}
    return Scores(means={"auc": auc(score, member), **rates}, records={})


def _split(score: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of members [m] and of non-members [k] in float64, with NaN as the worst; refused where one is empty."""
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


# Rows of a table: values of matched rows, each within the tolerance of its column
#
# A number counts if its error is at most the tolerance of its column (a tenth of the range), a category if its nearest
# code is the true one. The matching is the one with most values recovered; among equals the nearer rows are matched. A
# row without a guess has no value recovered.


def row_scores(guess: Tensor, truth: Tensor, columns: Sequence[Column]) -> Scores:
    """Share of values recovered of each true row, guess [g, width] matched to truth [t, width]."""
    if guess.ndim != 2 or guess.shape[1:] != truth.shape[1:]:
        expected, remedy = f"rows of {truth.shape[-1]} numbers", "Give rows as the model gets them."
        raise BadInput("guess", expected=expected, got=list(guess.shape), remedy=remedy)
    recovered = recovered_values(guess, truth, columns)  # [g, t, columns]
    guesses, rows = assignment(recovered.sum(-1) + _nearness(guess, truth))
    shares = torch.zeros(len(truth), dtype=torch.float32, device=truth.device)
    shares[rows] = recovered[guesses, rows].to(torch.float32).mean(-1)
    matched = torch.full_like(shares, -1, dtype=torch.int64).index_put((rows,), guesses)
    return from_records({"values_recovered": shares}, matched)


def row_closeness(guess: Tensor, pool: Tensor, columns: Sequence[Column]) -> Tensor:
    """Values of every row of a pool [t, width] that its nearest guess [g, width] recovers, nearer rows first; [t]."""
    recovered = recovered_values(guess, pool, columns).sum(-1)  # [g, t]
    return (recovered + _nearness(guess, pool)).amax(0)


def recovered_values(guess: Tensor, truth: Tensor, columns: Sequence[Column]) -> Tensor:
    """Whether each guess recovers each value of each true row; bool [g, t, columns]."""
    by_column = []
    for column in columns:
        guessed, real = guess[:, list(column.positions)], truth[:, list(column.positions)]
        if column.kind == "continuous":
            by_column.append((guessed[:, None, 0] - real[None, :, 0]).abs() <= column.tolerance)
        else:
            codes = column.candidates(truth)
            by_column.append(_category(guessed, codes)[:, None] == _category(real, codes)[None])
    return torch.stack(by_column, -1)


def _category(values: Tensor, codes: Tensor) -> Tensor:
    """The nearest category of each encoding [n, positions]; -1 where it is not finite."""
    nearest = ((values[:, None] - codes[None]) ** 2).sum(-1).argmin(1)
    return torch.where(torch.isfinite(values).all(1), nearest, -1)


def _nearness(guess: Tensor, truth: Tensor) -> Tensor:
    """A tie-breaker of the matching, [g, t]: from 0 (far, or not finite) to less than one over the number of rows."""
    apart = ((guess[:, None].double() - truth[None].double()) ** 2).mean(-1)
    return torch.nan_to_num(1 / (1 + apart), nan=0.0) / (2 * max(1, len(truth)))
