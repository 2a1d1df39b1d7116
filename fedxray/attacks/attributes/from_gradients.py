"""Attribute inference by matching gradients (Lyu and Chen 2021; Diana et al. 2025, Eq. 2; Driouich et al., Eq. 2).

The values of all records are sought together under which the gradient of the whole data set at the model of each
round t points along the returned change:
    maximise  sum_t cos(gradient of the mean loss at theta(t), theta(t) - theta_c(t)).
With one local step on all records the correct values reach a cosine of 1 in every round.

`method = "iterative"` follows Diana et al. 2025: one logit per record and value from N(0, 1); each step draws a
Gumbel-softmax sample at temperature 1, made hard with a straight-through gradient, and moves the logits by gradient
descent on sum_t (1 - cos_t). `method = "l-bfgs"` follows Driouich et al.: the same logits, their softmax in place of a
draw, L-BFGS on the sum times the number of records (the gradient of one record is below its stopping thresholds).
`method = "closed-form"` uses that the data-set gradient is linear in the indicators of the values: the inner products
of all per-record gradients are computed once, then the mean of 1 - cos_t^2 is a ratio of two quadratic forms (see
gradient_match); relaxed least squares with several ridges give starts, and from each, single values are changed as long
as the ratio falls. Of all results the one with the lowest ratio is kept.

Several learning rates, and several `shares` of the rounds (the first ones; 0 is the first alone), are all tried.
`pick = "own-objective"` keeps the attempt with the highest mean cosine over the rounds that it matched, as Diana et al.
do (Grad); "all-rounds" the one with the highest mean cosine over all rounds; "oracle-records" the one that is correct
most often (Grad-w-O), an upper bound that needs this grant. With `active_rounds` the client is isolated first: it is
sent its own model back, round after round, and these rounds are matched (with the recorded ones, if `with_recorded`).

Where we differ: two logits for two values (the authors' code has one logit and one Gumbel draw, which is biased); by
default all rounds are matched; dense networks are processed layer by layer (gradient_match); the closed form evaluates
networks in evaluation mode, so that BatchNorm and Dropout are matched approximately. For a continuous column, `grid`
values are the candidates.

`prior = "floor"` (ours) weighs the ratio after each single change (or minus the logit) against the probabilities of the
imputation floor. The weight is fitted on a shadow client: the same records with values drawn from these probabilities,
trained by the recipe from the models that were sent, and matched in the same way (see floor_prior).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks import base, floor_prior
from fedxray.attacks.attributes import gradient_match
from fedxray.attacks.attributes.from_model import GRID, MOST_VALUES, few_indicators, with_value
from fedxray.attacks.attributes.gradient_match import Cosine
from fedxray.attacks.evidence import Evidence, Kind, Status, of_attributes
from fedxray.attacks.local_model.active import isolate
from fedxray.attacks.local_model.messages import step_size
from fedxray.attacks.observations import NO_DIRECTION, own_order, usable
from fedxray.attacks.shadow import shadow_replies
from fedxray.data.dataset import Records
from fedxray.optim import MOST_RATE, Lbfgs, Method, Sgd, minimise
from fedxray.seeds import fork, normal_like, uniform_like
from fedxray.settings import setting

# Search for the values under which the data-set gradient points along the updates

SET_TO = 'method = "iterative"'  # what holds more
MOST_INDICATORS = 6000  # records times values; their inner products take four matrices of 288 MB


@dataclass(frozen=True, kw_only=True)
class GradientMatching:
    """The search problem: records in a canonical order, candidate codes, and the rounds to match."""

    view: View
    records: PublicAttributes
    candidates: Tensor  # [values, positions]
    rounds: Sequence[Observation]
    cosines: Sequence[Cosine]  # one per round
    counts: Sequence[int]  # how many of the first rounds to match, rising


@dataclass(frozen=True, kw_only=True)
class MatchedValues:
    """The values found with one setting, and how well they match."""

    chosen: Tensor  # [records]
    misfits: Tensor  # [records, values] of single changes: the ratio, or minus the logit
    used: int  # number of first rounds that were matched
    each: Tensor  # [rounds] the cosine of every round
    own_loss: float
    curve: tuple[float, ...]
    rate: float | None = None
    status: Status = "ok"
    reason: str = ""

    @property
    def margins(self) -> Tensor:
        """Return by how much the second best value fits worse than the best [records]."""
        ordered = self.misfits.sort(1).values
        return ordered[:, 1] - ordered[:, 0]

    @property
    def cosine_used(self) -> float:
        """Return the mean cosine over the rounds that were matched."""
        return float(self.each[: self.used].mean())

    @property
    def cosine_all(self) -> float:
        """Return the mean cosine over all rounds."""
        return float(self.each.mean())


def in_closed_form(task: GradientMatching, changes: int) -> Iterator[MatchedValues]:
    """Yield for every number of rounds the result of relaxed least squares and single changes with the lowest ratio."""
    view, records = task.view, task.records
    positions = view.space.column(view.space.sensitive or "").positions
    every = torch.stack([with_value(records.x, positions, value) for value in task.candidates], dim=1)
    by_count = gradient_match.products(view.model, view.loss, every, records.y, task.rounds, task.counts)
    for count, inner in zip(task.counts, by_count, strict=True):
        if not bool(torch.isfinite(inner.whole).all()):
            return
        ends = [gradient_match.descend(inner, start, changes) for start in gradient_match.relaxed(inner)]
        chosen, curve, ratios = min(ends, key=lambda end: end[1][-1])
        yield MatchedValues(
            chosen=chosen, misfits=ratios, used=count, own_loss=curve[-1],
            each=gradient_match.cosines(task.candidates[chosen], task.cosines), curve=tuple(curve),
        )  # fmt: skip


Relax = Callable[[Tensor, torch.Generator], Tensor]  # logits [records, values] -> shares of the values


def by_descent(
    task: GradientMatching, methods: Sequence[Method], relax: Relax, context: base.Context, *, times: float = 1.0
) -> Iterator[MatchedValues]:
    """Yield for every number of rounds and every method the result of a descent on logits from N(0, 1).

    `relax` turns logits into shares of the values; the loss is `times` the sum of 1 - cosine.
    """
    blank = task.records.x.new_empty((len(task.records.x), len(task.candidates)))
    for count in task.counts:
        for method in methods:
            draws = fork(context.generator, "gumbel", method.lr)
            matched = task.cosines[:count]

            def loss(
                point: dict[str, Tensor], matched: Sequence[Cosine] = matched, draws: torch.Generator = draws
            ) -> Tensor:
                return times * gradient_match.distance(relax(point["logits"], draws) @ task.candidates, matched)

            start = {"logits": normal_like(blank, fork(context.generator, "logits"))}
            end = minimise(loss, start, method, report=context.report, what="attribute-from-gradients")
            misfits = -end.last["logits"]
            chosen = end.last["logits"].sort(1, descending=True).indices[:, 0]
            each = gradient_match.cosines(task.candidates[chosen], task.cosines)
            yield MatchedValues(
                chosen=chosen, misfits=misfits, used=count, each=each,
                own_loss=float((1 - each[:count]).sum()), curve=end.curve, rate=method.lr,
                status=end.status, reason=end.reason,
            )  # fmt: skip


def hard_sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one-hot samples of a Gumbel-softmax at temperature 1 with the gradient of the soft ones, shape kept."""
    tiny = torch.finfo(logits.dtype).eps
    noise = -torch.log(-torch.log(uniform_like(logits, generator).clamp(tiny, 1 - tiny)))
    soft = torch.softmax(logits + noise, dim=1)
    hard = functional.one_hot(soft.argmax(1), logits.shape[1]).to(soft.dtype)
    return hard + soft - soft.detach()


