"""Attribute inference by matching gradients (Lyu and Chen 2021; baseline of papers 003 Eq. 2 and 000 Eq. 2).

The values are sought, for all records at once, under which the gradient of the whole data set at the model of each
round t points along what came back:
    maximise  sum_t cos(gradient of the mean loss at theta(t), theta(t) - theta_c(t)).
At one local step on all records the right values reach a cosine of 1 in every round.

`method = "iterative"` is the papers' way: one logit per record and value from N(0, 1); each step draws a
Gumbel-softmax sample at temperature 1, made hard with a straight-through gradient, and moves the logits by plain
gradient descent on sum_t (1 - cos_t). Every learning rate is tried; the one whose final values have the best sum of
cosines wins. `method = "closed-form"` uses that the data-set gradient is linear in the indicators of the values: the
inner products of all single gradients are computed once, then the mean of 1 - cos_t^2 is a ratio of two quadratic
forms (see gradient_match); relaxed least squares under several ridges give starts, and from each single values are
changed as long as the ratio falls. Of all ends the one with the least ratio wins.

Where we differ: two logits for two values (the authors' code has one logit and one Gumbel draw, which is biased);
all rounds seen are used, where the authors try shares of them; the closed form takes networks in evaluation mode,
so that BatchNorm and Dropout are matched roughly. Categorical columns only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_model import with_value
from fedxray.attacks.attributes.gradient_match import Products, descend, products, relaxed
from fedxray.attacks.base import Attack, Context, Need, granted, sensitive_column, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_attributes
from fedxray.errors import BadInput
from fedxray.federation.local import Batch, Objective, objective
from fedxray.methods import Sgd
from fedxray.minimise import Outcome, minimise
from fedxray.params import dot, is_finite, norm, scaled
from fedxray.seeds import fork, normal_like, uniform_like

MOST_INDICATORS = 6000  # records times values whose inner products are held: two matrices of 288 MB
NOT_FINITE = "a gradient at a model that was sent is not finite"


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

    method: Literal["closed-form", "iterative"] = "closed-form"
    steps: int = 100  # iterative: steps per learning rate
    learning_rates: tuple[float, ...] = (1e2, 1e3, 1e4, 1e5, 1e6)  # iterative
    changes: int = 10_000  # closed form: most single changes from each start

    def __post_init__(self) -> None:
        """Check every setting."""
        if self.method not in ("closed-form", "iterative"):
            raise BadInput("method", expected='"closed-form" or "iterative"', got=repr(self.method),
                           remedy='Try "closed-form".')  # fmt: skip
        if not self.learning_rates:
            raise BadInput("learning_rates", expected="at least one", got="none", remedy="Try [1e3, 1e5].")
        for rate in self.learning_rates:
            Sgd(steps=self.steps, lr=rate)
        if isinstance(self.changes, bool) or not isinstance(self.changes, int) or self.changes < 0:
            raise BadInput("changes", expected="a whole number of at least 0", got=repr(self.changes),
                           remedy="Try 10000.")  # fmt: skip

    def needs(self) -> tuple[Need, ...]:
        """The other columns of the records, categories to choose from, and replies."""
        return (sensitive_column(), _categories(), granted("public-attributes"), single_replies())

    def attack(self, view: View, context: Context) -> Evidence:
        """Match the updates by either method; the records are put in an order of their own values first."""
        given, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert given is not None
        candidates = column.candidates(given.x)  # [values, positions]
        rounds = [one for one in view.of_target() if is_finite(one.update) and float(norm(one.update)) > 0]
        if not rounds or not len(given.x):
            return of_attributes(
                candidates[:1].expand(len(given.x), -1) * torch.nan, status="undetermined",
                reason="no update has a direction, so that no gradient can be matched with it",
            )  # fmt: skip
        order = own_order(given)
        records = PublicAttributes(x=given.x[order], y=given.y[order])
        find = self._closed if self.method == "closed-form" else self._iterative
        chosen, margins, more = find(view, records, candidates, rounds, context)
        codes, back = candidates[chosen], torch.argsort(order)
        guess = filled(records.x, column.positions, codes)
        cosine = float(round_cosines(view, guess, records.y, rounds).mean())
        facts = {"values": len(candidates), "rounds": len(rounds)} | more.pop("facts")
        if not math.isfinite(cosine) or more.get("status") == "undetermined":
            blank = torch.full_like(codes, torch.nan)  # no guess rather than an arbitrary one
            return of_attributes(blank, facts=facts, status="undetermined", reason=NOT_FINITE)
        facts["mean_cosine"] = cosine
        return of_attributes(codes[back], margins.to(given.x.dtype)[back], facts=facts, **more)

    def _closed(
        self,
        view: View,
        records: PublicAttributes,
        candidates: Tensor,
        rounds: Sequence[Observation],
        context: Context,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Values [records], margins [records] and the rest of the evidence from inner products of gradients."""
        size = len(records.x) * len(candidates)
        if size > MOST_INDICATORS:
            raise BadInput("method", expected=f"records times values up to {MOST_INDICATORS} for the closed form",
                           got=f"{size}", remedy='Set method = "iterative".')  # fmt: skip
        positions = view.space.column(view.space.sensitive or "").positions
        every = torch.stack([with_value(records.x, positions, value) for value in candidates], dim=1)
        found = products(view.model, view.loss, every, records.y, rounds)
        if not bool(torch.isfinite(found.whole).all()):
            unknown = torch.zeros(len(records.x), dtype=torch.int64, device=records.x.device)
            return unknown, torch.zeros_like(records.x[:, 0]), {"status": "undetermined", "facts": {}}
        chosen, curve, ratios = self._best_end(found)
        ordered = ratios.sort(1).values
        more = {"curve": tuple(curve), "facts": {"own_loss": curve[-1]}}
        return chosen, ordered[:, 1] - ordered[:, 0], more

    def _best_end(self, found: Products) -> tuple[Tensor, list[float], Tensor]:
        ends = [descend(found, start, self.changes) for start in relaxed(found)]
        return min(ends, key=lambda end: end[1][-1])

    def _iterative(
        self,
        view: View,
        records: PublicAttributes,
        candidates: Tensor,
        rounds: Sequence[Observation],
        context: Context,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Values [records], margins [records] and the rest of the evidence from descent on logits."""
        positions = view.space.column(view.space.sensitive or "").positions
        blank = records.x.new_empty((len(records.x), len(candidates)))
        ends: list[tuple[float, float, Outcome]] = []
        for rate in self.learning_rates:
            draws = fork(context.generator, "gumbel", rate)
            start = normal_like(blank, fork(context.generator, "logits"))

            def loss(point: dict[str, Tensor], draws: torch.Generator = draws) -> Tensor:
                x = filled(records.x, positions, hard_sample(point["logits"], draws) @ candidates)
                return (1 - round_cosines(view, x, records.y, rounds, keep_graph=True)).sum()

            method = Sgd(steps=self.steps, lr=rate)
            end = minimise(loss, {"logits": start}, method, report=context.report, what=self.name)
            x = filled(records.x, positions, candidates[end.last["logits"].argmax(1)])
            ends.append((float(round_cosines(view, x, records.y, rounds).sum()), rate, end))
        total, rate, end = max(ends, key=lambda one: one[0] if math.isfinite(one[0]) else -math.inf)
        ordered = end.last["logits"].sort(1, descending=True).values
        facts = {"learning_rate": rate, "own_loss": len(rounds) - total}
        more = {"curve": end.curve, "status": end.status, "reason": end.reason, "facts": facts}
        return end.last["logits"].argmax(1), ordered[:, 0] - ordered[:, 1], more


def filled(x: Tensor, positions: tuple[int, ...], codes: Tensor) -> Tensor:
    """Records with an encoded value each [records, positions] written in, shape kept."""
    return x.index_copy(1, torch.tensor(positions, dtype=torch.int64, device=x.device), codes)


def hard_sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot draws of a Gumbel-softmax at temperature 1 with the gradient of the soft ones, shape kept."""
    tiny = torch.finfo(logits.dtype).eps
    noise = -torch.log(-torch.log(uniform_like(logits, generator).clamp(tiny, 1 - tiny)))
    soft = torch.softmax(logits + noise, dim=1)
    hard = functional.one_hot(soft.argmax(1), logits.shape[1]).to(soft.dtype)
    return hard + soft - soft.detach()


def round_cosines(
    view: View, x: Tensor, y: Tensor, rounds: Sequence[Observation], *, keep_graph: bool = False
) -> Tensor:
    """Cosine of the gradient of these records at each round's start with minus its update, shape [rounds]."""
    evaluate = objective(view.model, view.loss)
    with torch.enable_grad():
        found = [_cosine(evaluate, Batch(x=x, y=y), one, keep_graph) for one in rounds]
    return torch.stack(found)


def _cosine(evaluate: Objective, batch: Batch, seen: Observation, keep_graph: bool) -> Tensor:
    leaves = {name: value.detach().requires_grad_() for name, value in seen.start.items()}
    loss, _ = evaluate(leaves, seen.buffers, batch)
    slopes = torch.autograd.grad(loss, list(leaves.values()), create_graph=keep_graph, materialize_grads=True)
    gradient, wanted = dict(zip(leaves, slopes, strict=True)), scaled(seen.update, -1.0)
    tiny = torch.finfo(loss.dtype).tiny
    length = dot(gradient, gradient).clamp(min=tiny).sqrt()
    return dot(gradient, wanted) / (length * norm(wanted))


def own_order(records: PublicAttributes) -> Tensor:
    """Places of the records sorted by their own values, so that the order they are granted in does not matter."""
    keys = torch.cat([records.x.flatten(1), records.y.reshape(len(records.y), -1).to(records.x.dtype)], dim=1)
    order = torch.arange(len(keys), device=keys.device)
    for place in reversed(range(keys.shape[1])):
        order = order[torch.argsort(keys[order, place], stable=True)]
    return order


def _categories() -> Need:
    return Need(
        what="a sensitive column of categories",
        given_by="a sensitive column that is categorical in [data]; attribute-from-model takes numbers",
        met=lambda view: view.space.column(view.space.sensitive or "").kind == "categorical",
    )
