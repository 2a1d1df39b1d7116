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
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Exchange, View
from fedxray.attacks.base import Attack, Context, Need, granted, line_to_the_client, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.last_returned import step_size
from fedxray.attacks.local_model.messages import last_of, returned, step_of
from fedxray.attacks.local_model.steer import (
    Spaced,
    Trial,
    TryThenSteer,
    check_counts,
    spaced_rounds,
    walk_from,
)
from fedxray.decays import Constant, RiseAndFall
from fedxray.errors import BadInput, check_one_of
from fedxray.methods import Adam, check_settings
from fedxray.params import flatten, is_finite
from fedxray.seeds import fork

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
