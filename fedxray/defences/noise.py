"""Gaussian and Laplace noise on the update of a client, or on the gradient of every single example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.defences.base import Defence, Hooks, KnownDefence, Work, stateless
from fedxray.params import Params
from fedxray.seeds import normal_like
from fedxray.settings import REQUIRED, setting

MOST = 1e12  # largest scale: beyond, squares and sums of float32 overflow
Place = Literal["update", "gradients"]
PLACE = "What is changed: the update that is sent, or the gradient of every example."
Draw = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Defence):
    """Independent normal noise of standard deviation `scale` on every entry.

    At "update" it is added once to the update that is sent; at "gradients" to every example's own gradient before the
    mean of a step is taken (Dimitrov et al. 2022; unlike their code, every step draws anew).
    """

    name: ClassVar[str] = "gaussian-noise"

    scale: float = setting(
        REQUIRED, "Standard deviation of the noise on every entry.", least=0, most=MOST, example=0.01
    )
    at: Place = setting("update", PLACE)

    def hooks(self, work: Work) -> Hooks:
        """Add noise at the chosen place."""
        return noise_hooks(normal_like, self.scale, self.scale**2, self.at, work)

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"Gaussian noise of standard deviation {self.scale:g} on {place_words(self.at)}"


def noise_hooks(draw: Draw, scale: float, variance: float, at: Place, work: Work) -> Hooks:
    """Return hooks that add scaled draws of that variance at the chosen place."""

    def noisy(params: Params, generator: torch.Generator) -> dict[str, Tensor]:
        return {name: value + scale * draw(value, generator) for name, value in params.items()}

    if at == "update":
        return Hooks(outgoing=stateless(noisy), known=KnownDefence(update_variance=variance))
    # The mean of a step averages as many draws as it has examples, or pairs of them.
    mixed = -(-work.batch_size // 2) if work.mixing == "pairs" else work.batch_size
    each = stateless(lambda value, generator: replace(value, each=noisy(value.each, generator)))
    return Hooks(gradients=each, known=KnownDefence(step_variance=variance / mixed))


def place_words(at: Place) -> str:
    """Return a place in words."""
    return "the update" if at == "update" else "every example's gradient"


@dataclass(frozen=True, kw_only=True)
class LaplaceNoise(Defence):
    """Independent Laplace noise of scale `scale` (its mean absolute value) on every entry.

    At "update" it is added once to the update that is sent; at "gradients" to every example's own gradient before the
    mean of a step is taken.
    """

    name: ClassVar[str] = "laplace-noise"

    scale: float = setting(
        REQUIRED, "Mean absolute value of the noise on every entry.", least=0, most=MOST, example=0.01
    )
    at: Place = setting("update", PLACE)

    def hooks(self, work: Work) -> Hooks:
        """Add noise at the chosen place."""
        return noise_hooks(laplace_like, self.scale, 2 * self.scale**2, self.at, work)

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"Laplace noise of scale {self.scale:g} on {place_words(self.at)}"


def laplace_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Draw Laplace noise of scale one on the CPU, then move it to the tensor's device and dtype."""
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    # From -0.5 up to but below 0.5: the one draw at the edge would be infinite.
    magnitude = -torch.log1p(-2 * drawn.abs().clamp(max=0.5 - 2**-54))
    return (drawn.sign() * magnitude).to(device=tensor.device, dtype=tensor.dtype)
