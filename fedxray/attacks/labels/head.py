"""What an update of the last layer says about labels: the mean gradient behind it, and the steps that made it.

With cross-entropy the gradient of row k of the last layer is the mean over examples of (p_k - [label is k]) times
the features, and that of its bias the same without the features. A weight update adds one such gradient per local
step, each times what the recipe makes of it. A sum over several clients is read as the update of one client that
holds everyone's examples: exact for FedSGD weighted by examples, for FedAvg as far as clients are alike in size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, examples_behind, observation_at
from fedxray.attacks.base import Need
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import Params, add


@dataclass(frozen=True, kw_only=True)
class HeadGradient:
    """The mean gradient of the last layer over the local steps, in float64."""

    rows: Tensor  # [classes, features]
    bias: Tensor | None  # [classes]
    pulls: (
        Tensor  # [steps] what the gradient of every local step was multiplied by on its way into the update
    )
    examples: int

    @property
    def steps(self) -> int:
        """Local steps behind the update."""
        return len(self.pulls)


def head_gradient(view: View, at: At) -> HeadGradient:
    """The last layer of the chosen update, divided by what its steps were multiplied by."""
    seen, examples = observation_at(view, at), examples_behind(view, at)
    assert examples is not None
    place = head(view.model)
    rows = seen.update[place.weight].detach().double()
    found = pulls(seen, view.grants.recipe, examples, view.grants.contributors)
    assert found is not None
    weights = torch.tensor(found, dtype=rows.dtype, device=rows.device)
    bias = None if place.bias is None else -seen.update[place.bias].detach().double() / weights.sum()
    return HeadGradient(rows=-rows / weights.sum(), bias=bias, pulls=weights, examples=examples)


def pulls(
    seen: Observation, recipe: Recipe | None, examples: int, contributors: tuple[int, ...] | None = None
) -> list[float] | None:
    """What the gradient of every local step is multiplied by on its way into the update; None where that is unknown."""
    if seen.kind == "gradient":
        return [1.0]
    if recipe is None:
        return None
    server = recipe.server_learning_rate if is_sum(seen) else 1.0
    if recipe.algorithm == "fedsgd":
        return [server * recipe.learning_rate]  # the server took the step
    if is_sum(seen):
        examples = -(-examples // max(1, len(seen.contributors or contributors or ())))
    steps, kept = recipe.steps(examples), recipe.momentum
    return [
        server * recipe.learning_rate * (1 - kept ** (steps - step)) / (1 - kept) for step in range(steps)
    ]


def is_sum(seen: Observation) -> bool:
    """Whether several clients may stand behind an update."""
    return seen.contributors is None or len(seen.contributors) > 1


def returned(seen: Observation, recipe: Recipe | None) -> Params:
    """The model that the client ended with, of a sum the mean client; one gradient changes nothing."""
    if seen.kind == "gradient" or recipe is None or recipe.algorithm == "fedsgd":
        return seen.start
    return add(seen.start, seen.update, 1 / recipe.server_learning_rate if is_sum(seen) else 1.0)


def linear_head() -> Need:
    """A linear head trained with cross-entropy, in every update."""
    return Need(
        what="a linear last layer, one output per class, trained with cross-entropy and part of the update",
        given_by="a network that ends in an nn.Linear",
        met=lambda view: view.loss == "cross-entropy" and _ends_linear(view.model, view.space.outputs)
        and all(head(view.model).weight in one.update for one in view.of_target()),
    )  # fmt: skip


def head_bias(instead: str) -> Need:
    """A bias in the last layer, or else what can be used instead."""
    return Need(
        what="a bias in the last layer",
        given_by=f"a network whose head has one; without one use {instead}",
        met=lambda view: (
            head(view.model).bias is not None
            and all(head(view.model).bias in o.update for o in view.of_target())
        ),
    )


def known_steps(at: At) -> Need:
    """How the update was made; one gradient needs no telling."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: pulls(observation_at(view, at), view.grants.recipe, 1) is not None,
    )


def _ends_linear(model: nn.Module, outputs: int) -> bool:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == outputs
