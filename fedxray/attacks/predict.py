"""Outputs and losses of a guessed model on records, in evaluation mode and in bounded pieces."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.losses import ExampleLoss
from fedxray.params import Params

ENTRIES_AT_ONCE = 20_000_000  # numbers of input held at a time


def outputs(model: nn.Module, params: Params, buffers: Params, x: Tensor) -> Tensor:
    """Return the model's outputs for x with these parameters [records, outputs]; the model is not changed."""
    network = copy.deepcopy(model).eval()
    size = max(1, ENTRIES_AT_ONCE // max(1, x[:1].numel()))
    with torch.no_grad():
        return torch.cat([functional_call(network, ({**params, **buffers},), (part,)) for part in x.split(size)])


def losses(model: nn.Module, params: Params, buffers: Params, x: Tensor, y: Tensor, measure: ExampleLoss) -> Tensor:
    """Return the loss of each record [records]."""
    return measure(outputs(model, params, buffers, x), y)
