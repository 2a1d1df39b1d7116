"""Penalties on guessed inputs: tensors in, a scalar out, pure and differentiable."""

from __future__ import annotations

from fedxray.priors.epoch_prior import EPOCH_PRIORS, EpochPrior, random_kernel
from fedxray.priors.independence import hsic
from fedxray.priors.penalties import box_penalty, clip, l2, squared_total_variation, total_variation

__all__ = [
    "EPOCH_PRIORS",
    "EpochPrior",
    "box_penalty",
    "clip",
    "hsic",
    "l2",
    "random_kernel",
    "squared_total_variation",
    "total_variation",
]
