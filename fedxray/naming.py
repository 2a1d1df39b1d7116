"""What a text "module:name" stands for: entries of our tables, and a user's own code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fedxray.errors import BadInput


def load(spec: str) -> Any:
    """What an entry of a table stands for, imported now; the name may have dots."""
    module, _, name = spec.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def load_factory(spec: str, argument: str) -> Callable[..., Any]:
    """A user's own function or class; an error inside the user's module comes through as it is."""
    module, _, name = spec.partition(":")
    if not module or not name:
        remedy = 'For instance "my_code:build".'
        raise BadInput(argument, expected='"module:function"', got=repr(spec), remedy=remedy)
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            argument,
            expected=f"a module {module} that can be imported",
            got=str(error),
            remedy="Put the file beside the plan, install its package, or put its folder on PYTHONPATH.",
        ) from error
    expected, remedy = f"a function {name} in {module}", "Check the spelling after the colon."
    try:
        found: Any = load(spec)
    except AttributeError as error:
        raise BadInput(argument, expected=expected, got="nothing of that name", remedy=remedy) from error
    if not callable(found):
        raise BadInput(argument, expected=expected, got=type(found).__name__, remedy=remedy)
    function: Callable[..., Any] = found
    return function
