"""Ways to take one step downhill: frozen settings, new tensors out, what is remembered as plain tensors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.decays import Constant, Decay
from fedxray.errors import BadInput
from fedxray.params import each, flatten, unflatten

Tensors = Mapping[str, Tensor]
Moved = tuple[dict[str, Tensor], dict[str, Tensor]]  # the next point, and what to remember

MOST_RATE = 1e6  # of a descent; as of a federation


class Method(ABC):
    """An optimiser as settings; a subclass is a frozen keyword dataclass."""

    steps: int
    lr: float
    decay: Decay

    @abstractmethod
    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """What to remember before the first step."""

    @abstractmethod
    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """The next point and what to remember; nothing given is changed."""


@dataclass(frozen=True, kw_only=True)
class Sgd(Method):
    """Gradient descent, with momentum as torch has it."""

    steps: int
    lr: float
    momentum: float = 0.0
    decay: Decay = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """No velocity yet."""
        return _named("velocity", each(torch.zeros_like, point))

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """A step of the learning rate along the velocity."""
        rate = self.lr * self.decay.factor(step, self.steps)
        velocity = {
            name: self.momentum * memory[f"velocity/{name}"] + value for name, value in gradient.items()
        }
        moved = {name: torch.sub(value, velocity[name], alpha=rate) for name, value in point.items()}
        return moved, _named("velocity", velocity)


@dataclass(frozen=True, kw_only=True)
class Adam(Method):
    """Adam, equal to torch.optim.Adam."""

    steps: int
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: Decay = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """Both moments at zero."""
        return _no_moments(point)

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One step of Adam."""
        rate = self.lr * self.decay.factor(step, self.steps)
        return _adam(point, gradient, memory, step, rate, self.betas, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class SignedAdam(Method):
    """Adam that is told only the sign of every entry of the gradient (Inverting Gradients)."""

    steps: int
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: Decay = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """Both moments at zero."""
        return _no_moments(point)

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One step of Adam on the signs."""
        rate = self.lr * self.decay.factor(step, self.steps)
        return _adam(point, each(torch.sign, gradient), memory, step, rate, self.betas, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Lbfgs(Method):
    """L-BFGS without a line search, as torch.optim.LBFGS takes its steps by default.

    `reach` is the largest change of any entry in one step; longer steps are shortened.
    """

    steps: int
    lr: float = 1.0
    history: int = 100
    reach: float = math.inf
    decay: Decay = field(default_factory=Constant)

    least_curvature: ClassVar[float] = 1e-10  # pairs below it are not remembered
    least_descent: ClassVar[float] = 1e-9  # a direction that promises less is not followed

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(self)
        if self.history < 1:
            raise BadInput(
                "history", expected="a whole number of at least 1", got=self.history, remedy="Try 100."
            )
        if not self.reach > 0:
            raise BadInput("reach", expected="a number above 0", got=repr(self.reach), remedy="Try 1.0.")

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """No point yet, [0, entries]; pairs of moves and changes, [entries] each, come one by one."""
        none = flatten(point)[None][:0]
        return {"point": none, "gradient": none}

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One quasi-Newton step over all tensors at once."""
        here, slope = flatten(point), flatten(gradient)
        pairs = self._pairs(here, slope, memory)
        direction = -_inverse_hessian_times(slope, pairs)
        rate = self.lr * self.decay.factor(step, self.steps)
        if step == 0:
            rate *= min(1.0, 1.0 / max(float(slope.abs().sum()), 1e-300))
        if math.isfinite(self.reach):
            rate = min(rate, self.reach / max(float(direction.abs().max()), 1e-300))
        ahead = here + rate * direction if float(slope @ direction) <= -self.least_descent else here
        kept = {"point": here[None], "gradient": slope[None]}
        for place, (move, change) in enumerate(pairs):
            kept |= {f"move/{place}": move, f"change/{place}": change}
        return unflatten(ahead, point), kept

    def _pairs(self, here: Tensor, slope: Tensor, memory: Tensors) -> list[tuple[Tensor, Tensor]]:
        """The remembered pairs, oldest first, with the newest added; tensors are handed on, not copied."""
        count = (
            len(memory) - 1
        ) // 2  # beside the point and its gradient; rounded up, to miss what is missing
        names = [(f"move/{place}", f"change/{place}") for place in range(count)]
        if any(name not in memory for both in names for name in both):
            remedy = "Resume with the method that the state came from."
            raise BadInput("state", expected="pairs of L-BFGS", got=", ".join(memory), remedy=remedy)
        pairs = [(memory[move], memory[change]) for move, change in names]
        if not len(memory["point"]):
            return pairs
        move, change = here - memory["point"][0], slope - memory["gradient"][0]
        if float(move @ change) <= self.least_curvature:
            return pairs
        return [*pairs, (move, change)][-self.history :]


def _inverse_hessian_times(slope: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The two-loop recursion: inverse Hessian, known by pairs of [entries], times slope [entries]."""
    result, shares = slope, []
    curvatures = [float(move @ change) for move, change in pairs]
    for (move, change), curvature in zip(reversed(pairs), reversed(curvatures), strict=True):
        shares.append(float(move @ result) / curvature)
        result = torch.sub(result, change, alpha=shares[-1])
    if pairs:
        newest = pairs[-1][1]
        result = result * (curvatures[-1] / float(newest @ newest))
    for (move, change), curvature, share in zip(pairs, curvatures, reversed(shares), strict=True):
        result = torch.add(result, move, alpha=share - float(change @ result) / curvature)
    return result


def _adam(
    point: Tensors,
    gradient: Tensors,
    memory: Tensors,
    step: int,
    rate: float,
    betas: tuple[float, float],
    epsilon: float,
) -> Moved:
    """Adam in the operations of torch.optim.Adam, so that both agree to the last bit."""
    first = {
        name: torch.lerp(memory[f"first/{name}"], value, 1 - betas[0]) for name, value in gradient.items()
    }
    second = {
        name: (memory[f"second/{name}"] * betas[1]).addcmul(value, value, value=1 - betas[1])
        for name, value in gradient.items()
    }
    size, root = rate / (1 - betas[0] ** (step + 1)), (1 - betas[1] ** (step + 1)) ** 0.5
    moved = {
        name: torch.addcdiv(value, first[name], (second[name].sqrt() / root).add(epsilon), value=-size)
        for name, value in point.items()
    }
    return moved, _named("first", first) | _named("second", second)


def _no_moments(point: Tensors) -> dict[str, Tensor]:
    return _named("first", each(torch.zeros_like, point)) | _named("second", each(torch.zeros_like, point))


def _named(what: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{what}/{name}": value for name, value in tensors.items()}


def check_settings(method: Method) -> None:
    """Refuse step counts and learning rates that cannot be meant."""
    if isinstance(method.steps, bool) or not isinstance(method.steps, int) or method.steps < 1:
        raise BadInput(
            "steps", expected="a whole number of at least 1", got=repr(method.steps), remedy="Try 400."
        )
    if not 0 < method.lr <= MOST_RATE:
        expected = f"a number above 0 and up to {MOST_RATE:g}"
        raise BadInput("lr", expected=expected, got=repr(method.lr), remedy="Try 0.1.")
