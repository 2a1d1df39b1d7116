"""Factories as a user might write them, good and bad."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Space

not_callable = 3


def with_space(space: Space) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, space.outputs))


def without_argument() -> nn.Module:
    return nn.Linear(4, 1)


def with_default(space: Space | None = None, width: int = 3) -> nn.Module:
    assert space is not None
    return nn.Linear(4, space.outputs)


def collecting(*spaces: Space) -> nn.Module:
    return nn.Linear(4, spaces[0].outputs)


def partly_frozen(space: Space) -> nn.Module:
    model = with_space(space)
    model[2].eval()
    return model


def in_double(space: Space) -> nn.Module:
    return nn.Linear(4, space.outputs, dtype=torch.float64)


class Own(nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).sum(-1, keepdim=True)


def keyword_only(*, space: Space) -> nn.Module:
    return nn.Linear(4, space.outputs)


def two_arguments(space: Space, width: int) -> nn.Module:
    return nn.Linear(width, space.outputs)


def returns_a_number(space: Space) -> int:
    return 3


def wrong_input(space: Space) -> nn.Module:
    return nn.Linear(9, space.outputs)


def wrong_output(space: Space) -> nn.Module:
    return nn.Linear(4, space.outputs + 1)


class Flat(nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.inner = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[:, 0]


class Pair(nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.inner = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), x


def nothing_to_train(space: Space) -> nn.Module:
    return nn.Identity()
