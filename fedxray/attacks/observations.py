"""Which update an attack on updates works from, and how many examples stand behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, Own, View
from fedxray.attacks.base import Need
from fedxray.data.dataset import Records, union
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.params import Late, Params, add, scaled

At = Literal["first", "last"]


def observation_at(view: View, at: At) -> Observation:
    """The first or the last update about the target among the rounds read."""
    check_at(at)
    return view.of_target()[0 if at == "first" else -1]


def examples_behind(view: View, at: At) -> int | None:
    """How many examples the update was computed on, where this seat knows it or was told."""
    if view.grants.examples is not None:
        return view.grants.examples
    return observation_at(view, at).examples if view.of_target() else None


def is_sum(seen: Observation) -> bool:
    """Whether several clients may stand behind an update."""
    return seen.contributors is None or len(seen.contributors) > 1


def clients_behind(view: View, seen: Observation) -> int:
    """How many clients stand behind an update; taken for one where this seat cannot know."""
    return max(1, len(seen.contributors or view.grants.contributors or ()))


def known_examples(at: At) -> Need:
    """The number of examples behind the update."""
    return Need(
        what="the number of examples behind the update",
        given_by='role server, or grants = ["examples"]',
        met=lambda view: examples_behind(view, at) is not None,
    )


def check_at(at: str) -> None:
    """Refuse a place among the rounds that is not there."""
    if at not in ("first", "last"):
        raise BadInput("at", expected='"first" or "last"', got=repr(at), remedy='Try "first".')


# --- What a seat makes of a sum: the change of the global model, read as the reply of one large client.
#
# Clients W_k <- W - (eta / n_k) sum of gradients, and the server averages them with weights n_k / N: of one
# local step every image has the same weight, so the mean is what one client with all N images would have
# sent; of several steps it nearly is (`fedxray.theory` tells how nearly).
#
# A curious client knows its own part. It can take it out,
#     (mean - (n / N) own) N / (N - n),
# or leave it in and look for its own images among the guesses, by which it can tell how good a guess is. Several seats
# that pool what they know take out, or look for, what all of them sent.


OwnShare = Literal["subtract", "recover"]
OWN_SHARES = ("subtract", "recover")


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What the attacker takes for given in place of what it was told; None where it was told."""

    learning_rate: float | None = None
    examples: int | None = None  # behind the sum, its own among them


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A sum as the reply of one client: a view of that reply alone, and the seat's own images if it holds them."""

    view: View
    own: Records | None
    facts: dict[str, Any]


def read_sum(view: View, at: At, own_share: OwnShare, assumed: Assumed) -> Reading:
    """The chosen update as one client's reply, with the examples and label counts that stand behind it.

    Label counts come sorted, so that two seats who know the same go on alike. A single reply stays what it is.
    """
    view = _told(view, assumed)
    if not view.of_target():
        return Reading(view=view, own=None, facts={})
    seen = observation_at(view, at)
    mine = _took_part(view, seen.round) if is_sum(seen) else []
    held = union(tuple(seat.records for seat, _ in mine)) if mine else None
    others = _others(view, held, assumed)
    if own_share == "subtract" and mine and can_subtract(view, others):
        assert others is not None
        return _subtracted(view, seen, mine, others)
    share = "nothing" if held is None else "left in"
    count = None if others is None else others + (0 if held is None else len(held))
    return Reading(
        view=_alone(view, seen, count, _counts(view, held)),
        own=held,
        facts={"own_share": share, "images": count},
    )


def can_subtract(view: View, others: int | None) -> bool:
    """Whether the weight of the own part is known: by examples, or uniform with everyone named."""
    recipe = view.grants.recipe
    if recipe is None or others is None or others < 1:
        return False
    return recipe.weighting == "examples" or len(view.grants.contributors or ()) > len(view.own)


def mean_of_others(
    mean: Params, own: Sequence[Params], weights: Sequence[float], left: float
) -> dict[str, Tensor]:
    """The mean reply without these parts of it: (total * mean - sum of weight * own) / left."""
    total = scaled(mean, (left + sum(weights)) / left)
    for one, weight in zip(own, weights, strict=True):
        total = add(total, one, -weight / left)
    return total


def server_step(recipe: Recipe) -> float:
    """What the server multiplies the mean reply by."""
    return recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)


def check_own_share(own_share: str) -> None:
    """Refuse a way to treat the own part that is not there."""
    if own_share not in OWN_SHARES:
        raise BadInput(
            "own_share",
            expected=f"one of {', '.join(OWN_SHARES)}",
            got=repr(own_share),
            remedy='Try "subtract".',
        )


def _told(view: View, assumed: Assumed) -> View:
    """The view with the learning rate that the attacker takes for given in place of the true one."""
    recipe = view.grants.recipe
    if assumed.learning_rate is None or recipe is None:
        return view
    guess = replace(recipe, learning_rate=assumed.learning_rate)
    return replace(view, grants=replace(view.grants, recipe=guess))


def _took_part(view: View, round: int) -> list[tuple[Own, Observation]]:
    """The seats that sent something in this round, with what they sent."""
    return [(seat, one) for seat in view.own for one in seat.observations if one.round == round]


def _others(view: View, held: Records | None, assumed: Assumed) -> int | None:
    """How many images of others stand behind the sum, as far as it is told or assumed."""
    if assumed.examples is None:
        return view.grants.examples if view.grants.examples is not None else _seen(view)
    return max(1, assumed.examples - (0 if held is None else len(held)))


def _seen(view: View) -> int | None:
    """The examples that a server sees beside single replies; of a sum it sees none."""
    return view.of_target()[0].examples


def _subtracted(
    view: View, seen: Observation, mine: Sequence[tuple[Own, Observation]], others: int
) -> Reading:
    """The reply of all others, as the server would have shown it without the seats."""
    recipe = view.grants.recipe
    assert recipe is not None
    step, sizes = server_step(recipe), [float(len(seat.records)) for seat, _ in mine]
    everyone = view.grants.contributors
    seats = {seat.client for seat, _ in mine}
    if recipe.weighting == "examples":
        weights, left = sizes, float(others)
    else:
        weights, left = [1.0] * len(mine), float(len(everyone or ()) - len(mine))

    def update() -> dict[str, Tensor]:
        mean = scaled(seen.update, 1 / step)
        return scaled(mean_of_others(mean, [one.update for _, one in mine], weights, left), step)

    rest = None if everyone is None else tuple(client for client in everyone if client not in seats)
    view = replace(view, grants=replace(view.grants, contributors=rest))
    alone = _alone(view, replace(seen, update=Late(update)), others, _counts(view, None))
    return Reading(view=alone, own=None, facts={"own_share": "subtracted", "images": others})


def _alone(view: View, seen: Observation, examples: int | None, counts: Tensor | None) -> View:
    """The view of someone who sees this update alone."""
    known = replace(view.grants, examples=examples, labels=None, label_counts=counts)
    return replace(view, observations=(seen,), own=(), grants=known)


def _counts(view: View, held: Records | None) -> Tensor | None:
    """Granted labels as counts by class, with those of the seat's own images where they are part of it."""
    told, classes = view.grants.labels, len(view.space.classes)
    counts = view.grants.label_counts if told is None else torch.bincount(told, minlength=classes)
    if counts is None or held is None:
        return counts
    return counts + torch.bincount(held.y, minlength=classes).to(counts.device)
