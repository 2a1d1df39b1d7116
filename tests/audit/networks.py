"""Networks that plans of tests name as factories."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def half_frozen(space: Any) -> nn.Module:
    """A network whose first layer is not trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(space.shape[0], 4), nn.Tanh(), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    return model


def wider(space: Any) -> nn.Module:
    """The same with another first layer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(space.shape[0], 5), nn.Tanh(), nn.Linear(5, 1))
    model[0].requires_grad_(False)
    return model


def normed(space: Any) -> nn.Module:
    """A network with statistics of its own."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(space.shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def small(space: Any) -> nn.Module:
    """A network that is trained as a whole."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(space.shape[0], 4), nn.Tanh(), nn.Linear(4, 1))
