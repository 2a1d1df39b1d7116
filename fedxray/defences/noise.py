"""Gaussian noise on what a client sends, or on the gradient of every single example."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.defences.base import Defence, ExampleGradients, Seams, State, Work
from fedxray.errors import BadInput
from fedxray.params import Params
from fedxray.seeds import normal_like


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Defence):
    """Independent normal noise of standard deviation `scale` on every entry.

    At "update" it is added once to the update that leaves; at "gradients" to every example's own gradient before the
    mean of a step is taken (Dimitrov et al.; unlike their code, every step draws anew).
    """

    name: ClassVar[str] = "gaussian-noise"
    scale: float
    at: Literal["update", "gradients"] = "update"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative("scale", self.scale)
        if self.at not in ("update", "gradients"):
            expected, remedy = 'one of "update", "gradients"', 'Try at = "update".'
            raise BadInput("at", expected=expected, got=repr(self.at), remedy=remedy)

    def seams(self, work: Work) -> Seams:
        """Noise at the chosen place."""
        return Seams(outgoing=self._on_update) if self.at == "update" else Seams(gradients=self._on_gradients)

    def describe(self) -> str:
        """One line for the ledger and the report."""
        where = "the update" if self.at == "update" else "every example's gradient"
        return f"Gaussian noise of standard deviation {self.scale:g} on {where}"

    def _on_update(
        self, update: dict[str, Tensor], state: State, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], State]:
        return with_noise(update, self.scale, generator), state

    def _on_gradients(
        self, value: ExampleGradients, state: State, generator: torch.Generator
    ) -> tuple[ExampleGradients, State]:
        return replace(value, each=with_noise(value.each, self.scale, generator)), state


def with_noise(params: Params, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Every entry plus its own normal draw of standard deviation `scale`."""
    return {name: value + scale * normal_like(value, generator) for name, value in params.items()}


def check_not_negative(argument: str, value: object) -> None:
    """Refuse what is no finite number of at least 0."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and value >= 0)
    ):
        expected = "a finite number of at least 0"
        raise BadInput(argument, expected=expected, got=repr(value), remedy=f"Try {argument} = 0.01.")
