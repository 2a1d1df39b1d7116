"""How well a hidden attribute of each record was told; an undecided guess (-1 or NaN) is wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.metrics.scores import Scores, from_records


def correct(guess: Tensor, truth: Tensor) -> Tensor:
    """1 where the guessed category is the true one, else 0, both [n]; shape [n] float32."""
    _check_same_length(guess, truth)
    return (guess == truth).to(torch.float32)


def balanced_accuracy(guess: Tensor, truth: Tensor) -> float | None:
    """Mean over the true categories of the share told rightly, both [n]; None without records."""
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
    """Share of values [n] told to within the tolerance, the edge included."""
    _check_same_length(guess, truth)
    if not tolerance >= 0:
        remedy = "Give it in the unit of the attribute."
        raise BadInput("tolerance", expected="zero or more", got=tolerance, remedy=remedy)
    near = (guess.double() - truth.double()).abs() <= tolerance
    return from_records({"within_tolerance": near.to(torch.float32)})


def _check_same_length(guess: Tensor, truth: Tensor) -> None:
    if guess.shape != truth.shape or truth.ndim != 1:
        remedy = "Give one guess per record."
        raise BadInput("guess", expected=f"shape {list(truth.shape)}", got=list(guess.shape), remedy=remedy)
