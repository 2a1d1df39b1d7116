"""Optimisation: learning-rate schedules, optimisers as frozen settings, and the one loop that all attacks use.

An optimiser (`Method`) holds settings only; the point and its memory are plain tensors by name, returned anew by every
step. The loop (`minimise`) prints nothing, can be resumed from its state, and uses only the attacker's own loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.errors import BadInput, check_whole
from fedxray.params import each, flatten, is_finite, unflatten
from fedxray.progress import Report, Step, silent

# Learning-rate schedules


class Decay(ABC):
    """A schedule of the learning rate."""

    @abstractmethod
    def factor(self, step: int, steps: int) -> float:
        """The factor of the learning rate at a step, counted from 0, of `steps` in total."""


@dataclass(frozen=True)
class Constant(Decay):
    """A constant learning rate."""

    def factor(self, step: int, steps: int) -> float:
        """One."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Stairs(Decay):
    """A learning rate that drops at shares `at` of the steps; by default as in Inverting Gradients."""

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    by: float = 0.1

    def factor(self, step: int, steps: int) -> float:
        """`by` to the power of the number of drops so far."""
        return self.by ** sum(step >= share * steps for share in self.at)


@dataclass(frozen=True, kw_only=True)
class Cosine(Decay):
    """Half a cosine from 1 down to `end`."""

    end: float = 0.0

    def factor(self, step: int, steps: int) -> float:
        """1 at the first step, falling to `end`."""
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * step / steps)) / 2


@dataclass(frozen=True, kw_only=True)
class Exponential(Decay):
    """A factor `by` for every `every` steps, smoothly in between."""

    by: float
    every: int = 1

    def factor(self, step: int, steps: int) -> float:
        """`by` to the power of step / every."""
        return float(self.by ** (step / self.every))


@dataclass(frozen=True, kw_only=True)
class WarmUp(Decay):
    """A linear rise over the first `over` steps, times another schedule."""

    over: int
    then: Decay = field(default_factory=Constant)

    def factor(self, step: int, steps: int) -> float:
        """The factor of `then`, reduced in the first steps."""
        return min(1.0, (step + 1) / self.over) * self.then.factor(step, steps)


@dataclass(frozen=True)
class RiseAndFall(Decay):
    """A factor that rises by 1 in every step up to the middle, and falls again."""

    def factor(self, step: int, steps: int) -> float:
        """1 in the first and the last step, half the number of steps in the middle."""
        return float(max(0, min(step + 1, steps - step)))


# Optimisers

Tensors = Mapping[str, Tensor]
Moved = tuple[dict[str, Tensor], dict[str, Tensor]]  # the next point, and the memory of the optimiser

MOST_RATE = 1e6  # largest learning rate, as for a federation


class Method(ABC):
    """An optimiser as settings; a subclass is a frozen keyword dataclass."""

    steps: int
    lr: float
    decay: Decay

    def __post_init__(self) -> None:
        """Refuse step counts and learning rates out of range."""
        check_whole("steps", self.steps, least=1, usual=400)
        if not 0 < self.lr <= MOST_RATE:
            expected = f"a number above 0 and up to {MOST_RATE:g}"
            raise BadInput("lr", expected=expected, got=repr(self.lr), remedy="Try 0.1.")

    @abstractmethod
    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """The memory before the first step."""

    @abstractmethod
    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """The next point and memory after step `step`, counted from 0; no argument is changed in place."""


