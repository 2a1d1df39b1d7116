"""Attribute inference by matching gradients (Lyu and Chen 2021; baseline of papers 003 Eq. 2 and 000 Eq. 2).

The values are sought, for all records at once, under which the gradient of the whole data set at the model of each
round t points along what came back:
    maximise  sum_t cos(gradient of the mean loss at theta(t), theta(t) - theta_c(t)).
At one local step on all records the right values reach a cosine of 1 in every round.

`method = "iterative"` is the way of 003: one logit per record and value from N(0, 1); each step draws a Gumbel-softmax
sample at temperature 1, made hard with a straight-through gradient, and moves the logits by plain gradient descent on
sum_t (1 - cos_t). `method = "l-bfgs"` is that of 000: the same logits, their softmax in place of a draw, L-BFGS on the
sum times the number of records (a slope of one record is too small for the thresholds at which it stops).
`method = "closed-form"` uses that the data-set gradient is linear in the indicators of the values: the inner products
of all single gradients are computed once, then the mean of 1 - cos_t^2 is a ratio of two quadratic forms (see
gradient_match); relaxed least squares under several ridges give starts, and from each single values are changed as
long as the ratio falls. Of all ends the one with the least ratio wins.

Several learning rates, and several `shares` of the rounds (the first ones; 0 is the first alone), are all tried.
`pick = "own-objective"` keeps the attempt with the best mean cosine over the rounds that it matched, as 003 does
(Grad); "all-rounds" the one with the best mean cosine over all rounds; "oracle-records" the one that is right most
often (Grad-w-O), an upper bound that needs this grant. With `active_rounds` the client is isolated first: she is sent
her own model back, round after round, and these rounds are matched (with the recorded ones, if `with_recorded`).

Where we differ: two logits for two values (the authors' code has one logit and one Gumbel draw, which is biased); by
default all rounds are matched; dense networks are taken layer by layer (round_cosines, gradient_products); the closed
form takes networks in evaluation mode, so that BatchNorm and Dropout are matched roughly. Of a continuous column
`grid` values are the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_model import MOST_VALUES, with_value
from fedxray.attacks.attributes.gradient_match import (
    Cosine,
    cosines,
    cosines_of_rounds,
    descend,
    distance,
    filled,
    products,
    relaxed,
)
from fedxray.attacks.base import (
    Attack,
    Context,
    Need,
    granted,
    line_to_the_client,
    sensitive_column,
    single_replies,
)
from fedxray.attacks.evidence import Evidence, Kind, Status, of_attributes
from fedxray.attacks.local_model.active import isolate
from fedxray.attacks.local_model.baselines import step_size
from fedxray.data.dataset import Records
from fedxray.errors import BadInput, check_one_of, check_whole
from fedxray.optim import Lbfgs, Method, Sgd, minimise
from fedxray.params import is_finite, norm
from fedxray.seeds import fork, normal_like, uniform_like

# --- Ways to find the values under which a data set's gradient points along the updates: in closed form, by
# descent.


MOST_INDICATORS = 6000  # records times values whose inner products are held: four matrices of 288 MB


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is searched: records in an order of their own, candidate codes, and the rounds to match."""

    view: View
    records: PublicAttributes
    candidates: Tensor  # [values, positions]
    rounds: Sequence[Observation]
    cosines: Sequence[Cosine]  # one per round
    counts: Sequence[int]  # how many of the first rounds to match, rising


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The values that one setting came to, and how they match."""

    chosen: Tensor  # [records]
    margins: Tensor  # [records]
    used: int  # the first rounds that were matched
    each: Tensor  # the cosine of every round [rounds]
    own_loss: float
    curve: tuple[float, ...]
    rate: float | None = None
    status: Status = "ok"
    reason: str = ""

    @property
    def cosine_used(self) -> float:
        """The mean cosine over the rounds that were matched."""
        return float(self.each[: self.used].mean())

    @property
    def cosine_all(self) -> float:
        """The mean cosine over all rounds."""
        return float(self.each.mean())


def in_closed_form(task: Task, changes: int) -> Iterator[Attempt]:
    """For every count of rounds, relaxed least squares and then single changes; the least ratio wins."""
    view, records = task.view, task.records
    positions = view.space.column(view.space.sensitive or "").positions
    every = torch.stack([with_value(records.x, positions, value) for value in task.candidates], dim=1)
    found = products(view.model, view.loss, every, records.y, task.rounds, task.counts)
    for count, one in zip(task.counts, found, strict=True):
        if not bool(torch.isfinite(one.whole).all()):
            return
        chosen, curve, ratios = min(
            (descend(one, start, changes) for start in relaxed(one)), key=lambda end: end[1][-1]
        )
        ordered = ratios.sort(1).values
        yield Attempt(
            chosen=chosen, margins=ordered[:, 1] - ordered[:, 0], used=count, own_loss=curve[-1],
            each=cosines(task.candidates[chosen], task.cosines), curve=tuple(curve),
        )  # fmt: skip


Relax = Callable[[Tensor, torch.Generator], Tensor]  # logits [records, values] -> shares of the values


def by_descent(
    task: Task, methods: Sequence[Method], relax: Relax, context: Context, *, times: float = 1.0
) -> Iterator[Attempt]:
    """For every count of rounds and every method, descent on one logit per record and value from N(0, 1).

    The loss that is descended is so many `times` the sum of 1 - cosine.
    """
    blank = task.records.x.new_empty((len(task.records.x), len(task.candidates)))
    for count in task.counts:
        for method in methods:
            draws = fork(context.generator, "gumbel", method.lr)
            matched = task.cosines[:count]

            def loss(
                point: dict[str, Tensor],
                matched: Sequence[Cosine] = matched,
                draws: torch.Generator = draws,
            ) -> Tensor:
                return times * distance(relax(point["logits"], draws) @ task.candidates, matched)

            start = {"logits": normal_like(blank, fork(context.generator, "logits"))}
            end = minimise(loss, start, method, report=context.report, what="attribute-from-gradients")
            ordered = end.last["logits"].sort(1, descending=True)
            each = cosines(task.candidates[ordered.indices[:, 0]], task.cosines)
            yield Attempt(
                chosen=ordered.indices[:, 0], margins=ordered.values[:, 0] - ordered.values[:, 1],
                used=count, each=each, own_loss=float((1 - each[:count]).sum()), curve=end.curve,
                rate=method.lr, status=end.status, reason=end.reason,
            )  # fmt: skip


def hard_sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot draws of a Gumbel-softmax at temperature 1 with the gradient of the soft ones, shape kept."""
    tiny = torch.finfo(logits.dtype).eps
    noise = -torch.log(-torch.log(uniform_like(logits, generator).clamp(tiny, 1 - tiny)))
    soft = torch.softmax(logits + noise, dim=1)
    hard = functional.one_hot(soft.argmax(1), logits.shape[1]).to(soft.dtype)
    return hard + soft - soft.detach()


