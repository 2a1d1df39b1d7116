"""A user's own code, named in a plan as "module:function"."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput
from fedxray.naming import load_factory, users_code


def reach(folder: Path) -> None:
    """Let modules beside the plan be imported, after everything that is installed."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def from_factory(spec: str, settings: Mapping[str, Any], folder: Path, argument: str, kind: type) -> Any:
    """What the user's function returns for these settings, which must be of that kind."""
    reach(folder)
    factory = load_factory(spec, argument)
    _check_settings(factory, spec, settings, argument)
    with users_code(argument, f"{spec} to return a {kind.__name__}"):
        made = factory(**settings)
    if not isinstance(made, kind):
        raise BadInput(
            argument,
            expected=f"{spec} to return a {kind.__name__}",
            got=type(made).__name__,
            remedy=f"Return an instance of a subclass of {kind.__module__}.{kind.__name__}.",
        )
    return made


def _check_settings(
    factory: Callable[..., Any], spec: str, settings: Mapping[str, Any], argument: str
) -> None:
    """Refuse settings that the function does not take; what tells no signature is simply called."""
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        raise BadInput(
            argument,
            expected=f"{spec} to take the settings {', '.join(settings) or '(none)'}",
            got=str(error),
            remedy="Make the settings of the plan keyword arguments of the function.",
        ) from error
    except ValueError:
        return
