"""A client's local model by an active server: Adam on its replies, or sending its own model back.

`local-model-active` (Diana et al. 2025, Alg. 3): the server sends a model of its choice, treats sent minus returned as
a gradient, makes one step of Adam and sends the result.

Where we differ: the paper keeps one learning rate and tunes it, with Adam's betas, on the client's own loss, in fifty
full attacks that it does not count. By default (`tune = "recorded"`) no round is spent on tuning: the first step moves
an entry as far as the client's recorded updates usually do; the learning rate grows by as much every round up to half
of the rounds and falls back (`pace = "rise-and-fall"`; for more than 50 rounds, to the same height more slowly). Adam's
first steps have poor estimates of the gradients' magnitudes and overshoot when the rate is large; the last steps should
be small because replies are noisy. This schedule was chosen on runs of one seed with known losses (Medical and incomes,
seed 11), and evaluated on others. `tune = "search"` makes whole attacks with several settings and keeps the best by the
client's replies: `judge = "line"` queries two points between start and end of a trial; a reply is a gradient, so these
estimate how far its loss fell (a Gauss rule, up to a factor that all trials share); `judge = "norm"` uses the final
norm of the pseudo-gradient, as the paper's code offers, which prefers steps too small to make progress. `tune =
"oracle-loss"` with `pace = "constant"` is the paper's way and needs that grant. Every round of a trial is counted. The
paper returns the model to be sent next (`answer = "sent"`); its code scores what the client returned last (`answer =
"returned"`).

`local-model-send-back` (Diana et al. 2025, section 4.2) isolates the client: round after round it receives its own
model and so trains alone towards its own optimum; for least squares at the rate |I - W|. Where a client sends
gradients, the server makes the step, at the recipe's learning rate where it is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Exchange, View
from fedxray.attacks.base import Context, Need, granted, line_to_the_client, single_replies
from fedxray.attacks.evidence import Evidence, of_model
from fedxray.attacks.local_model.messages import LocalModelAttack, last_of, returned, step_of, step_size
from fedxray.federation.tamper import Tamper
from fedxray.optim import MOST_RATE, Adam, Constant, Method, RiseAndFall, Sgd
from fedxray.params import Params, add, dot, flatten, is_finite, norm, scaled, subtract
from fedxray.seeds import fork
from fedxray.settings import setting

# Tampers: active servers that descend on one client's loss, using each reply as a gradient


@dataclass(frozen=True, kw_only=True)
class ActiveDescent:
    """The state of a descent through a client's replies."""

    method: Method
    point: dict[str, Tensor]  # sent next
    memory: dict[str, Tensor]  # state of the method
    rate: float = 1.0  # turns a reply into a change of the model: for gradients the client's learning rate
    sizes: tuple[float, ...] = ()  # norm of the pseudo-gradient, step by step
    returned: dict[str, Tensor] | None = None  # the last returned model

    @property
    def steps(self) -> int:
        """Return the number of steps so far."""
        return len(self.sizes)

    def after(self, update: Params) -> ActiveDescent:
        """Return the state after a reply; the pseudo-gradient is sent minus returned, or the gradient itself."""
        point, memory = self.method.move(self.point, scaled(update, -1.0), self.memory, self.steps)
        sizes, answer = (*self.sizes, float(norm(update))), add(self.point, update, self.rate)
        return replace(self, point=point, memory=memory, sizes=sizes, returned=answer)


def walk_from(point: dict[str, Tensor], method: Method, rate: float = 1.0) -> ActiveDescent:
    """Return a descent that has not moved yet."""
    return ActiveDescent(method=method, point=point, memory=method.fresh(point), rate=rate)


@dataclass(frozen=True, kw_only=True)
class StepTrial:
    """A trial descent, and the replies on the straight line from its start to its end."""

    walk: ActiveDescent
    begin: dict[str, Tensor]
    rises: tuple[float, ...] = ()  # inner product of gradient and line, at each point queried

    @property
    def line(self) -> dict[str, Tensor]:
        """Return the vector from the start to the end."""
        return subtract(self.walk.point, self.begin)

    @property
    def rise(self) -> float:
        """Return the estimated rise of the client's loss from start to end, in units of its replies (Gauss rule)."""
        return sum(self.rises) / len(self.rises)


