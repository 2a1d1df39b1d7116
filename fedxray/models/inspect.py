"""Inspection of any network: kinds of layers, the head, BatchNorm and its statistics."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.conv import _ConvNd

from fedxray.errors import BadInput
from fedxray.params import Params, each

NORM_LAYERS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last linear layer by the names of its module and parameters."""

    weight: str  # [outputs, features]
    bias: str | None  # [outputs]
    module: str


def layer_kinds(model: nn.Module) -> dict[str, str]:
    """Return for each parameter name the kind of its layer: conv, norm, linear or other."""
    return {name: _kind(model.get_submodule(name.rpartition(".")[0])) for name, _ in model.named_parameters()}


def _kind(layer: nn.Module) -> str:
    if isinstance(layer, _ConvNd):
        return "conv"
    if isinstance(layer, NORM_LAYERS):
        return "norm"
    return "linear" if isinstance(layer, nn.Linear) else "other"


def head(model: nn.Module) -> Head:
    """Return the linear layer that was registered last."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not names:
        got, remedy = "no nn.Linear at all", "End the network in an nn.Linear, or use an attack that needs no head."
        raise BadInput("model", expected="a network whose last layer is an nn.Linear", got=got, remedy=remedy)
    start = f"{names[-1]}." if names[-1] else ""
    layer = model.get_submodule(names[-1])
    bias = None if layer.bias is None else f"{start}bias"
    return Head(weight=f"{start}weight", bias=bias, module=names[-1])


def batch_norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the BatchNorm layers by module name, in order of registration."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether any layer is a BatchNorm."""
    return bool(batch_norm_layers(model))


# Mean and variance of the inputs of BatchNorm layers, per channel, differentiable

# Maps parameters, buffers and a batch [examples, ...] to "<layer>.mean" and "<layer>.var", each [channels].
Statistics = Callable[[Params, Params, Tensor], dict[str, Tensor]]


def batch_statistics(model: nn.Module) -> Statistics:
    """Return a function that computes the statistics of a batch; the model is not changed.

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
        fresh = each(torch.clone, buffers)  # BatchNorm writes into its buffers
        functional_call(network, {**params, **fresh}, (x,))
        return dict(seen)

    return statistics


def _keep(name: str, seen: dict[str, Tensor]) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    """Return a hook that records the statistics of the inputs of the layer of that name."""

    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        values = inputs[0].transpose(0, 1).flatten(1)  # [channels, examples and places]
        seen[f"{name}.mean"], seen[f"{name}.var"] = values.mean(1), values.var(1)

    return hook
