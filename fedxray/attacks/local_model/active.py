"""A client's local model by an active server that runs Adam on her replies (paper 003, Alg. 3).

The server sends a model of its own, takes sent minus returned for a gradient, makes one step of Adam and
sends the result.

Where we differ: the paper keeps one step size and tunes it, with Adam's betas, on the client's own loss, in fifty full
attacks that it does not count. By default (`tune = "recorded"`) no round is spent on tuning: the first step moves an
entry as far as the client's recorded updates usually do, the step size grows by as much every round up to half of the
rounds and falls back to that (`pace = "rise-and-fall"`; of more than 50 rounds, to the same height more slowly).
Adam's first steps know little of the sizes of the gradients and overshoot when they are large; the last ones should be
small because replies are noisy. This pace was chosen on runs of one seed whose losses were looked at (Medical and
incomes, seed 11), and measured on others. `tune = "search"` makes
whole attacks with several settings and keeps the best by the client's replies: `judge = "line"` asks at two places
between start and end of a trial; a reply is a slope, so these tell how far her loss fell (a Gauss rule, up to a factor
that all trials share); `judge = "norm"` how small the pseudo-gradient became, as the paper's code offers, which prefers
steps too small to get anywhere. `tune = "oracle-loss"` with `pace = "constant"` is the paper's way and needs that
grant. Every round of a trial is counted. The paper returns the model to be sent next (`answer = "sent"`); its code
scores what the client returned last (`answer = "returned"`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Exchange, View
from fedxray.attacks.base import Attack, Context, Need, granted, line_to_the_client, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.baselines import step_size
from fedxray.attacks.local_model.messages import last_of, returned, step_of
from fedxray.errors import BadInput, check_one_of, check_whole
from fedxray.federation.tamper import Tamper
from fedxray.optim import Adam, Constant, Method, RiseAndFall, Sgd, check_settings
from fedxray.params import Params, add, dot, flatten, is_finite, norm, scaled, subtract
from fedxray.seeds import fork

# --- Active servers that walk one client's model downhill, taking each reply for a gradient.


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


HIGHEST = 25  # times the first step where there are 50 rounds or fewer; more rounds rise slower, no higher
LR_AROUND = 0.1, 10.0  # times the recorded guess, log-uniform
BETAS_BETWEEN = 0.6, 0.999  # uniform, as the paper's code draws them
GAUSS = 0.5 - 3**-0.5 / 2, 0.5 + 3**-0.5 / 2  # places of the two-point Gauss rule on a line


@dataclass(frozen=True, kw_only=True)
class LocalModelActive(Attack):
    """Adam through the client's replies."""

    name: ClassVar[str] = "local-model-active"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("active-server",)
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe", "oracle-loss")
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"active_rounds": 6}

    active_rounds: int = 50  # steps of the attack itself, without trials that were given up
    every: int = 1  # 1 = consecutive rounds
    tune: Literal["recorded", "search", "oracle-loss"] = "recorded"
    lr: float | None = None  # first step size; given, nothing is tuned
    betas: tuple[float, float] = (0.9, 0.999)
    boost: float = 1.0  # first step in usual entries of the recorded updates
    pace: Literal["rise-and-fall", "constant"] = "rise-and-fall"
    trials: int = 8
    trial_rounds: int | None = (
        None  # None = whole attacks, since short ones prefer other steps than long ones
    )
    judge: Literal["line", "norm"] = "line"
    answer: Literal["sent", "returned"] = "sent"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_counts(
            active_rounds=self.active_rounds,
            every=self.every,
            trials=self.trials,
            trial_rounds=self._rounds_of_a_trial,
        )
        check_settings(Adam(steps=1, lr=self.boost if self.lr is None else self.lr))
        check_one_of("pace", self.pace, ("rise-and-fall", "constant"))
        check_one_of("judge", self.judge, ("line", "norm"))
        check_one_of("tune", self.tune, ("recorded", "search", "oracle-loss"))
        check_one_of("answer", self.answer, ("sent", "returned"))
        if not all(0 <= beta < 1 for beta in self.betas):
            expected, remedy = "two numbers from 0 up to but below 1", "Try [0.9, 0.999]."
            raise BadInput("betas", expected=expected, got=list(self.betas), remedy=remedy)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies and a line to her; the paper's tuning needs her loss."""
        oracle = (granted("oracle-loss"),) if self.tune == "oracle-loss" and self.lr is None else ()
        return (single_replies(), line_to_the_client(), step_size(), *oracle)

    def attack(self, view: View, context: Context) -> Evidence:
        """Trials if any, then Alg. 3 with the best of them."""
        assert view.channel is not None and view.target is not None
        last = last_of(view.of_target())
        start, rate = returned(view, last), step_of(view, last)  # line 1
        walks = tuple(walk_from(start, method, rate) for method in self._methods(view, context.generator))
        inner = TryThenSteer(
            trials=walks,
            trial_steps=self._rounds_of_a_trial,
            judge=self._judge(view),
            asked=GAUSS if self.tune == "search" and self.judge == "line" else (),
        )
        more = self.active_rounds - (inner.trial_steps if len(walks) > 1 else 0)
        spent = view.channel(
            Spaced(inner=inner, every=self.every),
            rounds=spaced_rounds(inner.rounds_of_trials + more, self.every),
            clients=[view.target],
        )
        return self._evidence(view, spent, inner.rounds_of_trials + more)

    @property
    def _rounds_of_a_trial(self) -> int:
        return self.active_rounds if self.trial_rounds is None else min(self.trial_rounds, self.active_rounds)

    @property
    def _slowed(self) -> float:
        """How much smaller the first step is where so many rounds would rise too high."""
        return 1.0 if self.pace == "constant" else min(1.0, 2 * HIGHEST / self.active_rounds)

    def _adam(self, lr: float, betas: tuple[float, float]) -> Adam:
        decay = RiseAndFall() if self.pace == "rise-and-fall" else Constant()
        return Adam(steps=self.active_rounds, lr=lr, betas=betas, decay=decay)

    def _methods(self, view: View, generator: torch.Generator) -> list[Adam]:
        """The settings to try, the first of them those of the fields."""
        usual = usual_entry(view) * self.boost * self._slowed if self.lr is None else self.lr
        first = self._adam(usual, self.betas)
        if self.lr is not None or self.tune == "recorded":
            return [first]
        more = [self._drawn(usual, fork(generator, "trial", place)) for place in range(1, self.trials)]
        return [first, *more]

    def _drawn(self, usual: float, generator: torch.Generator) -> Adam:
        shares = torch.rand(3, generator=generator, dtype=torch.float64, device="cpu").tolist()
        low, high = LR_AROUND
        least, most = BETAS_BETWEEN
        betas = tuple(least + share * (most - least) for share in shares[1:])
        rate = usual * low * (high / low) ** shares[0]
        return self._adam(rate, (betas[0], betas[1]))

    def _judge(self, view: View) -> Callable[[Trial], float]:
        """How bad a trial is: by the replies, or by the client's own loss where that is granted."""
        if self.tune == "oracle-loss":
            oracle = view.grants.oracle.get("oracle-loss")
            return lambda trial: _finite(oracle.of(view.model, trial.walk.point)) if oracle else 0.0
        if self.judge == "norm":
            return lambda trial: _finite(trial.walk.sizes[-1])
        return lambda trial: _finite(trial.rise)

    def _evidence(self, view: View, spent: Exchange, rounds: int) -> Evidence:
        last, walk = last_of(view.of_target()), spent.state[1].walk
        model: dict[str, Tensor] = walk.point if self.answer == "sent" else walk.returned or walk.point
        finite, method = is_finite(model), walk.method
        assert isinstance(method, Adam)
        return of_model(
            model,
            last_of(spent.observations).buffers_after or last.buffers_after or last.buffers,
            status="ok" if finite else "diverged",
            reason="" if finite else "the client's model was no longer finite: lower the step size",
            curve=walk.sizes,
            rounds_spent=rounds,
            facts={
                "lr": method.lr,
                "betas": list(method.betas),
                "rounds_passed": spent.rounds_spent,
                "rounds_of_trials": rounds - walk.steps,
            },
        )