def soft_shares(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Return the softmax of the logits, shape kept; nothing is drawn."""
    return torch.softmax(logits, dim=1)


# The attack

NOT_FINITE = "a gradient at a model that was sent is not finite"
USUAL_RATES: dict[str, tuple[float, ...]] = {  # of Diana et al. 2025 and of Driouich et al.
    "iterative": (1e2, 1e3, 1e4, 1e5, 1e6),
    "l-bfgs": (1e-3, 5e-3, 1e-2, 1e-1),  # the last is ours: the papers' make little progress in 100 steps
}


@dataclass(frozen=True, kw_only=True)
class AttributeFromGradients(base.Attack):
    """What is the sensitive value of each record? The values whose gradients point along the observed updates."""

    name: ClassVar[str] = "attribute-from-gradients"
    kind: ClassVar[Kind] = "attributes"
    paper: ClassVar[str] = "lyu-2021"
    roles: ClassVar[tuple[str, ...]] = base.SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("public-attributes",)
    floors: ClassVar[tuple[str, ...]] = ("majority", "imputation")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    explains_records: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {"method": "closed-form"}

    method: Literal["closed-form", "iterative", "l-bfgs"] = setting(
        "closed-form",
        "Search method: solving for all values at once, gradient descent with Gumbel-softmax draws (Diana et al. "
        "2025), or L-BFGS (Driouich et al.).",
    )
    steps: int = setting(100, "Steps for each learning rate (iterative and l-bfgs).", least=1)
    learning_rates: tuple[float, ...] = setting(
        (), "Learning rates, each tried (iterative and l-bfgs). Default: the papers' own.", above=0, most=MOST_RATE
    )
    changes: int = setting(10_000, "Largest number of single values changed from each start (closed form).", least=0)
    grid: int = setting(8, GRID, least=2, most=MOST_VALUES)
    shares: tuple[float, ...] = setting(
        (1.0,),
        "Shares of the rounds, the first ones, each tried; 0 is the first round alone.",
        least=0,
        most=1,
        fewest=1,
    )
    pick: Literal["own-objective", "all-rounds", "oracle-records"] = setting(
        "all-rounds",
        "Which attempt is kept: highest cosine over the rounds it matched, over all rounds, or most values correct (an "
        "oracle).",
    )
    active_rounds: int = setting(0, "Rounds in which the client is isolated first; these are then matched.", least=0)
    with_recorded: bool = setting(False, "Whether the recorded rounds are matched in addition to the active ones.")
    prior: floor_prior.Prior = setting("none", floor_prior.PRIOR, later=True)

    def needs(self) -> tuple[base.Need, ...]:
        """List the other columns and replies; a channel to the client if active, the truth for the oracle's choice."""
        active = (base.line_to_the_client(), step_size()) if self.active_rounds else ()
        oracle = (base.granted("oracle-records"),) if self.pick == "oracle-records" else ()
        known = (base.sensitive_column(), base.granted("public-attributes"))
        few = (few_indicators(self.grid, MOST_INDICATORS, SET_TO),) if self.method == "closed-form" else ()
        prior = floor_prior.needs_of(self.prior, base.granted("recipe"))
        return (*known, *prior, *few, base.single_replies(), *active, *oracle)

    def own_grants(self) -> tuple[str, ...]:
        """List the declared grants, and those of the prior."""
        return (*self.grants, *floor_prior.grants_of(self.prior, "recipe"))

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Match the updates; the records are sorted by their own values first."""
        given, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert given is not None
        candidates = column.candidates(given.x, self.grid)  # [values, positions]
        blank = candidates[:1].expand(len(given.x), -1) * torch.nan  # no guess rather than an arbitrary one
        rounds = usable(self._messages(view))
        if not rounds or not len(given.x):
            return self._ended(blank, status="undetermined", reason=NO_DIRECTION)
        order = own_order(given.x, given.y)
        records = PublicAttributes(x=given.x[order], y=given.y[order])
        task = GradientMatching(view=view, records=records, candidates=candidates, rounds=rounds,
                                cosines=gradient_match.cosines_of_rounds(view, records, rounds),
                                counts=round_counts(self.shares, len(rounds)))  # fmt: skip
        attempts = list(self._attempts(task, context))
        tried = [_shown(attempt) for attempt in attempts]
        facts = {"values": len(candidates), "rounds": len(rounds), "tried": tried}
        best = self._picked(attempts, task)
        if best is None:
            return self._ended(blank, status="undetermined", reason=NOT_FINITE, facts=facts)
        facts |= {"mean_cosine": best.cosine_all, "rounds_matched": best.used, "own_loss": best.own_loss,
                  "learning_rate": best.rate}  # fmt: skip
        back = torch.argsort(order)
        if self.prior == "floor":
            return self._with_prior(task, best, back, facts, context)
        return self._ended(
            candidates[best.chosen][back], best.margins.to(given.x.dtype)[back], facts=facts,
            curve=best.curve, status=best.status, reason=best.reason,
        )  # fmt: skip

    def _with_prior(
        self, task: GradientMatching, best: MatchedValues, back: Tensor, facts: dict[str, Any], context: base.Context
    ) -> Evidence:
        """Return the values with the largest posterior; the weight is fitted on a shadow client."""
        view = replace(task.view, grants=replace(task.view.grants, public_attributes=task.records))
        known = floor_prior.of_values(view, task.candidates).asked
        drawn = floor_prior.drawn_values(known.exp(), fork(context.generator, "values"))
        column = view.space.column(view.space.sensitive or "")
        held = Records(gradient_match.filled(task.records.x, column.positions, task.candidates[drawn]), task.records.y)
        examples = view.grants.examples or task.rounds[0].examples or len(held)
        rounds = usable(shadow_replies(view, task.rounds, held, examples, fork(context.generator, "shadow")))
        shadow = replace(
            task, rounds=rounds, cosines=gradient_match.cosines_of_rounds(view, task.records, rounds),
            counts=round_counts(self.shares, len(rounds)),
        )  # fmt: skip
        found = max(self._attempts(shadow, context), key=lambda attempt: attempt.cosine_all, default=None)
        weights = (
            floor_prior.Weights(trust=1.0, weight=0.0)
            if found is None
            else floor_prior.fitted(known, found.misfits.double(), drawn)
        )
        evidence = floor_prior.likeliest_values(
            task.candidates, known[back], best.misfits.double()[back], weights, facts=facts | asdict(weights),
            curve=best.curve, status=best.status, reason=best.reason,
        )  # fmt: skip
        return replace(evidence, rounds_spent=self.active_rounds)

    def _ended(self, codes: Tensor, margins: Tensor | None = None, **more: Any) -> Evidence:
        return of_attributes(codes, margins, rounds_spent=self.active_rounds, **more)

    def _messages(self, view: View) -> tuple[Observation, ...]:
        """Return the rounds to match: the recorded ones, those in which the client is isolated, or both."""
        recorded = view.of_target()
        if not self.active_rounds:
            return recorded
        spent = tuple(isolate(view, self.active_rounds).observations)
        return (*recorded, *spent) if self.with_recorded else spent

    def _methods(self) -> list[Method]:
        rates = self.learning_rates or USUAL_RATES.get(self.method, (1.0,))
        if self.method == "l-bfgs":
            return [Lbfgs(steps=self.steps, lr=rate) for rate in rates]
        return [Sgd(steps=self.steps, lr=rate) for rate in rates]

    def _attempts(self, task: GradientMatching, context: base.Context) -> Any:
        if self.method == "closed-form":
            return in_closed_form(task, self.changes)
        if self.method == "iterative":
            return by_descent(task, self._methods(), hard_sample, context)
        return by_descent(task, self._methods(), soft_shares, context, times=len(task.records.x))

    def _picked(self, attempts: Sequence[MatchedValues], task: GradientMatching) -> MatchedValues | None:
        """Return the best attempt by `pick`; the first wins a tie, and one without a finite cosine never wins."""
        finite = [attempt for attempt in attempts if math.isfinite(attempt.cosine_all)]
        scores = [self._score(attempt, task) for attempt in finite]
        ranked = [(score, attempt) for score, attempt in zip(scores, finite, strict=True) if math.isfinite(score)]
        return max(ranked, key=lambda pair: pair[0])[1] if ranked else None

    def _score(self, attempt: MatchedValues, task: GradientMatching) -> float:
        if self.pick == "own-objective":
            return attempt.cosine_used
        if self.pick == "all-rounds":
            return attempt.cosine_all
        return share_right(task.candidates[attempt.chosen], task)


def round_counts(shares: Sequence[float], rounds: int) -> list[int]:
    """Return the numbers of first rounds that the shares stand for, at least one, increasing and each once."""
    return sorted({max(1, round(share * rounds)) for share in shares})


def share_right(codes: Tensor, task: GradientMatching) -> float:
    """Return the share of correct codes [records, positions], by the granted truth; records are matched by columns."""
    truth: Records = task.view.grants.oracle["oracle-records"]
    positions = task.view.space.column(task.view.space.sensitive or "").positions
    real = truth.x[:, list(positions)]
    blank = gradient_match.filled(truth.x, positions, torch.zeros_like(real))
    real = real[own_order(blank, truth.y, real)]
    guess = codes[own_order(task.records.x, task.records.y, codes)]
    correct = (guess[:, None] - task.candidates).abs().sum(-1).argmin(1) == (
        (real[:, None] - task.candidates).abs().sum(-1).argmin(1)
    )
    return float(correct.double().mean())


def _shown(attempt: MatchedValues) -> dict[str, float | int | None]:
    return {
        "rounds": attempt.used,
        "learning_rate": attempt.rate,
        "cosine": attempt.cosine_used,
        "cosine_all": attempt.cosine_all,
    }