def soft_shares(logits: Tensor, generator: torch.Generator) -> Tensor:
    """The softmax of the logits, shape kept; nothing is drawn."""
    return torch.softmax(logits, dim=1)


def better(left: float, right: float) -> bool:
    """Whether one score is above another, where one that is not finite is below all."""
    return math.isfinite(left) and (not math.isfinite(right) or left > right)


NO_DIRECTION = "no update has a direction, so that no gradient can be matched with it"
NOT_FINITE = "a gradient at a model that was sent is not finite"
METHODS = ("closed-form", "iterative", "l-bfgs")
PICKS = ("own-objective", "all-rounds", "oracle-records")
USUAL_RATES: dict[str, tuple[float, ...]] = {  # of 003 and of 000
    "iterative": (1e2, 1e3, 1e4, 1e5, 1e6),
    "l-bfgs": (1e-3, 5e-3, 1e-2, 1e-1),  # the last is ours: the papers' do not get far in 100 steps
}


@dataclass(frozen=True, kw_only=True)
class AttributeFromGradients(Attack):
    """What is the sensitive value of each record? The values whose gradients point along the updates sent."""

    name: ClassVar[str] = "attribute-from-gradients"
    kind: ClassVar[Kind] = "attributes"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("public-attributes",)
    floors: ClassVar[tuple[str, ...]] = ("majority", "imputation")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"method": "closed-form"}

    method: Literal["closed-form", "iterative", "l-bfgs"] = "closed-form"
    steps: int = 100  # iterative and l-bfgs: steps per learning rate
    learning_rates: tuple[float, ...] = ()  # iterative and l-bfgs; none: the papers' own
    changes: int = 10_000  # closed form: most single changes from each start
    grid: int = 8  # candidate values of a continuous column
    shares: tuple[float, ...] = (1.0,)  # of the rounds, the first ones, each tried; 0 is the first alone
    pick: Literal["own-objective", "all-rounds", "oracle-records"] = "all-rounds"
    active_rounds: int = 0  # rounds in which the client is isolated
    with_recorded: bool = False  # whether the recorded rounds are matched beside the active ones

    def __post_init__(self) -> None:
        """Check every setting."""
        check_one_of("method", self.method, METHODS)
        check_one_of("pick", self.pick, PICKS)
        for method in self._methods():
            assert method.steps > 0  # checked where it was made
        check_whole("changes", self.changes, least=0, usual=10_000)
        check_whole("active_rounds", self.active_rounds, least=0, usual=50)
        check_whole("grid", self.grid, least=2, usual=8, most=MOST_VALUES)
        if not self.shares or not all(0 <= share <= 1 for share in self.shares):
            raise BadInput("shares", expected="numbers from 0 to 1, at least one", got=list(self.shares),
                           remedy="Try [0.05, 0.2, 1.0].")  # fmt: skip

    def needs(self) -> tuple[Need, ...]:
        """The other columns of the records and replies; a line to the client if active, the truth for its pick."""
        active = (line_to_the_client(), step_size()) if self.active_rounds else ()
        oracle = (granted("oracle-records"),) if self.pick == "oracle-records" else ()
        known = (sensitive_column(), granted("public-attributes"))
        few = (few_indicators(self.grid),) if self.method == "closed-form" else ()
        return (*known, *few, single_replies(), *active, *oracle)

    def attack(self, view: View, context: Context) -> Evidence:
        """Match the updates; the records are put in an order of their own values first."""
        given, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert given is not None
        candidates = column.candidates(given.x, self.grid)  # [values, positions]
        blank = candidates[:1].expand(len(given.x), -1) * torch.nan  # no guess rather than an arbitrary one
        rounds = usable(self._messages(view))
        if not rounds or not len(given.x):
            return self._ended(blank, status="undetermined", reason=NO_DIRECTION)
        order = own_order(given.x, given.y)
        records = PublicAttributes(x=given.x[order], y=given.y[order])
        task = Task(view=view, records=records, candidates=candidates, rounds=rounds,
                    cosines=cosines_of_rounds(view, records, rounds),
                    counts=round_counts(self.shares, len(rounds)))  # fmt: skip
        tries = list(self._attempts(task, context))
        facts = {"values": len(candidates), "rounds": len(rounds), "tried": [_shown(one) for one in tries]}
        best = self._picked(tries, task)
        if best is None:
            return self._ended(blank, status="undetermined", reason=NOT_FINITE, facts=facts)
        facts |= {"mean_cosine": best.cosine_all, "rounds_matched": best.used, "own_loss": best.own_loss,
                  "learning_rate": best.rate}  # fmt: skip
        back = torch.argsort(order)
        return self._ended(
            candidates[best.chosen][back], best.margins.to(given.x.dtype)[back], facts=facts,
            curve=best.curve, status=best.status, reason=best.reason,
        )  # fmt: skip

    def _ended(self, codes: Tensor, margins: Tensor | None = None, **more: Any) -> Evidence:
        return of_attributes(codes, margins, rounds_spent=self.active_rounds, **more)

    def _messages(self, view: View) -> tuple[Observation, ...]:
        """The rounds to match: those recorded, or those in which the client is isolated, or both."""
        recorded = view.of_target()
        if not self.active_rounds:
            return recorded
        spent = isolate(view, self.active_rounds).observations
        return (*recorded, *spent) if self.with_recorded else spent

    def _methods(self) -> list[Method]:
        rates = self.learning_rates or USUAL_RATES.get(self.method, (1.0,))
        if self.method == "l-bfgs":
            return [Lbfgs(steps=self.steps, lr=rate) for rate in rates]
        return [Sgd(steps=self.steps, lr=rate) for rate in rates]

    def _attempts(self, task: Task, context: Context) -> Any:
        if self.method == "closed-form":
            return in_closed_form(task, self.changes)
        if self.method == "iterative":
            return by_descent(task, self._methods(), hard_sample, context)
        return by_descent(task, self._methods(), soft_shares, context, times=len(task.records.x))

    def _picked(self, tries: Sequence[Attempt], task: Task) -> Attempt | None:
        """The best attempt by what the setting names; the first wins a tie, and one without a cosine never wins."""
        best, score = None, math.nan
        for one in tries:
            if math.isfinite(one.cosine_all) and better(found := self._score(one, task), score):
                best, score = one, found
        return best

    def _score(self, one: Attempt, task: Task) -> float:
        if self.pick == "own-objective":
            return one.cosine_used
        if self.pick == "all-rounds":
            return one.cosine_all
        return share_right(task.candidates[one.chosen], task)


