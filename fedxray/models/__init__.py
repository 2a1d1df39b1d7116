"""Networks by name or from a user's own factory: a Space in, an nn.Module out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedxray.models.table import MODELS

if TYPE_CHECKING:
    from fedxray.models.building import build, from_factory, settings_of

__all__ = ["MODELS", "build", "from_factory", "settings_of"]


def __getattr__(name: str) -> Any:
    """Import the builders late, so that listing names does not import torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("fedxray.models.building"), name)
