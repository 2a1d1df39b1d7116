"""How well an attribute can be told from a linear model (papers 003 Prop. 1 and 000 Prop. 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.errors import BadInput


def accuracy_bound(error: float, weight: float, *, low: float = 0.0, high: float = 1.0) -> float:
    """The least share of records whose attribute (low or high) a linear model tells: 1 - 4 E / (w (high - low))^2.

    `error` is the model's mean squared error on these records, `weight` its weight of the attribute. A record is
    told wrongly only if its residual is at least half of what the attribute moves the prediction. The papers have
    the values 0 and 1; however the model was found does not matter. No less than 0.
    """
    if error < 0:
        raise BadInput("error", expected="a mean squared error of at least 0", got=error, remedy="Mend it.")
    moved = (weight * (high - low)) ** 2
    return max(0.0, 1.0 - 4.0 * error / moved) if moved > 0 else 0.0


def nearer_value(rest: Tensor, weight: float, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """The papers' two steps: solve for the attribute, then take the nearer value; ties go to `high`.

    `rest` [records] is the target minus the prediction from all other columns.
    """
    solved = rest / weight
    return torch.where(solved < (low + high) / 2, torch.full_like(rest, low), torch.full_like(rest, high))
