"""The slow way to train a client, written as one would by hand: a module, an optimiser, a loop."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Records
from fedxray.federation.recipe import Recipe, Schedule

Reference = tuple[dict[str, Tensor], dict[str, Tensor]]


def loss_of(recipe: Recipe) -> nn.Module:
    return nn.CrossEntropyLoss() if recipe.loss != "mse" else nn.MSELoss()


def by_hand(model: nn.Module, records: Records, schedule: Schedule, recipe: Recipe) -> Reference:
    """End minus start (minus the gradient for fedsgd) and the buffers at the end."""
    own = copy.deepcopy(model).train()
    start = {name: value.detach().clone() for name, value in own.named_parameters() if value.requires_grad}
    measure = loss_of(recipe)
    optimiser = torch.optim.SGD(
        [value for value in own.parameters() if value.requires_grad], lr=recipe.learning_rate, momentum=recipe.momentum
    )
    trainable = {name: value for name, value in own.named_parameters() if value.requires_grad}
    for row in schedule.index.tolist():
        chosen = [place for place in row if place >= 0]
        optimiser.zero_grad()
        output = own(records.x[chosen])
        measure(output[:, 0] if recipe.loss == "mse" else output, records.y[chosen]).backward()
        if recipe.kind == "gradient":
            gradient = {name: -value.grad for name, value in trainable.items() if value.grad is not None}
            return gradient, dict(own.named_buffers())
        for name, value in trainable.items():
            if value.grad is not None:
                value.grad += recipe.mu * (value.detach() - start[name])
        optimiser.step()
    return {name: value.detach() - start[name] for name, value in trainable.items()}, dict(own.named_buffers())


def relative_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Largest difference between two updates, as a share of the larger one's largest entry."""
    assert left.keys() == right.keys()
    difference = max(float((left[name] - right[name]).abs().max()) for name in left)
    size = max(float(value.abs().max()) for value in right.values())
    return difference / max(size, 1e-30)
