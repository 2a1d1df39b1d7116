"""The optimisation loop of all attacks: silent, resumable, guided by the attacker's own loss alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.methods import Method, Tensors
from fedxray.params import each, is_finite
from fedxray.progress import Report, Step, silent

Loss = Callable[[dict[str, Tensor]], Tensor]  # named tensors in, a scalar out
Project = Callable[[dict[str, Tensor]], dict[str, Tensor]]
Keep = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True)
class Changing:
    """A loss that changes on the way, so that its values before `settled` steps cannot be compared."""

    at: Callable[
        [dict[str, Tensor], int], Tensor
    ]  # named tensors and the steps taken so far in, a scalar out
    settled: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a minimisation ended; `curve` holds the loss at the start and after every step."""

    best: dict[str, Tensor]  # where the loss was lowest, of a changing one since it settled
    last: dict[str, Tensor]  # the last point with a finite loss
    best_loss: float  # infinite when not even the start had a finite one
    curve: tuple[float, ...]
    status: Literal["ok", "diverged", "truncated"]
    reason: str
    steps: int  # steps taken in all, also before a resumption
    state: dict[str, Tensor]  # all that is needed to go on

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
    """Take the method's steps downhill from `start`, or go on from a `state`, with a projection after each.

    The best point is the one of lowest loss; of a changing loss the latest one until it has settled. A loss or
    gradient that is not finite ends it as "diverged", `budget` steps in this call, with more left, as "truncated".
    The start itself is not projected.
    """
    point, settled = each(torch.detach, start), loss.settled if isinstance(loss, Changing) else 0
    walk = (
        _Walk(point, method.fresh(point), point, point, [])
        if state is None
        else _unpack(state, point, method, settled)
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
    """Several minimisations and the one whose own loss, at the point that is kept, came out lowest."""

    outcomes: tuple[Outcome, ...]
    chosen: int

    @property
    def outcome(self) -> Outcome:
        """The chosen one."""
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
) -> Restarts:
    """Minimise from every start in turn and choose by the own loss of what is kept; the first wins a tie."""
    if not starts:
        raise BadInput(
            "starts", expected="at least one start", got="none", remedy="Set restarts to 1 or more."
        )
    found = []
    total = len(starts) * method.steps

    def shifted(place: int) -> Report:
        return lambda step: report(Step(what, place * method.steps + step.done, total, step.loss))

    for place, start in enumerate(starts):
        found.append(minimise(loss, start, method, report=shifted(place), project=project, what=what))
    settled = loss.settled if isinstance(loss, Changing) else 0

    def rank(place: int) -> tuple[bool, float]:
        return found[place].steps < settled, found[place].loss_of(keep)  # what never settled comes last

    return Restarts(outcomes=tuple(found), chosen=min(range(len(found)), key=rank))


def _slope(loss: Loss | Changing, walk: _Walk) -> tuple[float, dict[str, Tensor]]:
    """The loss at the present point and its gradient; a tensor that the loss does not use has gradient zero."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in walk.point.items()}
        value = _measured(loss, leaves, walk.step)
        found = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return float(value.detach()), dict(zip(leaves, found, strict=True))


def _value(loss: Loss | Changing, walk: _Walk) -> float:
    """The loss at the present point; gradients stay possible inside, since an inversion's loss is made of them."""
    with torch.enable_grad():
        return float(_measured(loss, each(torch.detach, walk.point), walk.step).detach())


def _measured(loss: Loss | Changing, point: dict[str, Tensor], step: int) -> Tensor:
    return loss.at(point, step) if isinstance(loss, Changing) else loss(point)


def _note(walk: _Walk, value: float, settled: int) -> str:
    """Write down the loss at the present point; what is wrong with it, if anything."""
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
    """The walk as plain tensors by name."""
    groups = {"point": walk.point, "memory": walk.memory, "best": walk.best, "last": walk.last}
    packed = {
        f"{group}/{name}": value for group, tensors in groups.items() for name, value in tensors.items()
    }
    packed["curve"] = torch.tensor(walk.curve, dtype=torch.float64, device="cpu")
    packed["step"] = torch.tensor(walk.step, dtype=torch.int64, device="cpu")
    return packed


def _unpack(state: Tensors, start: Tensors, method: Method, settled: int) -> _Walk:
    """The walk that a state holds, refused when it belongs to other tensors or to another method."""
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
    strange = sorted(groups.keys() - {"point", "memory", "best", "last"})
    if missing or strange:
        got = f"nothing called {missing[0]}" if missing else f"something called {strange[0]}"
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
