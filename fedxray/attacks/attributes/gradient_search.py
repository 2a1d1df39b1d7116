"""Ways to find the values under which a data set's gradient points along the updates: in closed form, by descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_model import with_value
from fedxray.attacks.attributes.gradient_match import descend, relaxed
from fedxray.attacks.attributes.gradient_products import products
from fedxray.attacks.attributes.round_cosines import Cosine, cosines, distance
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Status
from fedxray.methods import Method
from fedxray.minimise import minimise
from fedxray.seeds import fork, normal_like, uniform_like

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
