"""What can be asked of any network: kinds of layers, the head, BatchNorm, dropout."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from fedxray.errors import BadInput

NORM_LAYERS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last linear layer by the names of its module and parameters."""

    weight: str  # [outputs, features]
    bias: str | None  # [outputs]
    module: str


def layer_kinds(model: nn.Module) -> dict[str, str]:
    """For each parameter name the kind of its layer: conv, norm, linear or other."""
    return {name: _kind(model.get_submodule(name.rpartition(".")[0])) for name, _ in model.named_parameters()}


def _kind(layer: nn.Module) -> str:
    if isinstance(layer, _ConvNd):
        return "conv"
    if isinstance(layer, NORM_LAYERS):
        return "norm"
    return "linear" if isinstance(layer, nn.Linear) else "other"


def head(model: nn.Module) -> Head:
    """The linear layer that was registered last."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not names:
        raise BadInput(
            "model",
            expected="a network whose last layer is an nn.Linear",
            got="no nn.Linear at all",
            remedy="End the network in an nn.Linear, or use an attack that needs no head.",
        )
    start = f"{names[-1]}." if names[-1] else ""
    layer = model.get_submodule(names[-1])
    bias = None if layer.bias is None else f"{start}bias"
    return Head(weight=f"{start}weight", bias=bias, module=names[-1])


def batch_norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The BatchNorm layers by module name, in order of registration."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


def has_batch_norm(model: nn.Module) -> bool:
    """Whether any layer is a BatchNorm."""
    return bool(batch_norm_layers(model))


def has_dropout(model: nn.Module) -> bool:
    """Whether any layer drops values at random in train mode; calls of functional.dropout cannot be seen."""
    return any(_dropout_rate(layer) > 0 for layer in model.modules())


def _dropout_rate(layer: nn.Module) -> float:
    if isinstance(layer, _DropoutNd):
        return layer.p
    return float(layer.dropout) if isinstance(layer, nn.RNNBase | nn.MultiheadAttention) else 0.0
