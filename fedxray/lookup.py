"""What a text "module:name" stands for: entries of our tables, and a user's own code."""

from __future__ import annotations

import importlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput, FedxrayError

HERE = str(Path(__file__).parent / "_")[:-1]  # with the separator at its end
INSTALLED = tuple(
    str(Path(sysconfig.get_paths()[name], "_"))[:-1]
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
LONGEST = 300  # characters of a stranger's message


def load(spec: str) -> Any:
    """What an entry of a table stands for, imported now; the name may have dots."""
    module, _, name = spec.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def load_factory(spec: str, argument: str) -> Callable[..., Any]:
    """A user's own function or class; an error inside the user's module is told with its place."""
    module, _, name = spec.partition(":")
    if not module or not name:
        remedy = 'For instance "my_code:build".'
        raise BadInput(argument, expected='"module:function"', got=repr(spec), remedy=remedy)
    with users_code(argument, f"{module} to be imported without an error"):
        _import(module, argument)
    expected, remedy = f"a function {name} in {module}", "Check the spelling after the colon."
    try:
        found: Any = load(spec)
    except AttributeError as error:
        raise BadInput(argument, expected=expected, got="nothing of that name", remedy=remedy) from error
    if not callable(found):
        raise BadInput(argument, expected=expected, got=type(found).__name__, remedy=remedy)
    function: Callable[..., Any] = found
    return function


def _import(module: str, argument: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # something that the module itself imports
            raise
        raise BadInput(
            argument,
            expected=f"a module {module} that can be imported",
            got=str(error),
            remedy="Put the file beside the plan, install its package, or put its folder on PYTHONPATH.",
        ) from error


@contextmanager
def users_code(argument: str, expected: str, remedy: str = "Mend it there.") -> Iterator[None]:
    """Nothing but a user's own code runs in here, so whatever it raises is theirs to mend and is told with its place.

    A stranger's code may raise anything, or leave with sys.exit, so everything is caught; Ctrl-C goes through.
    """
    try:
        yield
    except FedxrayError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(argument, expected=expected, got=told(error), remedy=remedy) from error


def told(error: BaseException) -> str:
    """Type and message of a stranger's error, and the file and line of their code where it arose."""
    message = " ".join(str(error).split())
    short = message if len(message) <= LONGEST else f"{message[: LONGEST - 3]}..."
    place = _place(error)
    return f"{type(error).__name__}{': ' if short else ''}{short}{f' (in {place})' if place else ''}"


def _place(error: BaseException) -> str:
    """The last line of the user's own files, or else of a package they use; none of ours, none of Python's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((HERE, "<", importlib.__file__ or HERE))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(INSTALLED)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""