def few_indicators(grid: int) -> Need:
    """No more records times values than the closed form can hold."""

    def met(view: View) -> bool:
        given = view.grants.public_attributes
        if given is None or view.space.sensitive is None:
            return False
        values = view.space.column(view.space.sensitive).candidates(given.x, grid)
        return len(given.x) * len(values) <= MOST_INDICATORS

    return Need(
        what=f"records times values up to {MOST_INDICATORS}, as it is set to closed-form",
        given_by='method = "iterative", a smaller grid for numbers, or a limit on the records in [data]',
        met=met,
    )


def usable(rounds: Sequence[Observation]) -> list[Observation]:
    """The rounds whose update has a direction."""
    return [one for one in rounds if is_finite(one.update) and float(norm(one.update)) > 0]


def round_counts(shares: Sequence[float], rounds: int) -> list[int]:
    """How many of the first rounds each share means, at least one, rising and each once."""
    return sorted({max(1, round(share * rounds)) for share in shares})


def own_order(x: Tensor, *more: Tensor) -> Tensor:
    """Places of the records sorted by their own values, so that the order they are granted in does not matter."""
    keys = torch.cat([x.flatten(1), *(one.reshape(len(x), -1).to(x.dtype) for one in more)], dim=1)
    order = torch.arange(len(keys), device=keys.device)
    for place in reversed(range(keys.shape[1])):
        order = order[torch.argsort(keys[order, place], stable=True)]
    return order


def share_right(codes: Tensor, task: Task) -> float:
    """How often the codes [records, positions] are right, by the granted truth; records are found by their columns."""
    truth: Records = task.view.grants.oracle["oracle-records"]
    positions = task.view.space.column(task.view.space.sensitive or "").positions
    real = truth.x[:, list(positions)]
    blank = filled(truth.x, positions, torch.zeros_like(real))
    real = real[own_order(blank, truth.y, real)]
    guess = codes[own_order(task.records.x, task.records.y, codes)]
    right = (guess[:, None] - task.candidates).abs().sum(-1).argmin(1) == (
        (real[:, None] - task.candidates).abs().sum(-1).argmin(1)
    )
    return float(right.double().mean())


def _shown(one: Attempt) -> dict[str, float | int | None]:
    return {
        "rounds": one.used,
        "learning_rate": one.rate,
        "cosine": one.cosine_used,
        "cosine_all": one.cosine_all,
    }
