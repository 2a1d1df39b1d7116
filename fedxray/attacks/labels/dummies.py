"""What a network does with inputs that mean nothing: its mean prediction, and what enters its last layer.

The server has no images of the client. With a network at random weights, draws of N(0, 1) in the space of the
model's inputs are predicted much like real ones, and its last layer is entered by about as much activation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import View
from fedxray.attacks.aim import At, known_examples, observation_at
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.labels.head import linear_head, mean_reply, returned
from fedxray.models.inspect import head
from fedxray.params import Params
from fedxray.seeds import fork, normal_like

AT_ONCE = 60  # dummies in one pass: what a core's cache holds
SURE = 3.0  # standard errors from zero at which the activation counts as told apart from it


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Of one network on many dummies, in float64."""

    prediction: Tensor  # [classes] mean softmax
    activation: Tensor  # [] mean over dummies of the sum of what enters the last layer
    error: Tensor  # [] standard error of the activation

    @property
    def clear(self) -> bool:
        """Whether the activation is told apart from zero, by which counts are divided."""
        return bool(self.activation.abs() > SURE * self.error)


@dataclass(frozen=True, kw_only=True)
class HeadStatistics(Attack):
    """A stage of the label attacks: the statistics of one model of the round, the same dummies for both models."""

    name: ClassVar[str] = "head-statistics"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")

    place: Literal["start", "end"]
    samples: int
    at: At

    def needs(self) -> tuple[Need, ...]:
        """An update with a linear head."""
        return (any_update(), classification(), known_examples(self.at), linear_head())

    def attack(self, view: View, context: Context) -> Evidence:
        """Both numbers and the error, of the model sent or of the one returned."""
        seen = observation_at(view, self.at)
        params = seen.start if self.place == "start" else returned(mean_reply(view, self.at))
        buffers = seen.buffers if self.place == "start" else {**seen.buffers, **seen.buffers_after}
        like = next(iter(seen.start.values()))
        one = torch.empty((1, *view.space.shape), dtype=like.dtype, device=like.device)
        # From the root, so that both models of the round get the same dummies.
        generator = fork(context.root, "dummies of labels", self.samples)
        found = statistics(view.model, params, buffers, one, self.samples, generator)
        tensors = {
            "prediction": found.prediction.to(like.dtype),
            "activation": found.activation.to(like.dtype),
            "error": found.error.to(like.dtype),
        }
        return Evidence(kind="labels", tensors=tensors)


def statistics_of(
    context: Context, view: View, place: Literal["start", "end"], samples: int, at: At
) -> Statistics:
    """The statistics of the model sent or returned, computed once for all label attacks on this view."""
    told = context.run(HeadStatistics(place=place, samples=samples, at=at), view).tensors
    return Statistics(
        prediction=told["prediction"].double(),
        activation=told["activation"].double(),
        error=told["error"].double(),
    )


def statistics(
    model: nn.Module, params: Params, buffers: Params, one: Tensor, samples: int, generator: torch.Generator
) -> Statistics:
    """The statistics of these parameters on `samples` draws of N(0, 1) like `one` [1, ...]; nothing is changed."""
    still = copy.deepcopy(model).eval()
    entered: list[Tensor] = []
    still.get_submodule(head(model).module).register_forward_pre_hook(
        lambda layer, inputs: entered.append(inputs[0].sum(-1).double().reshape(len(inputs[0]), -1).mean(1))
    )
    predicted = []
    with torch.no_grad():
        for first in range(0, samples, AT_ONCE):
            count = min(AT_ONCE, samples - first)
            dummies = normal_like(one.expand(count, *one.shape[1:]), generator)
            if dummies.ndim == 4:  # the layout in which convolutions are fastest on a CPU
                dummies = dummies.contiguous(memory_format=torch.channels_last)
            outputs = functional_call(still, ({**params, **buffers},), (dummies,))
            predicted.append(outputs.double().softmax(-1).sum(0))
    sums = torch.cat(entered)
    return Statistics(
        prediction=torch.stack(predicted).sum(0) / samples,
        activation=sums.mean(),
        error=sums.std() / samples**0.5,
    )
