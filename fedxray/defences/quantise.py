"""Quantisation: an update is sent with few bits per entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Defence, Hooks, KnownDefence, Work, stateless
from fedxray.params import Params
from fedxray.settings import setting

MOST_BITS = 16


@dataclass(frozen=True, kw_only=True)
class Quantise(Defence):
    """Every entry of the update is rounded to the nearest of few values of its tensor.

    With one bit an entry is its sign times the mean magnitude of its tensor; with more, one of 2^bits - 1 evenly
    spaced values from minus to plus the tensor's largest magnitude.
    """

    name: ClassVar[str] = "quantise"

    bits: int = setting(8, "Bits per entry.", least=1, most=MOST_BITS)

    def hooks(self, work: Work) -> Hooks:
        """Quantise the update; an attacker that knows the defence quantises a replayed update too."""
        passing = Hooks(outgoing=stateless(self._passing))
        return Hooks(outgoing=stateless(self._rounded), known=KnownDefence(replay=passing))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return "signs of the update only" if self.bits == 1 else f"update quantised to {self.bits} bits"

    def _rounded(self, update: Params, generator: torch.Generator) -> dict[str, Tensor]:
        return {name: quantised(value, self.bits) for name, value in update.items()}

    def _passing(self, update: Params, generator: torch.Generator) -> dict[str, Tensor]:
        """Return rounded values with the gradient of the identity: rounding itself has none."""
        return {name: value + (quantised(value.detach(), self.bits) - value.detach()) for name, value in update.items()}


def quantised(value: Tensor, bits: int) -> Tensor:
    """Return a tensor with at most 2^bits different values, shape kept."""
    if not value.numel():
        return value
    if bits == 1:
        return torch.where(value < 0, -1.0, 1.0).to(value.dtype) * value.abs().mean()
    steps = 2 ** (bits - 1) - 1
    unit = value.abs().amax() / steps
    return torch.where(unit > 0, (value / unit.clamp(min=torch.finfo(value.dtype).tiny)).round() * unit, value)
