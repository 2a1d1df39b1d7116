"""Attribute inference from the updates themselves: least squares with a weight of its own for every record (ours).

An update is a sum over records whose public columns are known, and each record's part is linear in the indicators of
its sensitive value (see update_algebra).
    1. The prior is what is known without messages: the probabilities of the imputation floor.
    2. All rounds together give the indicators by generalised least squares; each record's own weight in each round is
       a nuisance, which the known columns reveal. Two passes.
    3. A shadow client chooses and calibrates: the same records with values drawn from the prior are trained by the
       recipe from the models that were really sent, and attacked. The strengths (kappa, ridge) with the lowest log loss
       there are kept, with the weights of prior and estimate in
           P(value) ~ exp(a log prior + b estimate).
Without the recipe there is no shadow client: the step is fitted to each update, the strengths are USUAL, and the value
with the largest estimate is chosen. An attacker that knows the defence lets the shadow client use it.

Numbers have `grid` candidate values, with a normal prior around the imputed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks import base
from fedxray.attacks.attributes.from_model import GRID, MOST_VALUES, few_indicators, with_value
from fedxray.attacks.evidence import Evidence, Kind, of_attributes
from fedxray.attacks.floor_prior import drawn_values, of_asked
from fedxray.attacks.observations import NO_DIRECTION, own_order, usable
from fedxray.attacks.record_gradients import gradients_at
from fedxray.attacks.shadow import known_step, shadow_replies
from fedxray.attacks.update_algebra import SECONDS, STRENGTHS, USUAL, Messages, estimates, of_values
from fedxray.data.dataset import Column, Records
from fedxray.seeds import fork
from fedxray.settings import setting

LUCK = 6.0  # log-likelihood that choosing among all strengths and two weights may gain by luck
NEWTON_STEPS, PULL = 20, 0.01  # of the calibration
MOST_INDICATORS = 5000  # records times values; the inner products of a round take four matrices of 200 MB


@dataclass(frozen=True, kw_only=True)
class AttributeFromUpdates(base.Attack):
    """What is the sensitive value of each record? The values that, record by record, add up to the observed updates."""

    name: ClassVar[str] = "attribute-from-updates"
    kind: ClassVar[Kind] = "attributes"
    roles: ClassVar[tuple[str, ...]] = base.SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("public-attributes", "public-records", "recipe")
    floors: ClassVar[tuple[str, ...]] = ("majority", "imputation")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    adapts: ClassVar[bool] = True
    explains_records: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {"messages": 8}

    messages: int = setting(25, "Largest number of rounds that are used, evenly spread over those read.", least=1)
    grid: int = setting(8, GRID, least=2, most=MOST_VALUES)

    def needs(self) -> tuple[base.Need, ...]:
        """List the other columns of the records, few enough values, and replies of the target alone."""
        known = (base.sensitive_column(), base.granted("public-attributes"))
        return (*known, few_indicators(self.grid, MOST_INDICATORS), base.single_replies())

    def seconds(self, work: base.Workload) -> float:
        """Return about how long an answer takes: quadratic in the records."""
        return SECONDS * work.records**2 * min(work.rounds, self.messages)

    def attack(self, view: View, context: base.Context) -> Evidence:
        """Estimate the indicators, calibrated on a shadow client where the recipe is known."""
        given, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert given is not None
        candidates = column.candidates(given.x, self.grid)  # [values, positions]
        rounds = usable(view.of_target(), self.messages)
        if not rounds or not len(given.x):
            blank = candidates[:1].expand(len(given.x), -1) * torch.nan  # no guess rather than an arbitrary one
            return of_attributes(blank, status="undetermined", reason=NO_DIRECTION)
        order = own_order(given.x, given.y)  # so that the granted order does not matter
        asked = PublicAttributes(x=given.x[order], y=given.y[order])
        task = IndicatorTask(
            view=replace(view, grants=replace(view.grants, public_attributes=asked)),
            asked=asked, column=column, candidates=candidates, rounds=rounds,
        )  # fmt: skip
        prior = of_asked(task.view, candidates)
        scores, facts = inferred(task, prior, context)
        back = torch.argsort(order)
        scores, prior = scores[back], prior[back]
        ordered = scores.sort(1, descending=True).values
        evidence = of_attributes(
            candidates[scores.argmax(1)], (ordered[:, 0] - ordered[:, 1]).to(given.x.dtype),
            facts={"values": len(candidates), "rounds": len(rounds), **facts},
        )  # fmt: skip
        fair = candidates[(scores - prior.mean(0).log()).argmax(1)]  # as if all values were equally frequent
        return replace(evidence, tensors={**evidence.tensors, "codes_balanced": fair})


@dataclass(frozen=True, kw_only=True)
class IndicatorTask:
    """The records asked about in a canonical order, the candidate values, and the rounds that are used."""

    view: View
    asked: PublicAttributes
    column: Column
    candidates: Tensor  # [values, positions]
    rounds: Sequence[Observation]

    @property
    def examples(self) -> int:
        """Return the number of examples behind an update, as far as it is known."""
        known = self.view.grants.examples or self.rounds[0].examples
        return len(self.asked.x) if known is None else known

    def filled(self, values: Tensor) -> Records:
        """Return the records with these candidates [records] as their sensitive values."""
        x = self.asked.x.clone()
        x[:, list(self.column.positions)] = self.candidates[values]
        return Records(x, self.asked.y)


def inferred(task: IndicatorTask, prior: Tensor, context: base.Context) -> tuple[Tensor, dict[str, Any]]:
    """Return log-probabilities of the values up to a constant [records, values], and facts to report."""
    recipe = task.view.grants.recipe
    if recipe is None:
        shares = indicators(task, prior, task.rounds, [USUAL])[0]
        return shares.clamp(min=1e-6).log(), {"shadow": False}
    drawn = drawn_values(prior, fork(context.generator, "values"))
    replies = shadow_replies(
        task.view, task.rounds, task.filled(drawn), task.examples, fork(context.generator, "shadow")
    )
    by_strength = indicators(task, prior, replies, STRENGTHS)
    fits = [calibrated(prior.log(), shares, drawn) for shares in by_strength]
    best = min(range(len(fits)), key=lambda place: fits[place][2])
    first, second, loss = fits[best]
    alone = float(-prior.log().gather(1, drawn[:, None]).mean())
    if len(drawn) * (alone - loss) <= LUCK:  # so little may be luck of choosing: the prior alone
        first, second = 1.0, 0.0
    chosen = STRENGTHS[best]
    shares = indicators(task, prior, task.rounds, [chosen])[0]
    facts = {"shadow": True, "kappa": chosen[0], "ridge": chosen[1], "weight_of_prior": first,
             "weight_of_estimate": second, "shadow_loss": loss}  # fmt: skip
    return first * prior.log() + second * shares, facts


def indicators(
    task: IndicatorTask, prior: Tensor, rounds: Sequence[Observation], strengths: Sequence[tuple[float, float]]
) -> list[Tensor]:
    """Return the estimated indicators [records, values] by strength."""
    view, asked = task.view, task.asked
    every = torch.cat([with_value(asked.x, task.column.positions, value) for value in task.candidates])
    gradients = gradients_at(view.model, view.loss, every, asked.y.repeat(len(task.candidates)))
    missing = max(0.0, task.examples / len(asked.x) - 1)
    messages = Messages(rounds=rounds, step=known_step(view, task.examples), missing=missing)
    return estimates(gradients, messages, of_values(prior), strengths)


def calibrated(known: Tensor, shares: Tensor, real: Tensor) -> tuple[float, float, float]:
    """Return the weights a of log prior and b of the estimate that fit the real values best, and their log loss.

    P(value) ~ exp(a known + b shares), both [records, values]; Newton steps with a slight pull towards a = 1, b = 0.
    """
    features = torch.stack([known, shares], -1)  # [records, values, 2]
    hit = torch.nn.functional.one_hot(real, known.shape[1]).to(features)
    weights = start = features.new_tensor([1.0, 0.0])
    for _ in range(NEWTON_STEPS):
        chance = torch.softmax(features @ weights, 1)
        centred = features - (chance[..., None] * features).sum(1, keepdim=True)
        slope = ((hit - chance)[..., None] * features).sum((0, 1)) - PULL * (weights - start)
        bend = (chance[..., None] * centred).flatten(0, 1).T @ centred.flatten(0, 1)
        bend.diagonal().add_(PULL)
        weights = (weights + torch.linalg.solve(bend, slope).clamp(-2, 2)).clamp(min=0)  # never against the evidence
    loss = -(torch.log_softmax(features @ weights, 1) * hit).sum(1).mean()
    return float(weights[0]), float(weights[1]), float(loss)
