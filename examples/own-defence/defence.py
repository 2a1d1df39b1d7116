"""Clips an update to a maximal norm before it leaves the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Defence, Hooks, KnownDefence, Work
from fedxray.errors import BadInput
from fedxray.params import norm, scaled


@dataclass(frozen=True, kw_only=True)
class ClipUpdate(Defence):
    """No update leaves the client with a Euclidean norm above `largest`."""

    name: ClassVar[str] = "clip-update"

    largest: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a norm that is not positive."""
        if not self.largest > 0:
            raise BadInput("largest", expected="a number above 0", got=self.largest, remedy="Try 1.0.")

    def hooks(self, work: Work) -> Hooks:
        """Return the hook on outgoing updates; an aware attacker applies it to its guesses, too."""
        return Hooks(outgoing=self._clip, known=KnownDefence(replay=Hooks(outgoing=self._clip)))

    def describe(self) -> str:
        """Return the line for the attacker knowledge and the report."""
        return f"updates clipped to a norm of {self.largest:g}"

    def _clip(self, update: dict[str, Tensor], state: Any, generator: torch.Generator) -> tuple[dict[str, Tensor], Any]:
        factor = min(1.0, self.largest / max(float(norm(update)), 1e-12))
        return scaled(update, factor), state
