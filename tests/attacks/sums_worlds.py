"""Tiny federations whose global models are all that a seat sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import View
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth

CLASSES, SIDE, HIDDEN = 6, 4, 32
GRANTS = ("recipe", "examples", "label-counts")


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    """A hidden layer and the head for images [n, 1, 4, 4]."""
    torch.manual_seed(3)
    layers = (nn.Flatten(), nn.Linear(SIDE**2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    return nn.Sequential(*layers).to(dtype)


def pictures(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Smooth pictures in 0..1, shape [count, 1, 4, 4]."""
    drawn = torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return nn.functional.interpolate(drawn, size=(SIDE, SIDE), mode="bilinear")


def federation(sizes: tuple[int, ...], recipe: Recipe, *, seed: int = 0, **more: Any) -> Federation:
    """Clients with so many pictures each, no label twice where there are classes enough."""
    total = sum(sizes)
    x, y = pictures(total, seed), torch.arange(total) % CLASSES
    parts = zip(x.split(list(sizes)), y.split(list(sizes)), strict=True)
    space = Space(
        kind="image",
        shape=(1, SIDE, SIDE),
        target="classification",
        classes=tuple(str(label) for label in range(CLASSES)),
    )
    public = Records(pictures(8, seed + 100), torch.arange(8) % CLASSES)
    clients = tuple(Records(*part) for part in parts)
    settings: dict[str, Any] = {"space": space, "public": public, "model": net(), "rounds": 1, **more}
    return Federation(clients=clients, recipe=recipe, **settings)


def run(sizes: tuple[int, ...], recipe: Recipe, **more: Any) -> tuple[Transcript, Truth]:
    """One recorded run of such a federation."""
    return simulate(federation(sizes, recipe, **more), seed=0)


def client_view(
    transcript: Transcript, truth: Truth, *, seats: tuple[int, ...] = (0,), names: tuple[str, ...] = GRANTS
) -> View:
    """The view of curious clients."""
    given = disclose(truth, names, client=None, seats=seats)
    own = [truth.train[seat] for seat in seats]
    return roles.curious_client(transcript, seat=seats, own=own, grants=given)


def server_view(transcript: Transcript, truth: Truth, *, names: tuple[str, ...] = GRANTS) -> View:
    """The view of a server under secure aggregation."""
    return roles.secure_aggregation(transcript, grants=disclose(truth, names, client=None))


def joined(truth: Truth) -> Records:
    """Everyone's records as those of one client."""
    return Records(torch.cat([one.x for one in truth.train]), torch.cat([one.y for one in truth.train]))


def with_recipe(view: View, **changes: Any) -> View:
    """Return the view with another recipe granted."""
    recipe = view.grants.recipe
    assert recipe is not None
    return replace(view, grants=replace(view.grants, recipe=replace(recipe, **changes)))