@dataclass(frozen=True, kw_only=True)
class Sgd(Method):
    """Gradient descent, with momentum as in torch.optim.SGD."""

    steps: int
    lr: float
    momentum: float = 0.0
    decay: Decay = field(default_factory=Constant)

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """Velocities of zero."""
        return _named("velocity", each(torch.zeros_like, point))

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """A step of the learning rate along the velocity."""
        rate = self.lr * self.decay.factor(step, self.steps)
        velocity = {name: self.momentum * memory[f"velocity/{name}"] + value for name, value in gradient.items()}
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

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """Both moments at zero."""
        # Two sets of zeros: tensors that share memory cannot be stored.
        return _named("first", each(torch.zeros_like, point)) | _named("second", each(torch.zeros_like, point))

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One step by the same operations as torch.optim.Adam, so that both agree to the bit."""
        rate, (beta1, beta2) = self.lr * self.decay.factor(step, self.steps), self.betas
        first = {name: torch.lerp(memory[f"first/{name}"], value, 1 - beta1) for name, value in gradient.items()}
        second = {
            name: (memory[f"second/{name}"] * beta2).addcmul(value, value, value=1 - beta2)
            for name, value in gradient.items()
        }
        # Both moments start at zero; dividing by 1 - beta^t corrects that bias.
        size, root = rate / (1 - beta1 ** (step + 1)), (1 - beta2 ** (step + 1)) ** 0.5
        moved = {
            name: torch.addcdiv(value, first[name], (second[name].sqrt() / root).add(self.epsilon), value=-size)
            for name, value in point.items()
        }
        return moved, _named("first", first) | _named("second", second)


@dataclass(frozen=True, kw_only=True)
class SignedAdam(Adam):
    """Adam on the sign of every entry of the gradient (Inverting Gradients)."""

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One step of Adam on the signs."""
        return super().move(point, each(torch.sign, gradient), memory, step)


@dataclass(frozen=True, kw_only=True)
class Lbfgs(Method):
    """L-BFGS without a line search, as torch.optim.LBFGS takes its steps by default.

    `history` is the number of remembered pairs of moves and gradient changes; `reach` is the largest change of any
    entry in one step, longer steps are shortened.
    """

    steps: int
    lr: float = 1.0
    history: int = 100
    reach: float = math.inf
    decay: Decay = field(default_factory=Constant)

    least_curvature: ClassVar[float] = 1e-10  # pairs with a smaller product are not remembered
    least_descent: ClassVar[float] = 1e-9  # a direction with a smaller predicted decrease is not followed

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        check_whole("history", self.history, least=1, usual=100)
        if not self.reach > 0:
            raise BadInput("reach", expected="a number above 0", got=repr(self.reach), remedy="Try 1.0.")

    def fresh(self, point: Tensors) -> dict[str, Tensor]:
        """No point yet, shape [0, entries]; pairs of moves and gradient changes, [entries] each, are added later."""
        none = flatten(point)[None][:0]
        return {"point": none, "gradient": none}

    def move(self, point: Tensors, gradient: Tensors, memory: Tensors, step: int) -> Moved:
        """One quasi-Newton step over all tensors at once."""
        here, slope = flatten(point), flatten(gradient)  # each [entries]
        pairs = self._pairs(here, slope, memory)
        direction = -_inverse_hessian_times(slope, pairs)
        rate = self.lr * self.decay.factor(step, self.steps)
        if step == 0:  # there is no curvature yet to scale the step; torch divides by the L1 norm too
            rate *= min(1.0, 1.0 / max(float(slope.abs().sum()), 1e-300))
        if math.isfinite(self.reach):
            rate = min(rate, self.reach / max(float(direction.abs().max()), 1e-300))
        ahead = here + rate * direction if float(slope @ direction) <= -self.least_descent else here
        memory = {"point": here[None], "gradient": slope[None]}
        for index, (move, change) in enumerate(pairs):
            memory |= {f"move/{index}": move, f"change/{index}": change}
        return unflatten(ahead, point), memory

    def _pairs(self, here: Tensor, slope: Tensor, memory: Tensors) -> list[tuple[Tensor, Tensor]]:
        """The remembered pairs, oldest first, with the newest added; tensors are passed on, not copied."""
        # Two entries are the point and its gradient; rounding up lets an incomplete pair be noticed below.
        count = (len(memory) - 1) // 2
        names = [(f"move/{index}", f"change/{index}") for index in range(count)]
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
    """The inverse Hessian that the pairs describe, times slope [entries], by the two-loop recursion."""
    result, shares = slope, []
    curvatures = [float(move @ change) for move, change in pairs]
    for (move, change), curvature in zip(reversed(pairs), reversed(curvatures), strict=True):
        shares.append(float(move @ result) / curvature)
        result = torch.sub(result, change, alpha=shares[-1])
    if pairs:  # the first Hessian is a multiple of the identity, scaled by the newest pair
        newest = pairs[-1][1]
        result = result * (curvatures[-1] / float(newest @ newest))
    for (move, change), curvature, share in zip(pairs, curvatures, reversed(shares), strict=True):
        result = torch.add(result, move, alpha=share - float(change @ result) / curvature)
    return result