def _finite(badness: float) -> float:
    return badness if math.isfinite(badness) else math.inf


def usual_entry(view: View) -> float:
    """The root mean square of how far the client's recorded replies move an entry of the model."""
    moves = [flatten(one.update).double() * step_of(view, one) for one in view.of_target()]
    squares = [move.square().mean() for move in moves]
    size = float(torch.stack(squares).mean().sqrt())
    return size if 0 < size < float("inf") else 1.0


# --- A client isolated by an active server that sends her own model back to her (paper 003, section 4.2).
#
# Round after round she trains on alone and so nears her own optimum; for least squares at the rate |I - W|.
# Where a client sends gradients, the server takes the step for her, at the recipe's learning rate where it
# is known.


@dataclass(frozen=True, kw_only=True)
class LocalModelSendBack(Attack):
    """What the client makes of her own model in so many rounds."""

    name: ClassVar[str] = "local-model-send-back"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("active-server",)
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"active_rounds": 5}

    active_rounds: int = 50
    every: int = 1  # 1 = consecutive rounds

    def __post_init__(self) -> None:
        """Check the settings."""
        check_counts(active_rounds=self.active_rounds, every=self.every)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies, a line to her, and her step size where she sends gradients."""
        return (single_replies(), line_to_the_client(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """Send back whatever came back."""
        last, spent = last_of(view.of_target()), isolate(view, self.active_rounds, self.every)
        walk: Walk = spent.state[1]
        finite = is_finite(walk.point)
        return of_model(
            walk.point,
            last_of(spent.observations).buffers_after or last.buffers_after or last.buffers,
            status="ok" if finite else "diverged",
            reason="" if finite else "the client's model was no longer finite",
            curve=walk.sizes,
            rounds_spent=walk.steps,
            facts={"rounds_passed": spent.rounds_spent},
        )


def isolate(view: View, steps: int, every: int = 1) -> Exchange:
    """Send the target its own last model back, so often; where it sends gradients, with the recipe's step."""
    assert view.channel is not None and view.target is not None
    last = last_of(view.of_target())
    rate = step_of(view, last)
    method = Sgd(steps=steps, lr=rate)  # sent - (sent - returned) is what was returned
    tamper = Spaced(inner=Steer(begin=walk_from(returned(view, last), method, rate)), every=every)
    return view.channel(tamper, rounds=spaced_rounds(steps, every), clients=[view.target])
