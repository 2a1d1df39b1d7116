"""Networks of linear layers alone, for tables and (flattened) images; weights start as torch starts them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from fedxray.data.checks import shown
from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.models.checks import DEEPEST, NORMS, activation_layer, check_choice, check_size


def linear(space: Space) -> nn.Module:
    """One linear layer on the flattened input: linear or logistic regression."""
    head = nn.Linear(math.prod(space.shape), space.outputs)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=head))


def mlp(
    space: Space, *, hidden: Sequence[int] = (128,), norm: str = "none", activation: str = "relu"
) -> nn.Module:
    """Hidden layers, each with its activation; norm = "batch" adds BatchNorm before each activation."""
    check_choice("norm", norm, NORMS)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = math.prod(space.shape)
    for number, size in enumerate(_hidden_sizes(hidden), start=1):
        layers[f"hidden{number}"] = nn.Linear(width, size)
        if norm == "batch":
            layers[f"norm{number}"] = nn.BatchNorm1d(size)
        layers[f"activation{number}"] = activation_layer(activation)
        width = size
    layers["head"] = nn.Linear(width, space.outputs)
    return nn.Sequential(layers)


def _hidden_sizes(hidden: object) -> list[int]:
    if not isinstance(hidden, list | tuple) or not hidden:
        raise BadInput(
            "hidden",
            expected="a list of layer sizes",
            got=shown(hidden),
            remedy="Write hidden = [128], or use the model linear for none.",
        )
    if len(hidden) > DEEPEST:
        raise BadInput(
            "hidden",
            expected=f"at most {DEEPEST} layers",
            got=f"{len(hidden)} of them",
            remedy="Use fewer layers.",
        )
    return [check_size("hidden", size) for size in hidden]