def _named(what: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{what}/{name}": value for name, value in tensors.items()}


# The optimisation loop

Loss = Callable[[dict[str, Tensor]], Tensor]  # named tensors in, a scalar out
Losses = Callable[[dict[str, Tensor]], Tensor]  # named tensors [starts, ...] in, one loss per start out
Project = Callable[[dict[str, Tensor]], dict[str, Tensor]]  # maps a point to the nearest valid one
Keep = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True)
class Changing:
    """A loss that changes during the descent: values before `settled` steps cannot be compared with later ones."""

    at: Callable[[dict[str, Tensor], int], Tensor]  # named tensors and steps taken so far in, a scalar out
    settled: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a minimisation; `curve` holds the loss at the start and after every step."""

    best: dict[str, Tensor]  # the point of lowest loss; of a changing loss, since it settled
    last: dict[str, Tensor]  # the last point with a finite loss
    best_loss: float  # infinite if not even the start had a finite loss
    curve: tuple[float, ...]
    status: Literal["ok", "diverged", "truncated"]
    reason: str
    steps: int  # steps taken in all, also before a resumption
    state: dict[str, Tensor]  # everything needed to resume

    def kept(self, keep: Keep) -> dict[str, Tensor]:
        """The best or the last point."""
        return self.best if keep == "best" else self.last

    def loss_of(self, keep: Keep) -> float:
        """The loss at the best or the last point."""
        if keep == "best":
            return self.best_loss
        return next((value for value in reversed(self.curve) if math.isfinite(value)), math.inf)


@dataclass
class _Walk:
    """The moving parts of one minimisation."""

    point: dict[str, Tensor]
    memory: dict[str, Tensor]
    best: dict[str, Tensor]
    last: dict[str, Tensor]
    curve: list[float]
    step: int = 0
    best_loss: float = math.inf


def minimise(
    loss: Loss | Changing,
    start: Tensors,
    method: Method,
    *,
    report: Report = silent,
    project: Project | None = None,
    budget: int | None = None,
    state: Tensors | None = None,
    what: str = "inversion",
) -> Outcome:
    """Take the method's steps from `start`, or resume from a `state`, and return the best and the last point.

    `project` is applied after every step, not to the start itself. `budget` is the largest number of steps in this
    call. `what` names the loop in the calls of `report`. The best point is the one of lowest loss; of a changing loss
    the latest one until it has settled. A loss or gradient that is not finite ends it as "diverged", a budget that
    runs out as "truncated".
    """
    point, settled = each(torch.detach, start), loss.settled if isinstance(loss, Changing) else 0
    walk = (
        _Walk(point, method.fresh(point), point, point, []) if state is None else _unpack(state, point, method, settled)
    )
    stop = method.steps if budget is None else min(method.steps, walk.step + budget)
    value, gradient = _slope(loss, walk) if walk.step < stop or not walk.curve else (walk.curve[-1], None)
    if not walk.curve and (trouble := _note(walk, value, settled)):
        return _outcome(walk, "diverged", trouble)
    while walk.step < stop:
        if gradient is None or not is_finite(gradient):
            return _outcome(walk, "diverged", f"the gradient was not finite at step {walk.step}")
        with torch.no_grad():
            walk.point, walk.memory = method.move(walk.point, gradient, walk.memory, walk.step)
            walk.point = project(walk.point) if project is not None else walk.point
        walk.step += 1
        value, gradient = _slope(loss, walk) if walk.step < stop else (_value(loss, walk), None)
        if trouble := _note(walk, value, settled):
            return _outcome(walk, "diverged", trouble)
        report(Step(what, walk.step, method.steps, value))
    if walk.step < method.steps:
        return _outcome(walk, "truncated", f"stopped after {walk.step} of {method.steps} steps")
    return _outcome(walk, "ok", "")


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """Several minimisations and the index of the one with the lowest own loss at the point that is kept."""

    outcomes: tuple[Outcome, ...]
    chosen: int

    @property
    def outcome(self) -> Outcome:
        """The chosen minimisation."""
        return self.outcomes[self.chosen]


def restarts(
    loss: Loss | Changing,
    starts: Sequence[Tensors],
    method: Method,
    *,
    report: Report = silent,
    project: Project | None = None,
    what: str = "inversion",
    keep: Keep = "best",
    stacked: Losses | None = None,
) -> Restarts:
    """Minimise from every start in turn and choose by the own loss of the kept point; the first wins a tie.

    `keep` says whether a minimisation is represented by its best or its last point. With `stacked`, the same loss for
    all starts at once, they are minimised in one loop, equally to rounding; entrywise methods only.
    """
    if not starts:
        raise BadInput("starts", expected="at least one start", got="none", remedy="Set restarts to 1 or more.")
    total = len(starts) * method.steps

    def shifted(index: int) -> Report:
        return lambda step: report(Step(what, index * method.steps + step.done, total, step.loss))

    together = None if stacked is None else _together(stacked, starts, method, report, project, what)
    outcomes = together or [
        minimise(loss, start, method, report=shifted(index), project=project, what=what)
        for index, start in enumerate(starts)
    ]
    settled = loss.settled if isinstance(loss, Changing) else 0

    def rank(index: int) -> tuple[bool, float]:
        return outcomes[index].steps < settled, outcomes[index].loss_of(keep)  # what never settled comes last

    return Restarts(outcomes=tuple(outcomes), chosen=min(range(len(outcomes)), key=rank))


ALL = "all"  # name of the matrix [starts, entries] that holds all tensors of all starts


def _together(
    losses: Losses, starts: Sequence[Tensors], method: Method, report: Report, project: Project | None, what: str
) -> list[Outcome] | None:
    """All minimisations in one loop; None where a loss or gradient is not finite, since that ends only one of them.

    Small tensors cost as much as the number of operations on them, so all of them are one matrix.
    """
    point = {ALL: torch.stack([flatten(start).detach() for start in starts])}
    memory, best, curve = method.fresh(point), point[ALL], list[Tensor]()
    lowest = point[ALL].new_full((len(starts),), math.inf)
    for step in range(method.steps + 1):
        values, gradient = _slopes(losses, point, starts[0])
        if not is_finite({"loss": values, **gradient}):
            return None
        curve.append(values)
        better = values < lowest
        best, lowest = torch.where(better[:, None], point[ALL], best), torch.where(better, values, lowest)
        if step:
            report(Step(what, step * len(starts), method.steps * len(starts), float(values.min())))
        if step < method.steps:
            with torch.no_grad():
                point, memory = method.move(point, gradient, memory, step)
                point = point if project is None else _joined(project(_apart(point[ALL], starts[0])), starts[0])
    ends = zip(_each(point, starts), _each(memory, starts), _each({ALL: best}, starts), strict=True)
    curves = torch.stack(curve, 1).tolist()
    return [
        _outcome(_Walk(last, kept, first, last, curves[index], method.steps, float(lowest[index])), "ok", "")
        for index, (last, kept, first) in enumerate(ends)
    ]


def _slopes(losses: Losses, point: Tensors, like: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """The losses [starts] of all starts and their gradients; the gradient of the sum is that of each by itself."""
    with torch.enable_grad():
        leaf = point[ALL].detach().requires_grad_()
        values = losses(_apart(leaf, like))
        gradient = torch.autograd.grad(values.sum(), leaf, materialize_grads=True)[0]
    return values.detach(), {ALL: gradient}


def _apart(matrix: Tensor, like: Tensors) -> dict[str, Tensor]:
    """A matrix [starts, entries] as named tensors [starts, ...]."""
    pieces = torch.split(matrix, [value.numel() for value in like.values()], 1)
    return {name: piece.reshape(-1, *value.shape) for (name, value), piece in zip(like.items(), pieces, strict=True)}


def _joined(tensors: Tensors, like: Tensors) -> dict[str, Tensor]:
    """Named tensors [starts, ...] as one matrix, in the order of `like`."""
    return {ALL: torch.cat([tensors[name].reshape(len(tensors[name]), -1) for name in like], 1)}


def _each(tensors: Tensors, starts: Sequence[Tensors]) -> list[dict[str, Tensor]]:
    """Matrices called "all" or ".../all", start by start, with the names of its tensors in place of "all"."""
    cut = {name.removesuffix(ALL): _apart(value, starts[0]) for name, value in tensors.items()}
    return [
        {before + name: value[index].clone() for before, named in cut.items() for name, value in named.items()}
        for index in range(len(starts))
    ]


def _slope(loss: Loss | Changing, walk: _Walk) -> tuple[float, dict[str, Tensor]]:
    """The loss at the current point and its gradient; a tensor that the loss does not use has gradient zero."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in walk.point.items()}
        value = _measured(loss, leaves, walk.step)
        gradient = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return float(value.detach()), dict(zip(leaves, gradient, strict=True))


