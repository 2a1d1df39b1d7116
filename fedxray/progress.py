"""Progress as a callback: loops are silent and say how far they are to whoever asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Step:
    """One step of a loop: what runs, how many steps are done of how many, and its own loss if it has one."""

    what: str
    done: int
    total: int
    loss: float | None = None


class Report(Protocol):
    """Whoever wants to hear of progress."""

    def __call__(self, step: Step) -> None:
        """Take note of one step."""


def silent(step: Step) -> None:
    """Hear nothing."""
