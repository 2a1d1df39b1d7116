"""A network of your own: a function of the space of inputs that returns an nn.Module."""

from __future__ import annotations

from torch import nn

from fedxray import Space


def build(space: Space) -> nn.Module:
    channels, height, width = space.shape
    return nn.Sequential(
        nn.Conv2d(channels, 8, kernel_size=3, padding=1),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(8 * height * width, space.outputs),
    )
