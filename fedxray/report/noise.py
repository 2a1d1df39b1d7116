"""The setting of a defence by noise that is tried first, by `fedxray init` and in the next steps of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

EPSILON = 8.0  # of dp-sgd
NOISE = 5  # times what one record, with a gradient of norm 1, moves the updates of all rounds together
OF_ONE_GRADIENT = 0.1  # noise on every number of a gradient
BATCH = 32  # records of a local step, where the plan does not state them


def noise_scale(*, learning_rate: float, epochs: int, rounds: int, batch_size: int) -> float:
    """Return a standard deviation of noise on updates, by what one record changes in them, to one digit."""
    return float(f"{NOISE * learning_rate * epochs * math.sqrt(rounds) / batch_size:.1g}")


def noise_of(plan: Mapping[str, Any]) -> float:
    """Return the noise on updates to try first with the training of a plan."""
    training, limit = plan.get("federation") or {}, (plan.get("data") or {}).get("limit")
    if training.get("algorithm") == "fedsgd":
        return OF_ONE_GRADIENT
    sizes = [size for size in (training.get("batch_size"), limit) if isinstance(size, int)] or [BATCH]
    known = {key: training.get(key, usual) for key, usual in (("learning_rate", 0.01), ("epochs", 1), ("rounds", 10))}
    return noise_scale(**known, batch_size=min(sizes))
