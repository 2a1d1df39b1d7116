"""Objects by their text "module:name": entries of the catalogue's tables, and a user's own code.

Whatever a user's own code raises becomes a `BadInput` that names the file and line of that code. Whatever it prints
reaches the standard error as a few lines without control characters.
"""

from __future__ import annotations

import difflib
import importlib
import io
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

from fedxray.errors import BadInput, FedxrayError, printable

HERE = str(Path(__file__).parent / "_")[:-1]  # with the separator at its end
INSTALLED = tuple(
    str(Path(sysconfig.get_paths()[name], "_"))[:-1] for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
LONGEST = 300  # characters of a message from a user's code


def load(spec: str) -> Any:
    """The object that "module:name" stands for, imported now; the name may have dots."""
    module, _, name = spec.partition(":")
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def ships(kind: type) -> bool:
    """Whether a class is the one that its module of fedxray defines; a name alone can be claimed."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__.startswith("fedxray.") and getattr(module, kind.__name__, None) is kind


def load_factory(spec: str, argument: str) -> Callable[..., Any]:
    """A user's own function or class; `argument` is the key that names it, used in the messages of refusals."""
    module, _, name = spec.partition(":")
    if not module or not name:
        remedy = with_colon(spec) or 'For instance "my_code:build".'
        raise BadInput(argument, expected='"module:function"', got=repr(spec), remedy=remedy)
    with users_code(argument, f"{module} to be imported without an error"):
        _import(module, argument)
    expected, remedy = f"a function {name} in {module}", "Check the spelling after the colon."
    try:
        value: Any = load(spec)
    except AttributeError as error:
        near = difflib.get_close_matches(name, _callables(module), n=1, cutoff=0.5)
        remedy = f"Did you mean {module}:{near[0]}?" if near else remedy
        raise BadInput(argument, expected=expected, got="nothing of that name", remedy=remedy) from error
    if not callable(value):
        raise BadInput(argument, expected=expected, got=type(value).__name__, remedy=remedy)
    function: Callable[..., Any] = value
    return function


def with_colon(spec: str) -> str:
    """The remedy for "module.function", with a dot in place of the colon; empty for any other text."""
    module, _, name = spec.rpartition(".")
    dotted = ":" not in spec and all(part.isidentifier() for part in spec.split("."))
    return f"Did you mean {module}:{name}?" if module and dotted else ""


def _callables(module: str) -> list[str]:
    """Names of the functions and classes of an imported module."""
    return [name for name, value in vars(sys.modules[module]).items() if callable(value) and not name.startswith("_")]


def _import(module: str, argument: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # something that the module itself imports
            raise
        expected = f"a module {module} that can be imported"
        remedy = "Put the file beside the plan, install its package, or put its folder on PYTHONPATH."
        raise BadInput(argument, expected=expected, got=str(error), remedy=remedy) from error


@contextmanager
def users_code(argument: str, expected: str, remedy: str = "Fix it there.") -> Iterator[None]:
    """Turn whatever the user's own code in this block raises into a `BadInput` with the place of the error.

    Such code may raise anything, or leave with sys.exit, so everything is caught; Ctrl-C goes through.
    """
    try:
        with harmless_output():
            yield
    except FedxrayError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(argument, expected=expected, got=describe_error(error), remedy=remedy) from error


# What it prints

MOST_LINES, LONGEST_LINE = 100, 1000  # lines in one block of such code, bytes of a line
NOT_SHOWN = "(your code printed more, which is not shown)"


class OwnOutput(io.RawIOBase):
    """The output of a user's own code on its way to a stream: printable lines, of a limited length and number."""

    def __init__(self, stream: TextIO) -> None:
        """Start without a line."""
        self.stream, self.line, self.count = stream, b"", 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the handle of the stream, which programs that such code starts write to."""
        return self.stream.fileno()

    def write(self, content: Any) -> int:
        """Pass all complete lines on."""
        *lines, rest = (self.line + bytes(content)).split(b"\n")
        for line in lines:
            self._show(line)
        self.line = rest[: LONGEST_LINE + 1]
        return len(content)

    def flush(self) -> None:
        """Pass the begun line on."""
        if self.line:
            self._show(self.line)
        self.line = b""

    def _show(self, line: bytes) -> None:
        self.count += 1
        if self.count <= MOST_LINES + 1:
            text = printable(line[:LONGEST_LINE].decode(errors="replace"))
            text += "..." if len(line) > LONGEST_LINE else ""
            with suppress(OSError, ValueError):  # a terminal that is gone
                print(text if self.count <= MOST_LINES else NOT_SHOWN, file=self.stream, flush=True)


@contextmanager
def harmless_output() -> Iterator[None]:
    """Show what this block prints on the standard error, without control characters."""
    output = io.TextIOWrapper(OwnOutput(sys.stderr), "utf-8", "replace", write_through=True)  # type: ignore[type-var]
    with redirect_stdout(output), redirect_stderr(output):
        try:
            yield
        finally:
            with suppress(ValueError):  # closed by such code
                output.flush()


# Errors


def describe_error(error: BaseException) -> str:
    """Type and message of an error in a user's code, and the file and line where it arose."""
    message = " ".join(str(error).split())
    short = message if len(message) <= LONGEST else f"{message[: LONGEST - 3]}..."
    line = _line_of(error)
    return f"{type(error).__name__}{': ' if short else ''}{short}{f' (in {line})' if line else ''}"


def without_records(error: BaseException) -> str:
    """What may be stated about an error outside private/: no text that can quote a record.

    Our own errors keep their text, but without `got` where that may be a value of the user's data. Of all others, and
    of what a user's code raises, type and place remain.
    """
    if not is_ours(error):
        return f"{type(error).__name__}{place_of(error)}"
    if not isinstance(error, BadInput) or not error.quotes:
        return str(error)
    cause = error.__cause__
    got = "" if cause is None else f", got {type(cause).__name__}{place_of(cause)}"
    return f"{error.argument}: expected {error.expected}{got}. {error.remedy}"


def is_ours(error: BaseException) -> bool:
    """Whether an error is one of fedxray's own that fedxray itself raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, FedxrayError) and (not frames or frames[-1].filename.startswith(HERE))


def place_of(error: BaseException) -> str:
    """Name and line of the user's file where an error arose, else of ours, for the end of a sentence."""
    path, _, line = _line_of(error).rpartition(":")
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(HERE)]
    if ours and (not path or path.startswith(INSTALLED)):
        path, line = ours[-1].filename, str(ours[-1].lineno)
    name = Path("fedxray", Path(path).relative_to(HERE)).as_posix() if path.startswith(HERE) else Path(path).name
    return f" in {name}, line {line}" if path else ""


def _line_of(error: BaseException) -> str:
    """File and line of the innermost frame in the user's own files, else in a package they use; never one of ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((HERE, "<", importlib.__file__ or HERE))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(INSTALLED)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""
