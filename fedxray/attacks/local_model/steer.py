"""Active servers that walk one client's model downhill, taking each reply for a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedxray.errors import check_whole
from fedxray.federation.tamper import Tamper
from fedxray.methods import Method
from fedxray.params import Params, add, dot, norm, scaled, subtract


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Where a walk stands."""

    method: Method
    point: dict[str, Tensor]  # what will be sent next
    memory: dict[str, Tensor]  # of the method
    rate: float = (
        1.0  # what turns a reply into a change of the model: of gradients, the client's learning rate
    )
    sizes: tuple[float, ...] = ()  # norm of the pseudo-gradient, step by step
    returned: dict[str, Tensor] | None = None  # what came back last

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return len(self.sizes)

    def after(self, update: Params) -> Walk:
        """The walk after a reply; the pseudo-gradient is sent minus returned, or the gradient that was sent."""
        point, memory = self.method.move(self.point, scaled(update, -1.0), self.memory, self.steps)
        return replace(
            self,
            point=point,
            memory=memory,
            sizes=(*self.sizes, float(norm(update))),
            returned=add(self.point, update, self.rate),
        )


def walk_from(point: dict[str, Tensor], method: Method, rate: float = 1.0) -> Walk:
    """A walk that has not moved yet."""
    return Walk(method=method, point=point, memory=method.fresh(point), rate=rate)


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
class Trial:
    """A walk that is tried, and what came of asking on the straight line from its start to its end."""

    walk: Walk
    begin: dict[str, Tensor]
    rises: tuple[float, ...] = ()  # slope times the whole line, at each place asked

    @property
    def line(self) -> dict[str, Tensor]:
        """From the start to the end."""
        return subtract(self.walk.point, self.begin)

    @property
    def rise(self) -> float:
        """How far the client's loss rose from start to end, in units of her replies: the mean over both places."""
        return sum(self.rises) / len(self.rises)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Trials that ended, and the walk under way."""

    done: tuple[Trial, ...] = ()
    now: Trial
    chosen: Walk | None = None

    @property
    def walk(self) -> Walk:
        """The walk that goes on."""
        return self.now.walk if self.chosen is None else self.chosen


@dataclass(frozen=True, kw_only=True)
class TryThenSteer:
    """A tamper that tries several walks for some steps each and goes on with the best of them.

    `judge` sees what the adversary sees; smaller is better, and the first wins a tie. `asked` are places on the line
    from start to end, as shares, that are sent at the end of each trial.
    """

    trials: tuple[Walk, ...]
    trial_steps: int
    judge: Callable[[Trial], float]
    asked: tuple[float, ...] = ()

    def start(self) -> Tried:
        """The first trial, or the walk itself where there is nothing to choose."""
        return Tried(now=_fresh(self.trials[0]))

    @property
    def rounds_of_trials(self) -> int:
        """Rounds until a walk is chosen; none where there is nothing to choose."""
        return (self.trial_steps + len(self.asked)) * len(self.trials) if len(self.trials) > 1 else 0

    def send(
        self, state: Tried, round: int, client: int, broadcast: Params
    ) -> tuple[dict[str, Tensor], Tried]:
        """The point of the walk under way, or a place on its line."""
        now = state.now
        if state.chosen is not None or self._walking(now):
            return state.walk.point, state
        return add(now.begin, now.line, self.asked[len(now.rises)]), state

    def receive(self, state: Tried, round: int, client: int, update: Params) -> Tried:
        """One step, or one answer on the line; after the last, the next trial or the best of all."""
        if state.chosen is not None:
            return replace(state, chosen=state.chosen.after(update))
        now = state.now
        if self._walking(now):
            now = replace(now, walk=now.walk.after(update))
        else:
            now = replace(now, rises=(*now.rises, -float(dot(now.line, update))))
        if self._walking(now) or len(now.rises) < len(self.asked):
            return replace(state, now=now)
        done = (*state.done, now)
        if len(done) < len(self.trials):
            return Tried(done=done, now=_fresh(self.trials[len(done)]))
        return Tried(done=done, now=now, chosen=min(done, key=self.judge).walk)

    def _walking(self, now: Trial) -> bool:
        return len(self.trials) == 1 or now.walk.steps < self.trial_steps


def _fresh(walk: Walk) -> Trial:
    return Trial(walk=walk, begin=walk.point)


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
        check_whole(name, value, least=1, usual=10)
