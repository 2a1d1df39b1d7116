"""Laplace noise on what a client sends, or on the gradient of every single example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Defence, Seams, Work
from fedxray.defences.noise import At, check_at, check_not_negative, noise_seams, place_words


@dataclass(frozen=True, kw_only=True)
class LaplaceNoise(Defence):
    """Independent Laplace noise of scale `scale` (its mean absolute value) on every entry.

    At "update" it is added once to the update that leaves; at "gradients" to every example's own gradient before the
    mean of a step is taken.
    """

    name: ClassVar[str] = "laplace-noise"
    scale: float
    at: At = "update"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative("scale", self.scale)
        check_at(self.at)

    def seams(self, work: Work) -> Seams:
        """Noise at the chosen place."""
        return noise_seams(laplace_like, self.scale, 2 * self.scale**2, self.at, work)

    def describe(self) -> str:
        """One line for the ledger and the report."""
        return f"Laplace noise of scale {self.scale:g} on {place_words(self.at)}"


def laplace_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Laplace draws of scale one on the CPU, then moved to the tensor's device and dtype."""
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    # From -0.5 up to but below 0.5: the one draw at the edge would be infinite.
    magnitude = -torch.log1p(-2 * drawn.abs().clamp(max=0.5 - 2**-54))
    return (drawn.sign() * magnitude).to(device=tensor.device, dtype=tensor.dtype)
