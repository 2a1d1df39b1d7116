"""Scales an update down to a largest norm before it leaves the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Defence, Seams, Told, Work
from fedxray.errors import BadInput
from fedxray.params import norm, scaled


@dataclass(frozen=True, kw_only=True)
class ClipUpdate(Defence):
    """No update leaves the client with a Euclidean norm above `largest`."""

    name: ClassVar[str] = "clip-update"

    largest: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a norm that nothing could have."""
        if not self.largest > 0:
            raise BadInput("largest", expected="a number above 0", got=self.largest, remedy="Try 1.0.")

    def seams(self, work: Work) -> Seams:
        """Only what leaves is changed, and who knows that can do the same to a guess."""
        return Seams(outgoing=self._clip, told=Told(replay=Seams(outgoing=self._clip)))

    def describe(self) -> str:
        """One line for the ledger and the report."""
        return f"updates clipped to a norm of {self.largest:g}"

    def _clip(
        self, update: dict[str, Tensor], state: Any, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Any]:
        factor = min(1.0, self.largest / max(float(norm(update)), 1e-12))
        return scaled(update, factor), state
