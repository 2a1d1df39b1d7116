"""Progress as a callback: loops print nothing and call a `Report` after every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Step:
    """Progress of a loop: its name, the steps done, the steps in total, and its own loss if it has one."""

    what: str
    done: int
    total: int
    loss: float | None = None


class Report(Protocol):
    """A function that is called with the progress of a loop."""

    def __call__(self, step: Step) -> None:
        """Called after every step."""


def silent(step: Step) -> None:
    """Ignore the progress: the default report."""
