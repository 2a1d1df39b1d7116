"""How near a guessed model is to the true one, and how well it fits the client's records."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.losses import example_loss
from fedxray.params import Params, same_shapes

WORST_DISTANCE = (
    1e10  # where the guess is not finite, or the truth is all zero and the guess is not; any loss
)


def parameter_distance(guess: Params, truth: Params) -> float:
    """|guess - truth| / |truth| in L2 over all parameters by name; at most 1e10."""
    if not same_shapes(guess, truth):
        odd = sorted(guess.keys() ^ truth.keys()) or "other shapes"
        remedy = "Compare two models of the same architecture."
        raise BadInput("guess", expected="the truth's names and shapes", got=odd, remedy=remedy)
    error = sum(float(((guess[name].double() - value.double()) ** 2).sum()) for name, value in truth.items())
    size = sum(float((value.double() ** 2).sum()) for value in truth.values())
    if error == 0:
        return 0.0
    if not math.isfinite(error) or size == 0:
        return WORST_DISTANCE
    return min(math.sqrt(error / size), WORST_DISTANCE)


def distance_scores(guess: Params, truth: Params) -> dict[str, float]:
    """The distance of one model; absent for models without parameters."""
    return {"parameter_distance": parameter_distance(guess, truth)} if truth else {}


def fit_scores(output: Tensor, y: Tensor, loss: str, space: Space, everyone: Tensor) -> dict[str, float]:
    """How well a model with these outputs [n, outputs] fits the client's own records y [n].

    Of a regression the loss is in units of the variance of everyone's targets, so that it does not depend on theirs.
    """
    if not len(y):
        return {}
    value = float(example_loss(loss)(output, y).double().mean())
    if space.target == "classification":
        hits = (output.argmax(-1) == y) & torch.isfinite(output).all(-1)
        return {"training_loss": _held(value), "training_accuracy": float(hits.double().mean())}
    found = {"training_loss": _held(value / (float(everyone.double().var(correction=0)) or 1.0))}
    off = relative_error(output[:, 0], y, space)
    return found if off is None else {**found, "training_mape": _held(off)}


def relative_error(guess: Tensor, y: Tensor, space: Space) -> float | None:
    """Mean of |guess - y| / y, both [n], in the units of the data; None unless all targets are above 0."""
    raw, told = (one.double() * space.target_std + space.target_mean for one in (y, guess))
    return float(((told - raw) / raw).abs().mean()) if bool((raw > 0).all()) else None


def _held(value: float) -> float:
    """At most 1e10, which is also what is not finite."""
    return min(value, WORST_DISTANCE) if math.isfinite(value) else WORST_DISTANCE
