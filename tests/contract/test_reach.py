"""The search behind a view finds what is hidden in the usual places, or it would prove nothing."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedxray.params import Late
from tests.contract import worlds
from tests.contract.reach import reachable, secrets_behind


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def fetch(self) -> Any:
        return self.held


def in_default(thing: Any) -> Callable[[], Any]:
    def fetch(held: Any = thing) -> Any:
        return held

    return fetch


HIDING: dict[str, Callable[[Any], Any]] = {
    "a field": Holder,
    "a slot": Slotted,
    "a container": lambda thing: [{"key": (thing,)}],
    "a closure": lambda thing: lambda: thing,
    "a default": in_default,
    "a bound method": lambda thing: Holder(thing).fetch,
    "a built-in method": lambda thing: [thing].__getitem__,
    "a partial": lambda thing: functools.partial(print, end=thing),
    "tensors fetched late": lambda thing: Late(lambda: thing),
    "tensors fetched late by a method": lambda thing: Late(Holder(thing).fetch),
    "a cached function": lambda thing: filled_cache(thing),
    "a weak reference": lambda thing: weakref.ref(thing),
    "an attribute of a function": lambda thing: functools.wraps(in_default(thing))(lambda: None),
    "an iterator": lambda thing: iter([thing]),
    "the base of a sliced tensor": lambda thing: torch.stack([thing, thing])[0],
    "a module": lambda thing: with_attribute(torch.nn.Linear(1, 1), thing),
}


def with_attribute(module: torch.nn.Module, thing: Any) -> torch.nn.Module:
    module.register_forward_hook(lambda *_: thing)
    return module


def filled_cache(thing: Any) -> Any:
    cached = functools.cache(lambda number: [thing] if number else None)
    cached.__wrapped__ = None  # type: ignore[attr-defined]
    cached(1)
    return cached


@pytest.mark.parametrize("place", HIDING)
def test_it_is_found(place: str) -> None:
    if place == "the base of a sliced tensor":
        sliced = HIDING[place](torch.ones(2))
        assert any(thing is sliced._base for thing in reachable(sliced))
        return
    secret = torch.Generator()
    assert any(thing is secret for thing in reachable(HIDING[place](secret)))


def test_a_truth_in_a_late_update_is_a_secret_and_a_channel_is_none() -> None:
    attack = worlds.small("local-model-send-back")
    world = worlds.world_of(attack)
    view = worlds.view_of(attack, world, role="active-server")
    assert view.channel is not None and not secrets_behind(view)
    update = Late(lambda: dict(world.truth.model.named_parameters()))
    leaky = replace(view, observations=(replace(view.observations[0], update=update),))
    assert "Truth" in secrets_behind(leaky)
