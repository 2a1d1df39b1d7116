"""The messages of one client as matrices, and what a client sent back as a model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Need
from fedxray.params import Params, add, each, flatten, parameters_of, subtract, unflatten
from fedxray.seeds import fork, normal_like

PROBES = 4  # inputs on which linearity is tried
LINEAR_TO = 1e-9  # relative departure from a straight line that still counts as rounding


@dataclass(frozen=True, kw_only=True)
class Messages:
    """What one client was sent and how it changed it, a row per round, in float64."""

    starts: Tensor  # [messages, parameters]
    updates: Tensor  # [messages, parameters]
    like: Params  # names, shapes and dtype of the model
    rounding: float  # of an entry of a message as it was sent

    def model(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector [parameters] as a model in the type of the messages."""
        return {name: value.to(self.like[name].dtype) for name, value in unflatten(vector, self.like).items()}


def messages_of_target(view: View) -> Messages:
    """The target's own messages by round, in float64."""
    seen = sorted(view.of_target(), key=lambda one: one.round)
    like = dict(seen[0].start)
    starts = torch.stack([_vector(one.start, like) for one in seen])
    updates = torch.stack([_vector(one.update, like) for one in seen])
    precision = max(torch.finfo(value.dtype).eps for value in like.values())
    largest = sum(float(torch.linalg.vector_norm(one, float("inf"))) for one in (starts, updates))
    return Messages(starts=starts, updates=updates, like=like, rounding=precision * largest)


def _vector(params: Params, like: Params) -> Tensor:
    return flatten({name: params[name].detach().double() for name in like})


def last_of(observations: Sequence[Observation]) -> Observation:
    """The observation of the latest round."""
    return max(observations, key=lambda one: one.round)


def step_of(view: View, one: Observation) -> float:
    """What turns a reply into a change of the model: one, or for a gradient the recipe's learning rate where known."""
    recipe = view.grants.recipe
    return recipe.learning_rate if one.kind == "gradient" and recipe is not None else 1.0


def returned(view: View, one: Observation) -> dict[str, Tensor]:
    """The model that a client sent back; of a gradient, one step of the recipe's size."""
    return add(one.start, one.update, step_of(view, one))


def least_squares_model() -> Need:
    """A model that is linear in its parameters, trained on a squared loss."""
    return Need(
        what="a model that is linear in its parameters, trained on a squared loss",
        given_by='the model "linear" on a regression task with loss "mse"',
        met=lambda view: (
            view.loss == "mse"
            and view.space.target == "regression"
            and linear_in_parameters(view.model, view.space.shape)
        ),
    )


def linear_in_parameters(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the outputs move on straight lines when the trainable parameters do, tried on random inputs."""
    network = copy.deepcopy(model).double().eval()
    start, generator = parameters_of(network), fork(0, "is it linear")
    like = next(iter(start.values()))
    x = normal_like(like.new_empty((PROBES, *shape)), generator)
    step = each(lambda value: normal_like(value, generator), start)
    ahead, back = add(start, step), subtract(start, step)
    with torch.no_grad():
        middle, one, other = (functional_call(network, params, (x,)) for params in (start, ahead, back))
    size = float(torch.maximum(one.abs(), other.abs()).max())
    return float((one + other - 2 * middle).abs().max()) <= LINEAR_TO * max(size, 1.0)
