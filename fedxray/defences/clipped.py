"""Clip and noise on the gradients of single examples: the mechanism of DP-SGD, without its accounting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Defence, ExampleGradients, Seams, State, Work, example_norms
from fedxray.defences.noise import check_not_negative
from fedxray.errors import BadInput
from fedxray.params import Params
from fedxray.seeds import normal_like


@dataclass(frozen=True, kw_only=True)
class ClippedNoise(Defence):
    """Each example's gradient is cut to norm `clip`; their sum gets noise of deviation `noise_multiplier` * clip.

    The step is that sum divided by the number of examples. No privacy budget is claimed: that takes an accountant
    and its sampling.
    """

    name: ClassVar[str] = "clipped-noise"
    clip: float
    noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative("clip", self.clip)
        check_not_negative("noise_multiplier", self.noise_multiplier)
        if self.clip == 0:
            raise BadInput("clip", expected="a number above 0", got=self.clip, remedy="Try clip = 1.0.")

    def seams(self, work: Work) -> Seams:
        """Clip and noise in every step."""
        return Seams(gradients=self._on_gradients)

    def describe(self) -> str:
        """One line for the ledger and the report."""
        noise = f"noise of {self.noise_multiplier:g} times that on their sum"
        return f"example gradients clipped to norm {self.clip:g}, {noise}"

    def _on_gradients(
        self, value: ExampleGradients, state: State, generator: torch.Generator
    ) -> tuple[ExampleGradients, State]:
        clipped = clip_examples(value.each, self.clip)
        deviation = self.noise_multiplier * self.clip
        noise = {name: deviation * normal_like(one[0], generator) for name, one in clipped.items()}
        if value.extra is not None:
            noise = {name: one + value.extra[name] for name, one in noise.items()}
        return replace(value, each=clipped, extra=noise), state


def clip_examples(gradients: Params, clip: float) -> dict[str, Tensor]:
    """Every example's gradient scaled down to norm `clip` over all tensors where it is longer, [examples, ...]."""
    norms = example_norms(gradients)
    factor = clip / norms.clamp(min=clip)  # 1 for a short gradient, also for one of norm 0
    return {name: value * factor.reshape(-1, *[1] * (value.dim() - 1)) for name, value in gradients.items()}
