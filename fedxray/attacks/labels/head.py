"""What an update of the last layer says about labels: the mean gradient behind it, and the steps that made it.

With cross-entropy the gradient of row k of the last layer is the mean over examples of (p_k - [label is k]) times
the features, and that of its bias the same without the features. A weight update adds one such gradient per local
step, each times what the recipe makes of it.

A sum over several clients is read as the reply of one client that holds everyone's examples: exact for FedSGD weighted
by examples, for FedAvg as far as clients are alike in size. How many steps each made depends on how many they are:
without the grant `contributors` the examples told are taken for those of one client. A curious client that knows who
took part takes its own reply out first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, clients_behind, examples_behind, is_sum, observation_at
from fedxray.attacks.base import Need
from fedxray.attacks.sums import mean_of_others, server_step
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import Params, add, scaled


@dataclass(frozen=True, kw_only=True)
class HeadGradient:
    """The mean gradient of the last layer over the local steps, in float64."""

    rows: Tensor  # [classes, features]
    bias: Tensor | None  # [classes]
    pulls: Tensor  # [steps] what the gradient of each local step was multiplied by on its way here
    examples: int

    @property
    def steps(self) -> int:
        """Local steps behind the update."""
        return len(self.pulls)


def head_gradient(view: View, at: At) -> HeadGradient:
    """The last layer of the chosen update, divided by what its steps were multiplied by."""
    reply, examples = mean_reply(view, at), examples_behind(view, at)
    assert examples is not None
    found = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    assert found is not None
    rows, slope = reply.update[head(view.model).weight].detach().double(), bias_name(view)
    weights = torch.tensor(found, dtype=rows.dtype, device=rows.device)
    bias = None if slope is None else -reply.update[slope].detach().double() / weights.sum()
    return HeadGradient(rows=-rows / weights.sum(), bias=bias, pulls=weights, examples=examples)


def pulls(reply: Observation, recipe: Recipe | None, examples: int) -> list[float] | None:
    """What the gradient of every local step is multiplied by on its way into a client's reply; None if unknown."""
    if reply.kind == "gradient":
        return [1.0]
    if recipe is None:
        return None
    steps, kept = recipe.steps(examples), recipe.momentum
    return [recipe.learning_rate * (1 - kept ** (steps - step)) / (1 - kept) for step in range(steps)]


def scale_of(view: View, reply: Observation, examples: int) -> float | None:
    """What a mean gradient was multiplied by on its way into a reply; None where that is unknown."""
    found = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    return None if found is None else sum(found)


def mean_reply(view: View, at: At) -> Observation:
    """The chosen update as a client's reply: of a sum, the mean reply before the server took its step."""
    seen, recipe = observation_at(view, at), view.grants.recipe
    if seen.kind == "gradient" or not is_sum(seen) or recipe is None:
        return seen
    mean = scaled(seen.update, 1 / server_step(recipe))
    return replace(seen, update=_without_own(view, seen.round, mean, recipe), kind=recipe.kind)


def returned(reply: Observation) -> Params:
    """The model that the client ended with; one gradient changes nothing."""
    return reply.start if reply.kind == "gradient" else add(reply.start, reply.update)


def _without_own(view: View, round: int, mean: Params, recipe: Recipe) -> Params:
    """The mean reply of all others, where the seat sent one itself and knows of everyone who took part."""
    everyone, others = view.grants.contributors or (), view.grants.examples
    own = [one for seat in view.own for one in seat.observations if one.round == round]
    if not own or others is None or len(everyone) <= len(own):
        return mean
    sizes = [one.examples or 0 for one in own]
    by_examples = recipe.weighting == "examples"
    weights = [float(size) if by_examples else 1.0 for size in sizes]
    left = float(others) if by_examples else float(len(everyone) - len(own))
    return mean_of_others(mean, [one.update for one in own], weights, left)


def _examples_of_one(view: View, reply: Observation, examples: int) -> int:
    """How many examples a client held: of a sum, its share of them all."""
    if not is_sum(reply):
        return examples
    return -(-examples // max(1, clients_behind(view, reply) - len(view.own)))


def bias_name(view: View) -> str | None:
    """The name of the last layer's bias; None where there is none or it is not trained."""
    name = head(view.model).bias
    return name if all(name in one.update for one in view.of_target()) else None


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
        met=lambda view: bias_name(view) is not None,
    )


def known_steps(at: At) -> Need:
    """How the update was made; one gradient needs no telling."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: pulls(mean_reply(view, at), view.grants.recipe, 1) is not None,
    )


def _ends_linear(model: nn.Module, outputs: int) -> bool:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == outputs
