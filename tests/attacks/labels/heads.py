"""Networks whose predictions and features are known, and what cross-entropy makes of them, in plain loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.labels.last_layer import HeadGradient
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.params import parameters_of
from tests.attacks.inversion.clients import plain_update
from tests.attacks.views import view_of_update

INPUTS = 5


def net(seed: int, *, classes: int = 7, bias: bool = True, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """A small network at random weights."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 40), activation(), nn.Linear(40, classes, bias=bias))


class SameFeatures(nn.Module):
    """A network in which every input enters the head alike: its prediction and its activation are exact."""

    def __init__(self, seed: int, classes: int, features: int = 6) -> None:
        """Random features and a random head."""
        nn.Module.__init__(self)
        draw = torch.Generator().manual_seed(seed)
        self.features: Tensor
        self.register_buffer("features", torch.rand(features, generator=draw))
        self.head = nn.Linear(features, classes)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(classes, features, generator=draw))
            self.head.bias.copy_(torch.randn(classes, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        """The same for all."""
        found: Tensor = self.head(0 * x[:, :1] + self.features)
        return found


def told_view(model: nn.Module, y: Tensor, recipe: Recipe, *, seed: int = 0, **more: Any) -> View:
    """The server's view of one client with these labels, the recipe granted."""
    x = torch.randn(len(y), INPUTS, generator=torch.Generator().manual_seed(seed))
    schedule = draw_schedule(len(y), recipe, torch.Generator().manual_seed(seed))
    update = plain_update(model, x, y, recipe, schedule)
    classes = parameters_of(model)[list(parameters_of(model))[-1]].shape[0]
    given = {"examples": len(y), "kind": recipe.kind, "recipe": recipe, **more}
    return view_of_update(model, update, shape=(INPUTS,), classes=classes, **given)


def as_sum(view: View, clients: int, recipe: Recipe, **grants: Any) -> View:
    """The same update as a change of the global model by so many clients that are all alike."""
    seen = view.observations[0]
    step = recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)
    update = {name: step * value for name, value in seen.update.items()}
    whole = replace(seen, update=update, kind="weights", contributors=None, examples=None)
    knowledge = replace(view.grants, examples=clients * (seen.examples or 0), recipe=recipe, **grants)
    return replace(view, target=None, observations=(whole,), grants=knowledge)


def slow_gradient(features: Tensor, logits: Tensor, y: Tensor) -> HeadGradient:
    """Mean gradient of a linear head, example by example, as one gradient sent."""
    classes = logits.shape[1]
    rows = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    bias = torch.zeros(classes, dtype=torch.float64)
    for feature, output, label in zip(features.double(), logits.double(), y.tolist(), strict=True):
        exps = [float(torch.exp(output[k] - output.max())) for k in range(classes)]
        for k in range(classes):
            slope = exps[k] / sum(exps) - (1.0 if k == label else 0.0)
            rows[k] += slope * feature / len(y)
            bias[k] += slope / len(y)
    one = torch.ones(1, dtype=torch.float64)
    return HeadGradient(rows=rows, bias=bias, pulls=one, examples=len(y))
