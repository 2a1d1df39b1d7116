"""Views of one FedAvg client for the attacks of the DLF family, with everything known that a test may want."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.base import Context, compute
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.progress import silent
from fedxray.seeds import fork
from tests.attacks.inversion.clients import examples, plain_update, small_net
from tests.attacks.views import view_of_update

CLASSES = 3


def smooth_net(dtype: torch.dtype = torch.float32) -> nn.Module:
    """A network for [n, 1, 4, 4] with two layers before the head, so that layers can count differently."""
    torch.manual_seed(7)
    layers = (nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 6))
    return nn.Sequential(*layers, nn.Sigmoid(), nn.Linear(6, CLASSES)).to(dtype)


def client_view(
    recipe: Recipe, count: int = 6, *, seed: int = 0, dtype: torch.dtype = torch.float32, **grants: Any
) -> tuple[View, Tensor, Tensor, Schedule]:
    """A server's view of one round, with the client's inputs, labels and order."""
    model = smooth_net(dtype)
    x, y = examples(count, dtype)
    order = draw_schedule(count, recipe, torch.Generator().manual_seed(seed))
    update = plain_update(model, x, y, recipe, order)
    view = view_of_update(
        model, update, shape=(1, 4, 4), classes=CLASSES, recipe=recipe, examples=count, kind=recipe.kind, **grants
    )
    return view, x, y, order


def context(seed: int = 0) -> Context:
    """A context whose draws depend on the seed alone."""
    return Context(generator=fork(seed), root=fork(seed), memo=compute, report=silent)


__all__ = ["CLASSES", "client_view", "context", "small_net", "smooth_net"]