def _value(loss: Loss | Changing, walk: _Walk) -> float:
    """The loss at the current point; gradients stay enabled, since the loss of an inversion is built from them."""
    with torch.enable_grad():
        return float(_measured(loss, each(torch.detach, walk.point), walk.step).detach())


def _measured(loss: Loss | Changing, point: dict[str, Tensor], step: int) -> Tensor:
    return loss.at(point, step) if isinstance(loss, Changing) else loss(point)


def _note(walk: _Walk, value: float, settled: int) -> str:
    """Append the loss at the current point to the curve; returns what is wrong with it, or an empty text."""
    walk.curve.append(value)
    if not math.isfinite(value):
        return f"the loss was {value} after step {walk.step}"
    walk.last = walk.point
    if value < walk.best_loss or walk.step <= settled:
        walk.best, walk.best_loss = walk.point, value
    return ""


def _outcome(walk: _Walk, status: Literal["ok", "diverged", "truncated"], reason: str) -> Outcome:
    return Outcome(
        best=walk.best,
        last=walk.last,
        best_loss=walk.best_loss,
        curve=tuple(walk.curve),
        status=status,
        reason=reason,
        steps=walk.step,
        state=_pack(walk),
    )


def _pack(walk: _Walk) -> dict[str, Tensor]:
    """The minimisation so far as plain tensors by name."""
    groups = {"point": walk.point, "memory": walk.memory, "best": walk.best, "last": walk.last}
    packed = {f"{group}/{name}": value for group, tensors in groups.items() for name, value in tensors.items()}
    packed["curve"] = torch.tensor(walk.curve, dtype=torch.float64, device="cpu")
    packed["step"] = torch.tensor(walk.step, dtype=torch.int64, device="cpu")
    return packed


