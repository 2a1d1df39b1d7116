"""Which update an attack uses, how many examples it was computed on, and sums read as the reply of one client.

Clients send W_k = W - (eta / n_k) * sum of gradients, and the server averages them with weights n_k / N. After one
local step every image has the same weight, so the mean equals what a single client holding all N images would have
sent; after several steps it approximately does (`fedxray.theory` quantifies the difference). So a sum is read as the
reply of one large client.

A curious client knows its own contribution. It can subtract it, (mean - (n / N) own) N / (N - n), or leave it in and
look for its own images among the guesses, which measures the quality of a guess without the truth. Several colluding
clients subtract, or look for, what all of them sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, Own, View
from fedxray.attacks.base import Need
from fedxray.data.dataset import Records, union
from fedxray.federation.recipe import Recipe
from fedxray.params import Late, Params, add, is_finite, norm, scaled

At = Literal["first", "last"]  # which of the target's updates is attacked
AtOrAll = Literal["first", "last", "all"]  # "all": several updates together, described by the first
WHICH_UPDATE = "Which of the target's updates is attacked."
NO_DIRECTION = "no update has a direction, so that no gradient can be matched with it"


def observation_at(view: View, at: AtOrAll) -> Observation:
    """Return the first (also for "all") or the last update about the target among the rounds read."""
    return view.of_target()[-1 if at == "last" else 0]


def examples_behind(view: View, at: AtOrAll) -> int | None:
    """Return the number of examples the update was computed on, None where neither role nor grants give it."""
    seen = observation_at(view, at) if view.of_target() else None
    if view.grants.examples is not None and not (seen is not None and is_sum(seen) and seen.examples):
        return view.grants.examples  # of a sum all examples count, not those of a single client
    return None if seen is None else seen.examples


def is_sum(observation: Observation) -> bool:
    """Return whether several clients may have contributed to an update."""
    return observation.contributors is None or len(observation.contributors) > 1


def clients_behind(view: View, observation: Observation) -> int:
    """Return the number of clients that contributed to an update; assumed to be one where the role cannot know."""
    return max(1, len(observation.contributors or view.grants.contributors or ()))


def known_examples(at: AtOrAll) -> Need:
    """Return the need of the number of examples behind the update."""
    return Need(
        what="the number of examples behind the update",
        given_by='role server or secure-aggregation, or grants = ["examples"]',
        met=lambda view: examples_behind(view, at) is not None,
    )


# Sums read as the reply of one client

OwnShare = Literal["subtract", "recover"]


@dataclass(frozen=True, kw_only=True)
class SumAsReply:
    """A sum read as the reply of one client: a view of that reply alone, and the own images that are still in it."""

    view: View
    own: Records | None  # of the colluding clients; None where they are subtracted or took no part
    facts: dict[str, Any]


def read_sum(
    view: View, at: At, own_share: OwnShare, *, learning_rate: float | None = None, examples: int | None = None
) -> SumAsReply:
    """Return the chosen update as one client's reply, with the examples and label counts behind it.

    `learning_rate` and `examples` (behind the sum, own ones included) are assumed in place of granted ones. Label
    counts are by class, so that the order of granted labels does not matter. A single reply stays unchanged.
    """
    view = _with_assumed_rate(view, learning_rate)
    if not view.of_target():
        return SumAsReply(view=view, own=None, facts={})
    seen = observation_at(view, at)
    colluding = view.own if is_sum(seen) else ()
    mine = [(own, reply) for own in colluding for reply in own.observations if reply.round == seen.round]
    held = union(tuple(own.records for own, _ in mine)) if mine else None
    others = _others(view, held, examples)
    if own_share == "subtract" and mine and can_subtract(view, others):
        assert others is not None
        return _subtracted(view, seen, mine, others)
    share = "nothing" if held is None else "left in"
    count = None if others is None else others + (0 if held is None else len(held))
    return SumAsReply(
        view=_alone(view, seen, count, _counts(view, held)), own=held, facts={"own_share": share, "images": count}
    )


def can_subtract(view: View, others: int | None) -> bool:
    """Return whether the weight of the own contribution is known: by examples, or uniform with known contributors."""
    recipe = view.grants.recipe
    if recipe is None or others is None or others < 1:
        return False
    return recipe.weighting == "examples" or len(view.grants.contributors or ()) > len(view.own)


def mean_of_others(mean: Params, own: Sequence[Params], weights: Sequence[float], left: float) -> dict[str, Tensor]:
    """Return the mean reply of the others: (total * mean - sum of weight * own) / left.

    `weights` are those of the own replies, `left` is the total weight of all others.
    """
    total = scaled(mean, (left + sum(weights)) / left)
    for reply, weight in zip(own, weights, strict=True):
        total = add(total, reply, -weight / left)
    return total


def server_step(recipe: Recipe) -> float:
    """Return the factor by which the server multiplies the mean reply."""
    return recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)


def _with_assumed_rate(view: View, assumed: float | None) -> View:
    """Return the view with the assumed learning rate, if any, in place of the granted one."""
    recipe = view.grants.recipe
    if assumed is None or recipe is None:
        return view
    return replace(view, grants=replace(view.grants, recipe=replace(recipe, learning_rate=assumed)))


def _others(view: View, held: Records | None, assumed: int | None) -> int | None:
    """Return how many images of others are behind the sum, where that is granted, seen or assumed."""
    if assumed is None:
        return view.grants.examples if view.grants.examples is not None else view.of_target()[0].examples
    return max(1, assumed - (0 if held is None else len(held)))


def _subtracted(view: View, seen: Observation, mine: Sequence[tuple[Own, Observation]], others: int) -> SumAsReply:
    """Return the reply of all others, as the server would have shown it without the colluding clients."""
    recipe = view.grants.recipe
    assert recipe is not None
    step, sizes = server_step(recipe), [float(len(own.records)) for own, _ in mine]
    everyone = view.grants.contributors
    colluding = {own.client for own, _ in mine}
    if recipe.weighting == "examples":
        weights, left = sizes, float(others)
    else:
        weights, left = [1.0] * len(mine), float(len(everyone or ()) - len(mine))

    def update() -> dict[str, Tensor]:
        mean = scaled(seen.update, 1 / step)
        return scaled(mean_of_others(mean, [reply.update for _, reply in mine], weights, left), step)

    rest = None if everyone is None else tuple(client for client in everyone if client not in colluding)
    view = replace(view, grants=replace(view.grants, contributors=rest))
    alone = _alone(view, replace(seen, update=Late(update)), others, _counts(view, None))
    return SumAsReply(view=alone, own=None, facts={"own_share": "subtracted", "images": others})


def _alone(view: View, seen: Observation, examples: int | None, counts: Tensor | None) -> View:
    """Return the view reduced to this update."""
    known = replace(view.grants, examples=examples, labels=None, label_counts=counts)
    return replace(view, observations=(seen,), own=(), grants=known)


def _counts(view: View, held: Records | None) -> Tensor | None:
    """Return granted labels as counts [classes], plus those of the own images where these are part of the sum."""
    labels, classes = view.grants.labels, len(view.space.classes)
    counts = view.grants.label_counts if labels is None else torch.bincount(labels, minlength=classes)
    if counts is None or held is None:
        return counts
    return counts + torch.bincount(held.y, minlength=classes).to(counts.device)


def usable(rounds: Sequence[Observation], most: int | None = None) -> list[Observation]:
    """Return the rounds whose update is finite and not zero, or at most that many of them, evenly spread."""
    moved = [seen for seen in rounds if is_finite(seen.update) and float(norm(seen.update)) > 0]
    count = len(moved) if most is None else min(most, len(moved))
    return [moved[place * len(moved) // count] for place in range(count)]


def own_order(x: Tensor, *more: Tensor) -> Tensor:
    """Return indices that sort the records by their own values, so that the granted order does not matter."""
    keys = torch.cat([x.flatten(1), *(column.reshape(len(x), -1).to(x.dtype) for column in more)], dim=1)
    order = torch.arange(len(keys), device=keys.device)
    for place in reversed(range(keys.shape[1])):
        order = order[torch.argsort(keys[order, place], stable=True)]
    return order
