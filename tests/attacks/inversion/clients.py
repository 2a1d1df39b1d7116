"""Clients trained the plain way, to compare replays with."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.federation.recipe import Recipe, Schedule


def small_net(
    dtype: torch.dtype = torch.float32, norm: bool = False, activation: type[nn.Module] = nn.Sigmoid
) -> nn.Module:
    """A convolution and a linear layer for inputs [n, 1, 4, 4] and three classes."""
    torch.manual_seed(5)
    layers: list[nn.Module] = [nn.Conv2d(1, 3, 3, padding=1)]
    if norm:
        layers.append(nn.BatchNorm2d(3))
    return nn.Sequential(*layers, activation(), nn.Flatten(), nn.Linear(48, 3)).to(dtype)


def examples(count: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Random inputs [count, 1, 4, 4] with class numbers."""
    source = torch.Generator().manual_seed(count)
    return torch.randn(count, 1, 4, 4, generator=source, dtype=dtype), torch.randint(3, (count,), generator=source)


def plain_update(model: nn.Module, x: Tensor, y: Tensor, recipe: Recipe, schedule: Schedule) -> dict[str, Tensor]:
    """What a client sends, by an ordinary training loop in place."""
    own = copy.deepcopy(model)
    start = {name: value.detach().clone() for name, value in own.named_parameters()}
    optimiser = torch.optim.SGD(own.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    for step in range(schedule.steps):
        rows = [row for row in schedule.index[step].tolist() if row >= 0]
        optimiser.zero_grad()
        output = own(x[rows])
        loss = (
            functional.mse_loss(output[:, 0], y[rows])
            if recipe.loss == "mse"
            else functional.cross_entropy(output, y[rows])
        )
        loss.backward()
        if recipe.kind == "gradient":
            return {name: -value.grad for name, value in own.named_parameters()}
        for name, value in own.named_parameters():
            value.grad += recipe.mu * (value.detach() - start[name])
        optimiser.step()
    return {name: value.detach() - start[name] for name, value in own.named_parameters()}
