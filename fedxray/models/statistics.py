"""What enters the BatchNorm layers of a network: mean and variance of every channel, differentiable."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.models.inspect import batch_norm_layers
from fedxray.params import Params, each

# Parameters, buffers and a batch [examples, ...] in; "<layer>.mean" and "<layer>.var" out, each [channels].
Statistics = Callable[[Params, Params, Tensor], dict[str, Tensor]]


def batch_statistics(model: nn.Module) -> Statistics:
    """A function that tells the statistics of a batch; the model itself is left alone.

    BatchNorm works on the batch as in training, dropout is off. The variance is the unbiased one, which running
    statistics take up.
    """
    network = deepcopy(model).eval()
    seen: dict[str, Tensor] = {}
    for name, layer in batch_norm_layers(network).items():
        layer.train()
        layer.register_forward_pre_hook(_keep(name, seen))

    def statistics(params: Params, buffers: Params, x: Tensor) -> dict[str, Tensor]:
        seen.clear()
        fresh = each(torch.clone, buffers)  # BatchNorm writes into what it is given
        functional_call(network, {**params, **fresh}, (x,))
        return dict(seen)

    return statistics


def _keep(name: str, seen: dict[str, Tensor]) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    """A hook that notes what comes into the layer of that name."""

    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        values = inputs[0].transpose(0, 1).flatten(1)  # [channels, examples and places]
        seen[f"{name}.mean"], seen[f"{name}.var"] = values.mean(1), values.var(1)

    return hook
