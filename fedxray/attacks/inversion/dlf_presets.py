"""The hyper-parameters of "Data Leakage in Federated Averaging", as its authors' scripts set them per data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One data set's numbers."""

    learning_rate: float
    decay: float  # the learning rate is multiplied by it every `decay_every` steps, smoothly in between
    decay_every: int
    match_weight: tuple[float, float]  # at the start, and from half of the steps on
    total_variation: float
    clip: float  # weight of what lies outside the range of pixels
    prior: str
    prior_weights: Mapping[str, float]  # for each of the eight priors (Table 4)


PRESETS: dict[str, Preset] = {
    "femnist": Preset(
        learning_rate=0.4,
        decay=0.995,
        decay_every=10,
        match_weight=(1.0, 2.0),
        total_variation=1e-3,
        clip=2.0,
        prior="l2-mean",
        prior_weights={
            "l1-max": 77.298,
            "l1-max-conv": 81.365,
            "l1-mean": 250.846,
            "l1-mean-conv": 263.623,
            "l2-max": 92.378,
            "l2-max-conv": 97.776,
            "l2-mean": 1000.0,
            "l2-mean-conv": 1054.413,
        },
    ),
    "cifar100": Preset(
        learning_rate=0.1,
        decay=0.997,
        decay_every=20,
        match_weight=(4.0, 2.0),
        total_variation=2e-4,
        clip=10.0,
        prior="l2-max-conv",
        prior_weights={
            "l1-max": 4.848,
            "l1-max-conv": 5.0,
            "l1-mean": 15.708,
            "l1-mean-conv": 16.206,
            "l2-max": 5.814,
            "l2-max-conv": 6.075,
            "l2-mean": 62.675,
            "l2-mean-conv": 65.573,
        },
    ),
}
