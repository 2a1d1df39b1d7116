"""How a learning rate changes on the way downhill."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field


class Decay(ABC):
    """How the learning rate changes on the way."""

    @abstractmethod
    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by at this step, counted from 0, of so many."""


@dataclass(frozen=True)
class Constant(Decay):
    """The same learning rate all the way."""

    def factor(self, step: int, steps: int) -> float:
        """One."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Stairs(Decay):
    """A smaller learning rate from certain shares of the way on; by default those of Inverting Gradients."""

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    by: float = 0.1

    def factor(self, step: int, steps: int) -> float:
        """`by` to the power of the shares passed."""
        return self.by ** sum(step >= share * steps for share in self.at)


@dataclass(frozen=True, kw_only=True)
class Cosine(Decay):
    """Half a cosine from one down to `end`."""

    end: float = 0.0

    def factor(self, step: int, steps: int) -> float:
        """One at the start, `end` at the end."""
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * step / steps)) / 2


@dataclass(frozen=True, kw_only=True)
class Exponential(Decay):
    """Times `by` every so many steps, smoothly in between."""

    by: float
    every: int = 1

    def factor(self, step: int, steps: int) -> float:
        """`by` to the power of step / every."""
        return float(self.by ** (step / self.every))


@dataclass(frozen=True, kw_only=True)
class WarmUp(Decay):
    """A straight rise over the first steps, on top of another decay."""

    over: int
    then: Decay = field(default_factory=Constant)

    def factor(self, step: int, steps: int) -> float:
        """The other decay's factor, smaller in the first steps."""
        return min(1.0, (step + 1) / self.over) * self.then.factor(step, steps)


@dataclass(frozen=True)
class RiseAndFall(Decay):
    """Up by one learning rate a step to the middle of the way, and down again."""

    def factor(self, step: int, steps: int) -> float:
        """One in the first and the last step, half of the steps in the middle."""
        return float(max(0, min(step + 1, steps - step)))
