"""Adam with some noise after every step, which depends on the seed and the step alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fedxray.decays import Constant, Decay
from fedxray.methods import Adam, Method, Moved, Tensors
from fedxray.seeds import fork, normal_like


@dataclass(frozen=True, kw_only=True)
class Langevin(Method):
    """Adam, and after each of its steps normal noise of `noise` times the present learning rate."""

    steps: int
    lr: float
    noise: float
    seed: int
    decay: Decay = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the settings that Adam has."""
        self.adam()

    def adam(self) -> Adam:
        """The same without noise."""
        return Adam(steps=self.steps, lr=self.lr, decay=self.decay)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """What Adam remembers."""
        return self.adam().fresh(point)

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """A step of Adam, then the noise."""
        moved, kept = self.adam().move(point, gradient, memory, step)
        size = self.noise * self.lr * self.decay.factor(step, self.steps)
        noisy = {
            name: value + size * normal_like(value, fork(self.seed, "step", step, name))
            for name, value in moved.items()
        }
        return noisy if size else moved, kept
