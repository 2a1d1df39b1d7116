"""The networks of the two recorded nodes."""

from __future__ import annotations

from torch import nn


def wine() -> nn.Module:
    """Thirteen inputs, one output."""
    return nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 1))


def digits() -> nn.Module:
    """Images of 8 x 8 pixels, ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
