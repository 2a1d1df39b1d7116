"""Files that are there whole or not at all (temporary name, fsync, rename), and JSON that is read strictly."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput, FedxrayError

TEMPORARY = ".part-"  # how the name of an unfinished file or folder begins
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
LARGEST = 2**30  # bytes of a JSON file that is read
MOST_DIGITS = 300  # of a whole number, so that it fits into a float
CHECK = "Check that this is the right file, and that it is whole."


def is_unfinished(name: str) -> bool:
    """Whether this is a name that we give to what is being written; a user's own `.part-thesis` is none."""
    return re.fullmatch(re.escape(TEMPORARY) + "[0-9a-f]{32}", name) is not None


class NoSpaceError(FedxrayError):
    """The disk, a quota or a limit on file sizes has no room; nothing half-written is left."""


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Say plainly that there is no space left, in place of the system's error."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise NoSpaceError(
            f"no space left for {what} ({error.strerror}). Nothing half-written was kept. "
            "Free some space and try again; an audit goes on with --resume."
        ) from error


def nothing_more(point: str) -> None:
    """Do nothing at a point of writing a file."""


def write_whole(
    path: Path,
    content: bytes,
    what: str,
    at: Callable[[str], None] = nothing_more,
    *,
    lasting: bool = True,
) -> None:
    """Put a file in place under its name only when all of it is written; `at` hears of every point.

    A lasting one is on the disk when this returns; another may be lost or torn if the machine itself stops.
    """
    part = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with room_for(f"{what} {path.name}"), part.open("wb") as stream:
            stream.write(content)
            at(f"{what} written")
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        at(f"{what} synced")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if lasting:
        sync_folder(path.parent)
    at(f"{what} in place")


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last, on systems where a folder can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Bring every file and folder below a folder to the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            handle = os.open(Path(place, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(place))


def read_json(path: Path, *, argument: str | None = None, remedy: str = CHECK, most: int = LARGEST) -> Any:
    """The value of a JSON file: UTF-8, no name twice in an object, only finite numbers, no endless nesting."""

    def refused(expected: str, got: str) -> BadInput:
        short = got if len(got) <= 300 else f"{got[:297]}..."
        return BadInput(argument or str(path), expected=expected, got=short, remedy=remedy)

    try:
        size = path.stat().st_size
        if size > most:
            raise refused(f"at most {most} bytes", f"{size} bytes")
        text = path.read_bytes().decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except RecursionError as problem:
        raise refused("a whole JSON file", "values nested without end") from problem
    except UnicodeDecodeError as problem:
        got = f"bytes that are not text at position {problem.start}"
        raise refused("a whole JSON file", got) from problem
    except ValueError as problem:
        raise refused("a whole JSON file", f"damaged or cut-off content ({problem})") from problem
    except OSError as problem:
        raise refused("a readable file", str(problem)) from problem


def read_object(path: Path, *, remedy: str = CHECK) -> dict[str, Any]:
    """The same for a file that must hold an object."""
    found = read_json(path, remedy=remedy)
    if not isinstance(found, dict):
        raise BadInput(str(path), expected="a JSON object", got=type(found).__name__, remedy=remedy)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same name twice in one object")
    return found


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:40]} is beyond every number")
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:40]}... has too many digits")
    return int(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


# --- Numbered points at which a test can kill the process, to prove that an audit survives it.


VARIABLE = "FEDXRAY_FAULT"  # the number of the point that kills; unset outside tests
POINTS = (
    "run started",
    "run written",
    "run synced",
    "run in place",
    "case written",
    "case synced",
    "case in place",
    "evidence tensors in place",
    "evidence in place",
    "results written",
    "results synced",
    "results in place",
)


def fault(point: str) -> None:
    """Die here at once, without any clean-up, if this point is armed."""
    if point in POINTS and os.environ.get(VARIABLE) == str(POINTS.index(point) + 1):
        os.kill(os.getpid(), signal.SIGKILL)
