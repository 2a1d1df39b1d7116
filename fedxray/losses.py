"""Loss of each example, by name; targets may be class numbers, class probabilities or real values.

Losses are one value per example; the caller takes the mean, so that padding can be left out of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedxray.errors import unknown_name
from fedxray.params import Params

ExampleLoss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of logits [n, classes] against class numbers [n] or probabilities [n, classes]; shape [n]."""
    scores = functional.log_softmax(output, dim=-1)
    if target.is_floating_point():
        return -(target * scores).sum(-1)
    return -scores.gather(-1, target[..., None])[..., 0]


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Squared error of predictions [n, 1] against targets [n]; shape [n]."""
    return (output[..., 0] - target) ** 2


def squared_probability(output: Tensor, target: Tensor) -> Tensor:
    """Squared distance between softmax(logits) [n, classes] and the one-hot class; shape [n]."""
    probability = torch.softmax(output, dim=-1)
    one_hot = target if target.is_floating_point() else functional.one_hot(target, output.shape[-1])
    return ((probability - one_hot.to(probability.dtype)) ** 2).sum(-1)


def by_target(output: Tensor, target: Tensor) -> Tensor:
    """Squared error against real values [n], cross-entropy against classes or their probabilities; shape [n]."""
    numbers = target.is_floating_point() and target.ndim < output.ndim
    return squared_error(output, target) if numbers else cross_entropy(output, target)


LOSSES: dict[str, ExampleLoss] = {"cross-entropy": cross_entropy, "mse": squared_error}
AUTO = "auto"  # by the kind of target; a federation sets which one that is


def example_loss(name: str) -> ExampleLoss:
    """The loss of that name, one value per example."""
    known = {**LOSSES, AUTO: by_target}
    if name not in known:
        raise unknown_name("loss", name, LOSSES)
    return known[name]


def default_loss(target: str) -> str:
    """The name of the loss for a kind of target, "classification" or "regression"."""
    return "cross-entropy" if target == "classification" else "mse"


# Outputs and losses of a network on records, in evaluation mode and in bounded pieces

ENTRIES_AT_ONCE = 20_000_000  # numbers of input held at a time


def in_eval_mode(model: nn.Module) -> nn.Module:
    """Return the model itself if all of it is in evaluation mode, otherwise a copy that is."""
    return copy.deepcopy(model).eval() if any(module.training for module in model.modules()) else model


def outputs(model: nn.Module, params: Params, buffers: Params, x: Tensor) -> Tensor:
    """Return the model's outputs for x with these parameters [records, outputs]; the model is not changed."""
    network = in_eval_mode(model)
    size = max(1, ENTRIES_AT_ONCE // max(1, x[:1].numel()))
    with torch.no_grad():
        return torch.cat([functional_call(network, ({**params, **buffers},), (part,)) for part in x.split(size)])


def losses(model: nn.Module, params: Params, buffers: Params, x: Tensor, y: Tensor, measure: ExampleLoss) -> Tensor:
    """Return the loss of each record [records]."""
    return measure(outputs(model, params, buffers, x), y)
