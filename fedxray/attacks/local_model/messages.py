"""The base of attacks on a client's local model, the messages of one client as matrices, and returned models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import SINGLE_REPLIES, Attack, Need, single_replies
from fedxray.attacks.evidence import Kind
from fedxray.params import Params, add, each, flatten, parameters_of, subtract, unflatten
from fedxray.seeds import fork, normal_like

PROBES = 4  # inputs on which linearity is tested
LINEAR_TO = 1e-9  # relative deviation from a straight line that still counts as rounding


def step_size() -> Need:
    """Return the need of the learning rate, where a client sends gradients."""
    return Need(
        what="the learning rate, since the client sends a gradient",
        given_by='grants = ["recipe"]',
        met=lambda view: view.grants.recipe is not None or all(reply.kind == "weights" for reply in view.of_target()),
    )


class LocalModelAttack(Attack):
    """Base of attacks that reconstruct the target client's local model from its own replies."""

    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    requires: ClassVar[tuple[Need, ...]] = (single_replies(), step_size())
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")


@dataclass(frozen=True, kw_only=True)
class Messages:
    """The models that one client was sent and its updates, a row per round, in float64."""

    starts: Tensor  # [messages, parameters]
    updates: Tensor  # [messages, parameters]
    like: Params  # names, shapes and dtype of the model
    rounding: float  # rounding error of an entry of a message as it was sent

    def model(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector [parameters] as a model in the dtype of the messages."""
        return {name: value.to(self.like[name].dtype) for name, value in unflatten(vector, self.like).items()}


def messages_of_target(view: View) -> Messages:
    """Return the target's own messages by round, in float64."""
    seen = sorted(view.of_target(), key=lambda message: message.round)
    like = dict(seen[0].start)
    starts = torch.stack([_vector(message.start, like) for message in seen])
    updates = torch.stack([_vector(message.update, like) for message in seen])
    precision = max(torch.finfo(value.dtype).eps for value in like.values())
    largest = sum(float(torch.linalg.vector_norm(matrix, float("inf"))) for matrix in (starts, updates))
    return Messages(starts=starts, updates=updates, like=like, rounding=precision * largest)


def _vector(params: Params, like: Params) -> Tensor:
    return flatten({name: params[name].detach().double() for name in like})


def last_of(observations: Sequence[Observation]) -> Observation:
    """Return the observation of the latest round."""
    return max(observations, key=lambda observation: observation.round)


def step_of(view: View, reply: Observation) -> float:
    """Return the factor that turns a reply into a change of the model: 1, or the learning rate for a gradient."""
    recipe = view.grants.recipe
    return recipe.learning_rate if reply.kind == "gradient" and recipe is not None else 1.0


def returned(view: View, reply: Observation) -> dict[str, Tensor]:
    """Return the model that a client sent back; for a gradient, the model after one step of the recipe."""
    return add(reply.start, reply.update, step_of(view, reply))


def least_squares_model() -> Need:
    """Return the need of a model that is linear in its parameters, trained on a squared loss."""
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
    """Return whether the outputs are linear in the trainable parameters, tested on random inputs."""
    network = copy.deepcopy(model).double().eval()
    start, generator = parameters_of(network), fork(0, "is it linear")
    like = next(iter(start.values()))
    x = normal_like(like.new_empty((PROBES, *shape)), generator)
    step = each(lambda value: normal_like(value, generator), start)
    ahead, back = add(start, step), subtract(start, step)
    with torch.no_grad():
        middle, plus, minus = (functional_call(network, params, (x,)) for params in (start, ahead, back))
    size = float(torch.maximum(plus.abs(), minus.abs()).max())
    return float((plus + minus - 2 * middle).abs().max()) <= LINEAR_TO * max(size, 1.0)
