"""Attacks: a view in, evidence out; every attack's class can be imported from here by its name."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedxray.attacks.base import Attack


@functools.cache
def _classes() -> dict[str, type[Attack]]:
    """Find every attack of this package by the name of its class, so that a new file needs no line here."""
    from fedxray.attacks.base import Attack

    classes: dict[str, type[Attack]] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            own = inspect.isclass(value) and issubclass(value, Attack) and value.__module__ == module.name
            if own and "name" in vars(value):  # a base of a family has none
                classes[name] = value
    return classes


def __getattr__(name: str) -> Any:
    """Import the class when it is first used, not before."""
    if not name[:1].isupper() or name not in _classes():  # other names are modules, which must not import everything
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _classes()[name]


def __dir__() -> list[str]:
    """List the names of the classes."""
    return sorted(_classes())
