"""A user's own code, named in a plan as "module:function"."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput


def reach(folder: Path) -> None:
    """Let modules beside the plan be imported, after everything that is installed."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def load_factory(spec: str, folder: Path, argument: str) -> Callable[..., Any]:
    """The function behind "module:function"; the module may lie beside the plan."""
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise BadInput(
            argument,
            expected='"module:function"',
            got=repr(spec),
            remedy='For instance factory = "my_code:build".',
        )
    reach(folder)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            argument,
            expected=f"a module {module} that can be imported",
            got=str(error),
            remedy="Put the file beside the plan, or install its package.",
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadInput(
            argument,
            expected=f"a function {attribute} in {module}",
            got="nothing that can be called",
            remedy="Check the spelling after the colon.",
        )
    function: Callable[..., Any] = found
    return function


def from_factory(spec: str, settings: Mapping[str, Any], folder: Path, argument: str, kind: type) -> Any:
    """What the user's function returns for these settings, which must be of that kind."""
    factory = load_factory(spec, folder, argument)
    try:
        made = factory(**settings)
    except TypeError as error:
        raise BadInput(
            argument,
            expected=f"{spec} to take the settings {', '.join(settings) or '(none)'}",
            got=str(error),
            remedy="Make the settings of the plan keyword arguments of the function.",
        ) from error
    if not isinstance(made, kind):
        raise BadInput(
            argument,
            expected=f"{spec} to return a {kind.__name__}",
            got=type(made).__name__,
            remedy=f"Return an instance of a subclass of {kind.__module__}.{kind.__name__}.",
        )
    return made