@dataclass(frozen=True, kw_only=True)
class TrialsState:
    """Finished trials, the trial under way, and the chosen descent once there is one."""

    done: tuple[StepTrial, ...] = ()
    now: StepTrial
    chosen: ActiveDescent | None = None

    @property
    def walk(self) -> ActiveDescent:
        """Return the descent under way."""
        return self.now.walk if self.chosen is None else self.chosen


@dataclass(frozen=True, kw_only=True)
class TryThenSteer:
    """A tamper that tries several descents for some steps each and continues with the best of them.

    `judge` uses what the attacker observes; smaller is better, and the first wins a tie. `asked` are points on the line
    from start to end, as shares, that are sent at the end of each trial.
    """

    trials: tuple[ActiveDescent, ...]
    trial_steps: int
    judge: Callable[[StepTrial], float]
    asked: tuple[float, ...] = ()

    def start(self) -> TrialsState:
        """Return the first trial, or the descent itself where there is nothing to choose."""
        return TrialsState(now=_fresh(self.trials[0]))

    @property
    def rounds_of_trials(self) -> int:
        """Return the number of rounds until a descent is chosen; 0 where there is nothing to choose."""
        return (self.trial_steps + len(self.asked)) * len(self.trials) if len(self.trials) > 1 else 0

    def send(
        self, state: TrialsState, round: int, client: int, broadcast: Params
    ) -> tuple[dict[str, Tensor], TrialsState]:
        """Send the current point of the descent under way, or a point on its line."""
        now = state.now
        if state.chosen is not None or self._walking(now):
            return state.walk.point, state
        return add(now.begin, now.line, self.asked[len(now.rises)]), state

    def receive(self, state: TrialsState, round: int, client: int, update: Params) -> TrialsState:
        """Make one step, or record one reply on the line; after the last, start the next trial or choose the best."""
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
            return TrialsState(done=done, now=_fresh(self.trials[len(done)]))
        return TrialsState(done=done, now=now, chosen=min(done, key=self.judge).walk)

    def _walking(self, now: StepTrial) -> bool:
        return len(self.trials) == 1 or now.walk.steps < self.trial_steps


def _fresh(walk: ActiveDescent) -> StepTrial:
    return StepTrial(walk=walk, begin=walk.point)


@dataclass(frozen=True, kw_only=True)
class Spaced:
    """A tamper that acts in every N-th round only; in between the honest model is sent unchanged.

    Its state is the number of rounds so far and the state of the inner tamper.
    """

    inner: Tamper
    every: int

    def start(self) -> tuple[int, Any]:
        """Return the initial state; it acts in the first round."""
        return 0, self.inner.start()

    def send(
        self, state: tuple[int, Any], round: int, client: int, broadcast: Params
    ) -> tuple[dict[str, Tensor], tuple[int, Any]]:
        """Send the inner tamper's model, or the honest one."""
        count, inner = state
        if count % self.every:
            return dict(broadcast), state
        sent, inner = self.inner.send(inner, round, client, broadcast)
        return sent, (count, inner)

    def receive(self, state: tuple[int, Any], round: int, client: int, update: Params) -> tuple[int, Any]:
        """Pass on the reply to what the inner tamper sent."""
        count, inner = state
        known = inner if count % self.every else self.inner.receive(inner, round, client, update)
        return count + 1, known


def spaced_rounds(steps: int, every: int) -> int:
    """Return the number of rounds that `steps` steps take in every N-th round."""
    return (steps - 1) * every + 1


# The attacks

ROUNDS = "Rounds in which the client is sent models of the attacker's choice, without trials that were given up."
EVERY = "Attack every N-th round (1 = every round)."
HIGHEST = 25  # largest step in first steps, reached with 50 rounds; more rounds rise more slowly, no higher
LR_AROUND = 0.1, 10.0  # range of learning rates around the recorded guess, log-uniform
BETAS_BETWEEN = 0.6, 0.999  # uniform, as the paper's code draws them
GAUSS = 0.5 - 3**-0.5 / 2, 0.5 + 3**-0.5 / 2  # nodes of the two-point Gauss rule on a line


