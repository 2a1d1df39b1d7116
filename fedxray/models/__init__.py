"""Networks by name or from a user's own factory: a Space in, an nn.Module out.

A network is one function of the Space that returns an nn.Module (its keyword arguments are its settings) and one line
in MODELS, or the entry point of an installed package in the group fedxray.models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedxray.models.factory import build, from_factory, settings_of

# The built-in networks that a plan can name, each as "module:function".
MODELS: dict[str, str] = {
    "linear": "fedxray.models.networks:linear",
    "mlp": "fedxray.models.networks:mlp",
    "cnn-femnist": "fedxray.models.networks:cnn_femnist",
    "cnn-cifar": "fedxray.models.networks:cnn_cifar",
    "lenet": "fedxray.models.networks:lenet",
    "lenet-sigmoid": "fedxray.models.networks:lenet_sigmoid",
    "resnet9": "fedxray.models.networks:resnet9",
    "resnet18": "fedxray.models.networks:resnet18",
}

__all__ = ["MODELS", "build", "from_factory", "settings_of"]


def __getattr__(name: str) -> Any:
    """Import the builders late, so that listing names does not import torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("fedxray.models.factory"), name)
