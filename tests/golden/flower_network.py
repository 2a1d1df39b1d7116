"""The network of examples/flower, as flower.toml names it."""

from __future__ import annotations

from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(15, 32), nn.ReLU(), nn.Linear(32, 1))