@dataclass(frozen=True, kw_only=True)
class LocalModelActive(LocalModelAttack):
    """Adam through the client's replies."""

    name: ClassVar[str] = "local-model-active"
    paper: ClassVar[str] = "diana-2025"
    roles: ClassVar[tuple[str, ...]] = ("active-server",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe", "oracle-loss")
    small: ClassVar[Mapping[str, Any]] = {"active_rounds": 6}

    active_rounds: int = setting(50, ROUNDS, least=1)
    every: int = setting(1, EVERY, least=1)
    tune: Literal["recorded", "search", "oracle-loss"] = setting(
        "recorded",
        "Source of the learning rate: the client's recorded updates (costs no round), a search by replies, or the "
        "client's own loss (an oracle).",
    )
    lr: float | None = setting(None, "Initial learning rate; if given, nothing is tuned.", above=0, most=MOST_RATE)
    betas: tuple[float, float] = setting((0.9, 0.999), "Decay rates of the two moments of Adam.", least=0, below=1)
    boost: float = setting(
        1.0, "First step, relative to the root mean square entry of the recorded updates.", above=0, most=MOST_RATE
    )
    pace: Literal["rise-and-fall", "constant"] = setting(
        "rise-and-fall",
        "Whether the learning rate grows up to half of the rounds and falls back, or is constant (the paper).",
    )
    trials: int = setting(8, "Number of settings that a search tries.", least=1)
    # Whole attacks by default, since short trials prefer other learning rates than long ones.
    trial_rounds: int | None = setting(None, "Rounds of a trial. Default: a whole attack.", least=1)
    judge: Literal["line", "norm"] = setting(
        "line", "Criterion of a search: the fall of the client's loss along a line, or the norm of the last reply."
    )
    answer: Literal["sent", "returned"] = setting(
        "sent", "Which model is returned: the one to be sent next (the paper), or the last reply (its code)."
    )

    def needs(self) -> tuple[Need, ...]:
        """List the target's own replies and a channel to it; the paper's tuning needs its loss."""
        oracle = (granted("oracle-loss"),) if self.tune == "oracle-loss" and self.lr is None else ()
        return (single_replies(), line_to_the_client(), step_size(), *oracle)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the trials if any, then Alg. 3 with the best of them."""
        assert view.channel is not None and view.target is not None
        last = last_of(view.of_target())
        start, rate = returned(view, last), step_of(view, last)  # line 1
        walks = tuple(walk_from(start, method, rate) for method in self._methods(view, context.generator))
        inner = TryThenSteer(
            trials=walks,
            trial_steps=min(self.trial_rounds or self.active_rounds, self.active_rounds),
            judge=self._judge(view),
            asked=GAUSS if self.tune == "search" and self.judge == "line" else (),
        )
        more = self.active_rounds - (inner.trial_steps if len(walks) > 1 else 0)
        spent = view.channel(
            Spaced(inner=inner, every=self.every),
            rounds=spaced_rounds(inner.rounds_of_trials + more, self.every),
            clients=[view.target],
        )
        rounds, walk = inner.rounds_of_trials + more, spent.state[1].walk
        model = walk.point if self.answer == "sent" else walk.returned or walk.point
        facts = {"lr": walk.method.lr, "betas": list(walk.method.betas), "rounds_of_trials": rounds - walk.steps}
        not_finite = "the client's model is not finite: lower the learning rate"
        return _evidence(view, spent, model, rounds, not_finite, **facts)

    @property
    def _slowed(self) -> float:
        """Return the factor of the first step that keeps long schedules from rising too high."""
        return 1.0 if self.pace == "constant" else min(1.0, 2 * HIGHEST / self.active_rounds)

    def _adam(self, lr: float, betas: tuple[float, float]) -> Adam:
        decay = RiseAndFall() if self.pace == "rise-and-fall" else Constant()
        return Adam(steps=self.active_rounds, lr=lr, betas=betas, decay=decay)

    def _methods(self, view: View, generator: torch.Generator) -> list[Adam]:
        """Return the settings to try, first those of the fields."""
        usual = usual_entry(view) * self.boost * self._slowed if self.lr is None else self.lr
        first = self._adam(usual, self.betas)
        if self.lr is not None or self.tune == "recorded":
            return [first]
        more = [self._drawn(usual, fork(generator, "trial", number)) for number in range(1, self.trials)]
        return [first, *more]

    def _drawn(self, usual: float, generator: torch.Generator) -> Adam:
        shares = torch.rand(3, generator=generator, dtype=torch.float64, device="cpu").tolist()
        low, high = LR_AROUND
        least, most = BETAS_BETWEEN
        betas = tuple(least + share * (most - least) for share in shares[1:])
        rate = usual * low * (high / low) ** shares[0]
        return self._adam(rate, (betas[0], betas[1]))

    def _judge(self, view: View) -> Callable[[StepTrial], float]:
        """Return the criterion of a trial: by the replies, or by the client's own loss where that is granted."""
        if self.tune == "oracle-loss":
            oracle = view.grants.oracle.get("oracle-loss")
            return lambda trial: _finite(oracle.of(view.model, trial.walk.point)) if oracle else 0.0
        if self.judge == "norm":
            return lambda trial: _finite(trial.walk.sizes[-1])
        return lambda trial: _finite(trial.rise)


def _evidence(view: View, spent: Exchange, model: Params, rounds: int, not_finite: str, **facts: Any) -> Evidence:
    """Return the model at the end of a descent as evidence; `not_finite` is the reason where it has diverged."""
    last, finite = last_of(view.of_target()), is_finite(model)
    return of_model(
        model,
        last_of(spent.observations).buffers_after or last.buffers_after or last.buffers,
        status="ok" if finite else "diverged",
        reason="" if finite else not_finite,
        curve=spent.state[1].walk.sizes,
        rounds_spent=rounds,
        facts={"rounds_passed": spent.rounds_spent, **facts},
    )


def _finite(badness: float) -> float:
    return badness if math.isfinite(badness) else math.inf


def usual_entry(view: View) -> float:
    """Return the root mean square change of an entry of the model in the client's recorded replies."""
    moves = [flatten(reply.update).double() * step_of(view, reply) for reply in view.of_target()]
    squares = [move.square().mean() for move in moves]
    size = float(torch.stack(squares).mean().sqrt())
    return size if 0 < size < float("inf") else 1.0


@dataclass(frozen=True, kw_only=True)
class LocalModelSendBack(LocalModelAttack):
    """The client's model after some rounds in which it receives its own model back."""

    name: ClassVar[str] = "local-model-send-back"
    paper: ClassVar[str] = "diana-2025"
    roles: ClassVar[tuple[str, ...]] = ("active-server",)
    requires: ClassVar[tuple[Need, ...]] = (single_replies(), line_to_the_client(), step_size())
    small: ClassVar[Mapping[str, Any]] = {"active_rounds": 5}

    active_rounds: int = setting(50, "Rounds in which the client is sent its own model back.", least=1)
    every: int = setting(1, EVERY, least=1)

    def attack(self, view: View, context: Context) -> Evidence:
        """Send every returned model back."""
        spent = isolate(view, self.active_rounds, self.every)
        walk: ActiveDescent = spent.state[1].walk
        return _evidence(view, spent, walk.point, walk.steps, "the client's model is not finite")


def isolate(view: View, steps: int, every: int = 1) -> Exchange:
    """Send the target its own last model back for `steps` rounds; for gradients, after a step of the recipe."""
    assert view.channel is not None and view.target is not None
    last = last_of(view.of_target())
    rate = step_of(view, last)
    method = Sgd(steps=steps, lr=rate)  # sent - (sent - returned) is what was returned
    walk = walk_from(returned(view, last), method, rate)
    inner = TryThenSteer(trials=(walk,), trial_steps=steps, judge=lambda trial: 0.0)  # nothing to choose
    tamper = Spaced(inner=inner, every=every)
    return view.channel(tamper, rounds=spaced_rounds(steps, every), clients=[view.target])
