"""Gaussian noise on what a client sends, or on the gradient of every single example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.defences.base import Defence, ExampleGradients, Seams, State, Told, Work
from fedxray.errors import BadInput
from fedxray.params import Params
from fedxray.seeds import normal_like

MOST = 1e12  # of scales: beyond, squares and sums of float32 overflow
At = Literal["update", "gradients"]
Draw = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Defence):
    """Independent normal noise of standard deviation `scale` on every entry.

    At "update" it is added once to the update that leaves; at "gradients" to every example's own gradient before the
    mean of a step is taken (Dimitrov et al.; unlike their code, every step draws anew).
    """

    name: ClassVar[str] = "gaussian-noise"
    scale: float
    at: At = "update"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative("scale", self.scale)
        check_at(self.at)

    def seams(self, work: Work) -> Seams:
        """Noise at the chosen place."""
        return noise_seams(normal_like, self.scale, self.scale**2, self.at, work)

    def describe(self) -> str:
        """One line for the ledger and the report."""
        return f"Gaussian noise of standard deviation {self.scale:g} on {place_words(self.at)}"


def noise_seams(draw: Draw, scale: float, variance: float, at: At, work: Work) -> Seams:
    """Seams that add scaled draws of that variance at the chosen place."""
    if at == "update":
        return Seams(outgoing=partial(_on_update, draw, scale), told=Told(update_variance=variance))
    # The mean of a step has as many draws as examples.
    mixed = -(-work.batch_size // 2) if work.mixing == "pairs" else work.batch_size
    return Seams(gradients=partial(_on_gradients, draw, scale), told=Told(step_variance=variance / mixed))


def _on_update(
    draw: Draw, scale: float, update: dict[str, Tensor], state: State, generator: torch.Generator
) -> tuple[dict[str, Tensor], State]:
    return with_noise(draw, update, scale, generator), state


def _on_gradients(
    draw: Draw, scale: float, value: ExampleGradients, state: State, generator: torch.Generator
) -> tuple[ExampleGradients, State]:
    return replace(value, each=with_noise(draw, value.each, scale, generator)), state


def with_noise(draw: Draw, params: Params, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Every entry plus its own draw times `scale`."""
    return {name: value + scale * draw(value, generator) for name, value in params.items()}


def place_words(at: At) -> str:
    """A place in words."""
    return "the update" if at == "update" else "every example's gradient"


def check_at(at: object) -> None:
    """Refuse a place that is not there."""
    if at not in ("update", "gradients"):
        expected, remedy = 'one of "update", "gradients"', 'Try at = "update".'
        raise BadInput("at", expected=expected, got=repr(at), remedy=remedy)


def check_not_negative(argument: str, value: object) -> None:
    """Refuse what is no number of at least 0, or one whose square leaves every floating-point type."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        expected = f"a number from 0 to {MOST:g}"
        raise BadInput(argument, expected=expected, got=repr(value), remedy=f"Try {argument} = 0.01.")


# --- Laplace noise on what a client sends, or on the gradient of every single example.


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