def _unpack(state: Tensors, start: Tensors, method: Method, settled: int) -> _Walk:
    """The minimisation that a state holds, refused where it belongs to other tensors or to another method."""
    groups: dict[str, dict[str, Tensor]] = {"point": {}, "memory": {}, "best": {}, "last": {}}
    for name, value in state.items():
        group, _, rest = name.partition("/")
        if rest:
            groups.setdefault(group, {})[rest] = value
    for group in ("point", "best", "last"):
        if _shapes(groups[group]) != _shapes(start):
            raise _foreign(f"a {group} of {_shapes(start)}", _shapes(groups[group]) or "nothing")
    missing = [name for name in ("curve", "step") if name not in state]
    missing += [f"memory/{name}" for name in method.fresh(start) if name not in groups["memory"]]
    unknown = sorted(groups.keys() - {"point", "memory", "best", "last"})
    if missing or unknown:
        got = f"nothing called {missing[0]}" if missing else f"something called {unknown[0]}"
        raise _foreign(f"a state of {type(method).__name__}", got)
    curve = state["curve"].tolist()
    finite = [value for value in curve if math.isfinite(value)]  # all but perhaps the last
    lowest = min(finite[settled:], default=finite[-1] if finite else math.inf)
    return _Walk(**groups, curve=curve, step=int(state["step"]), best_loss=lowest)


def _shapes(tensors: Tensors) -> str:
    return ", ".join(f"{name} {list(value.shape)}" for name, value in sorted(tensors.items()))


def _foreign(expected: str, got: str) -> BadInput:
    remedy = "Resume with the start and method that the state came from."
    return BadInput("state", expected=expected, got=got, remedy=remedy)
