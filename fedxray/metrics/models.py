"""How near a guessed model is to the true one."""

from __future__ import annotations

import math

from fedxray.errors import BadInput
from fedxray.metrics.scores import Scores
from fedxray.params import Params, same_shapes

WORST_DISTANCE = 1e10  # where the guess is not finite, or the truth is all zero and the guess is not


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


def model_scores(guess: Params, truth: Params) -> Scores:
    """The distance of one model; absent for models without parameters."""
    means = {"parameter_distance": parameter_distance(guess, truth)} if truth else {}
    return Scores(means=means, records={})
