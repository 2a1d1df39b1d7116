"""Which update an attack on updates works from, and how many examples stand behind it."""

from __future__ import annotations

from typing import Literal

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Need
from fedxray.errors import BadInput

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
