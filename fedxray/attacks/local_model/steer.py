"""Active servers that walk one client's model downhill, taking each reply for a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedxray.errors import BadInput
from fedxray.federation.tamper import Tamper
from fedxray.methods import Method
from fedxray.params import Params, add, norm, scaled


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Where a walk stands."""

    method: Method
    point: dict[str, Tensor]  # what will be sent next
    memory: dict[str, Tensor]  # of the method
    sizes: tuple[float, ...] = ()  # norm of the pseudo-gradient, step by step
    returned: dict[str, Tensor] | None = None  # what came back last

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return len(self.sizes)

    def after(self, update: Params) -> Walk:
        """The walk after a reply; the pseudo-gradient is sent minus returned, or the gradient that was sent."""
        point, memory = self.method.move(self.point, scaled(update, -1.0), self.memory, self.steps)
        sizes = (*self.sizes, float(norm(update)))
        back = add(self.point, update)
        return replace(self, point=point, memory=memory, sizes=sizes, returned=back)


def walk_from(point: dict[str, Tensor], method: Method) -> Walk:
    """A walk that has not moved yet."""
    return Walk(method=method, point=point, memory=method.fresh(point))


@dataclass(frozen=True, kw_only=True)
class Steer:
    """A tamper that sends the point of its walk and moves it by every reply; its state is the walk."""

    begin: Walk

    def start(self) -> Walk:
        """The walk as it was handed over."""
        return self.begin

    def send(self, state: Walk, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Walk]:
        """The point of the walk."""
        return state.point, state

    def receive(self, state: Walk, round: int, client: int, update: Params) -> Walk:
        """One step."""
        return state.after(update)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Walks that were tried, those that wait, and the one under way."""

    done: tuple[Walk, ...] = ()
    now: Walk


@dataclass(frozen=True, kw_only=True)
class TryThenSteer:
    """A tamper that tries several walks for some steps each and goes on with the best of them.

    `judge` sees what the adversary sees; smaller is better, and the first wins a tie.
    """

    trials: tuple[Walk, ...]
    trial_steps: int
    judge: Callable[[Walk], float]

    def start(self) -> Tried:
        """The first trial."""
        return Tried(now=self.trials[0])

    def send(
        self, state: Tried, round: int, client: int, broadcast: Params
    ) -> tuple[dict[str, Tensor], Tried]:
        """The point of the walk under way."""
        return state.now.point, state

    def receive(self, state: Tried, round: int, client: int, update: Params) -> Tried:
        """One step of it; after its last, the next trial or the best of all."""
        now = state.now.after(update)
        if len(state.done) == len(self.trials) or now.steps < self.trial_steps:
            return replace(state, now=now)
        done = (*state.done, now)
        if len(done) < len(self.trials):
            return Tried(done=done, now=self.trials[len(done)])
        return Tried(done=done, now=min(done, key=self.judge))


@dataclass(frozen=True, kw_only=True)
class Spaced:
    """A tamper that acts in every so many-th round only; in between the honest model goes out unchanged.

    Its state is the number of rounds so far and the state of the inner tamper.
    """

    inner: Tamper
    every: int

    def start(self) -> tuple[int, Any]:
        """Begin with a round in which it acts."""
        return 0, self.inner.start()

    def send(
        self, state: tuple[int, Any], round: int, client: int, broadcast: Params
    ) -> tuple[dict[str, Tensor], tuple[int, Any]]:
        """What the inner tamper sends, or the honest model."""
        count, inner = state
        if count % self.every:
            return dict(broadcast), state
        sent, inner = self.inner.send(inner, round, client, broadcast)
        return sent, (count, inner)

    def receive(self, state: tuple[int, Any], round: int, client: int, update: Params) -> tuple[int, Any]:
        """Hand on the reply to what the inner tamper sent."""
        count, inner = state
        known = inner if count % self.every else self.inner.receive(inner, round, client, update)
        return count + 1, known


def spaced_rounds(steps: int, every: int) -> int:
    """Rounds that so many steps take when only every so many-th round is used."""
    return (steps - 1) * every + 1


def check_counts(**counts: int) -> None:
    """Refuse numbers of rounds that cannot be meant."""
    for name, value in counts.items():
        if value < 1:
            raise BadInput(name, expected="a whole number of at least 1", got=value, remedy="Try 10.")


def lengths(walks: Sequence[Walk]) -> int:
    """Steps of several walks together."""
    return sum(walk.steps for walk in walks)
