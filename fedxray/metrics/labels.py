"""How well the number of examples of each class was told."""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.metrics.scores import Scores


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
