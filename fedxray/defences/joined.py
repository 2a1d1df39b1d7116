"""Several defences one after the other, in the order they are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from fedxray.defences.base import IDENTITY, Clipped, Defence, Hooks, Kept, KnownDefence, Mixing, State, Work
from fedxray.errors import BadInput
from fedxray.params import Params

PLACES = ("incoming", "batch", "gradients", "outgoing")


@dataclass(frozen=True, kw_only=True)
class Joined(Defence):
    """Several defences one after the other."""

    name: ClassVar[str] = "joined"
    parts: tuple[Defence, ...]

    def check_settings(self) -> None:
        """Refuse a part that adapts to the updates it sent, where later parts change them."""
        early = [part.name for part in self.parts[:-1] if part.adapts()]
        if early:
            expected, remedy = f"{early[0]} last, since it adapts to the updates as sent", "Name it last."
            raise BadInput("defence.name", expected=expected, got="a defence after it", remedy=remedy)

    def hooks(self, work: Work) -> Hooks:
        """Return hooks that apply the parts in order; every part keeps its own state."""
        mixing = _worst([part.hooks(work).mixed for part in self.parts])
        inner = [part.hooks(replace(work, mixing=mixing)) for part in self.parts]
        _check_together(inner)
        return replace(
            _places(inner),
            mixing=None if mixing == "none" else mixing,
            sampling=_only(inner, "sampling"),
            privacy=_only(inner, "privacy"),
            kept=_kept([one.kept for one in inner if one.kept is not None]),
            known=_known([one.known for one in inner if one.known is not None]),
        )

    def after_round(self, updates: Sequence[Params]) -> Defence:
        """Return the parts of the next round; only the last one may adapt."""
        last = self.parts[-1].after_round(updates)
        return self if last is self.parts[-1] else replace(self, parts=(*self.parts[:-1], last))

    def adapts(self) -> bool:
        """Return whether the last part does."""
        return self.parts[-1].adapts()

    def clip_of(self, what: Clipped) -> float | None:
        """Return the smallest norm of the parts."""
        return min((norm for part in self.parts if (norm := part.clip_of(what)) is not None), default=None)

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return ", then ".join(part.describe() for part in self.parts)


def _places(inner: list[Hooks]) -> Hooks:
    """Return the four hooks only, each with its parts in order."""
    joined = IDENTITY
    for place in PLACES:
        steps = [getattr(hooks, place) for hooks in inner]
        if any(step is not None for step in steps):
            joined = replace(joined, **{place: _in_order(steps)})
    return joined


def _kept(parts: list[Kept]) -> Kept | None:
    """Return what at least one of them keeps with the client."""
    if not parts:
        return None
    names = tuple(dict.fromkeys(name for one in parts for name in one.params))
    return Kept(params=names, statistics=any(one.statistics for one in parts))


def _known(parts: list[KnownDefence]) -> KnownDefence | None:
    """Return what an attacker can use of all: replayed in order, with the variances of independent noise added."""
    if not parts:
        return None
    certain = [one.replay for one in parts]
    return KnownDefence(
        replay=replace(_places(certain), mixing=_worst([one.mixed for one in certain])),
        cut=any(one.cut for one in parts),
        update_variance=sum(one.update_variance for one in parts),
        step_variance=sum(one.step_variance for one in parts),
    )


def _worst(mixings: list[Mixing]) -> Mixing:
    """Return how several defences combine examples: two that mix leave each example in several mixtures."""
    busy = [one for one in mixings if one != "none"]
    return "none" if not busy else busy[0] if len(busy) == 1 else "several"


def _only(inner: list[Hooks], what: str) -> Any:
    return next((value for one in inner if (value := getattr(one, what)) is not None), None)


def _check_together(inner: list[Hooks]) -> None:
    """Refuse two that sample batches, and a change of gradients after the one with a privacy guarantee."""
    if sum(one.sampling is not None or one.privacy is not None for one in inner) > 1:
        expected = "one defence that samples batches and guarantees privacy"
        raise BadInput("defence", expected=expected, got="several", remedy="Leave one out.")
    claiming = [place for place, one in enumerate(inner) if one.privacy is not None]
    if claiming and any(one.gradients is not None for one in inner[claiming[0] + 1 :]):
        raise BadInput(
            "defence",
            expected="no change of gradients after the defence that clips them and adds noise",
            got="one, which would void the privacy guarantee",
            remedy="Name dp-sgd last of the defences on gradients.",
        )


def _in_order(steps: list[Any]) -> Any:
    def apply(value: Any, state: State, generator: torch.Generator) -> tuple[Any, State]:
        states = list(state) if state is not None else [None] * len(steps)
        for index, step in enumerate(steps):
            if step is not None:
                value, states[index] = step(value, states[index], generator)
        return value, tuple(states)

    return apply
