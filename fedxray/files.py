"""Files: written completely or not at all, read strictly, folders locked, and points at which tests kill the process.

A file is written under a temporary name, brought to the disk and renamed, so that a reader never sees a part of it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import socket
import stat
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

from fedxray.errors import BadInput, FedxrayError

TEMPORARY = ".part-"  # start of the name of an unfinished file or folder
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # disk, file size limit, quota
LARGEST = 2**30  # bytes of a JSON file that is read
MOST_DIGITS = 300  # of a whole number, so that it fits into a float
CHECK = "Check that this is the right file, and that it is complete."

# Writing


def is_unfinished(name: str) -> bool:
    """Whether this is a temporary name of `write_whole`; a user's own `.part-thesis` is not."""
    return re.fullmatch(re.escape(TEMPORARY) + "[0-9a-f]{32}", name) is not None


class NoSpaceError(FedxrayError):
    """The disk, a quota or a limit on file sizes has no room; nothing half-written is left."""


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn the system's error for a full disk into a `NoSpaceError` that names `what` could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise NoSpaceError(
            f"no space left for {what} ({error.strerror}). Nothing half-written was kept. "
            "Free some space and try again; an audit is continued with --resume."
        ) from error


def nothing_more(point: str) -> None:
    """Do nothing: the default of the callback of `write_whole`."""


def write_whole(
    path: Path, content: bytes, what: str, at: Callable[[str], None] = nothing_more, *, lasting: bool = True
) -> None:
    """Write a file under a temporary name and rename it when it is complete; `what` is its name in messages.

    `at` is called with the name of every point passed, so that tests can stop the process there. With `lasting` the
    file is on the disk when this returns; without, it may be lost or incomplete if the machine itself stops. A file is
    never open to more people than its folder.
    """
    part = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    opener = partial(os.open, mode=readers_of(path.parent))
    try:
        with room_for(f"{what} {path.name}"), open(part, "wb", opener=opener) as stream:
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


def readers_of(folder: Path) -> int:
    """Return the mode of a new file in a folder: 0600 in one that is its owner's alone."""
    return folder.stat().st_mode & 0o666


def sync_folder(folder: Path) -> None:
    """Bring renames in a folder to the disk, on systems where a folder can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Bring every file and folder below a folder to the disk, no file open to more people than its folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            Path(parent, name).chmod(readers_of(Path(parent)))
            handle = os.open(Path(parent, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(parent))


# Reading JSON


def read_json(path: Path, *, argument: str | None = None, remedy: str = CHECK, most: int = LARGEST) -> Any:
    """The value of a JSON file: UTF-8, no name twice in an object, only finite numbers, no endless nesting.

    A refusal is about `argument` (default: the path) and offers `remedy`; `most` is the largest size in bytes.
    """

    def refused(expected: str, got: str) -> BadInput:
        short = got if len(got) <= 300 else f"{got[:297]}..."
        return BadInput(argument or str(path), expected=expected, got=short, remedy=remedy)

    try:
        known = path.stat()
        if not stat.S_ISREG(known.st_mode):  # reading a pipe would never end
            raise refused("a plain file", "something else")
        if known.st_size > most:
            raise refused(f"at most {most} bytes", f"{known.st_size} bytes")
        return parse_json(path.read_bytes())
    except RecursionError as problem:
        raise refused("a complete JSON file", "values nested without end") from problem
    except UnicodeDecodeError as problem:
        got = f"bytes that are not text at position {problem.start}"
        raise refused("a complete JSON file", got) from problem
    except ValueError as problem:
        raise refused("a complete JSON file", f"damaged or cut-off content ({problem})") from problem
    except OSError as problem:
        raise refused("a readable file", str(problem)) from problem


def parse_json(content: bytes) -> Any:
    """The value of a JSON text, as strict as `read_json`; raises ValueError or RecursionError where it is none."""
    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _finite, "parse_int": _whole}
    return json.loads(content.decode("utf-8"), object_pairs_hook=_unique, **hooks)


def read_object(path: Path, *, remedy: str = CHECK) -> dict[str, Any]:
    """The object of a JSON file, read as `read_json` does; refused where it holds another value."""
    value = read_json(path, remedy=remedy)
    if not isinstance(value, dict):
        raise BadInput(str(path), expected="a JSON object", got=type(value).__name__, remedy=remedy)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Thousands of stored cases have the same names and texts: each is held once.
    members = {intern(name): intern(value) if type(value) is str else value for name, value in pairs}
    if len(members) != len(pairs):
        raise ValueError("the same name twice in one object")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the range of numbers")
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:40]}... has too many digits")
    return int(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


# Reading TOML

MOST_DOTS = 100  # in one key: parsing takes time quadratic in its parts
_QUOTED = re.compile(r'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)


def parse_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML text; raises ValueError with the reason where it is none."""
    text = content.decode("utf-8")
    bare = _QUOTED.sub(lambda match: "" if match[0].startswith("#") else "q", text)
    keys = re.findall(r"[\w.\-]+", bare.replace(" ", "").replace("\t", ""))
    if max((key.count(".") for key in keys), default=0) > MOST_DOTS:
        raise ValueError(f"a key with more than {MOST_DOTS} dots")
    return tomllib.loads(text)


def table_lines(content: bytes, name: str) -> list[int]:
    """The lines, counted from 1, at which the tables `[[name]]` of a TOML text begin, in their order."""
    # Strings keep their line breaks, so that what they hold is no table and the lines after them keep their numbers.
    bare = _QUOTED.sub(lambda match: "\n" * match[0].count("\n"), content.decode("utf-8", "replace"))
    header = re.compile(rf"[ \t]*\[\[[ \t]*{re.escape(name)}[ \t]*\]\][ \t\r]*")
    return [number for number, line in enumerate(bare.split("\n"), 1) if header.fullmatch(line)]


# Kill points: numbered places at which a test kills the process, to prove that an audit survives it

VARIABLE = "FEDXRAY_FAULT"  # the number of the point that kills; unset outside tests
POINTS = (
    "run started",
    "run written",
    "run synced",
    "run in place",
    "case half written",
    "case in place",
    "evidence half written",
    "evidence in place",
    "results written",
    "results synced",
    "results in place",
)


def fault(point: str) -> None:
    """Kill the process here, without any clean-up, if FEDXRAY_FAULT holds the number of this point."""
    if point in POINTS and os.environ.get(VARIABLE) == str(POINTS.index(point) + 1):
        os.kill(os.getpid(), signal.SIGKILL)


# The lock of a folder: one process writes at a time; it names its holder and is free again when the holder is dead

LOCK = ".lock"
ODD = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # a link, a folder, a socket
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse and name the holder."""
    path = folder / LOCK
    handle = _take_with_flock(path)
    if handle is not None:
        _handles.add(handle)
        try:
            _sign_lock(handle)
            yield
        finally:
            _handles.discard(handle)
            os.ftruncate(handle, 0)
            os.close(handle)  # frees the lock, as the end of the process would
        return
    _take_by_name(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


_handles: set[int] = set()  # open lock files of this process


def close_locks() -> None:
    """Close the lock files in a forked process, so that nothing it starts can hold the lock; the parent keeps it."""
    while _handles:
        os.close(_handles.pop())


def _take_with_flock(path: Path) -> int | None:
    """The open lock file, or None where the system has no such locks; it stays, only its lock goes."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = _open_plain(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in UNSUPPORTED:
            path.unlink(missing_ok=True)
            return None
        raise _busy(path) from None
    return handle


def _open_plain(path: Path) -> int:
    """Open the lock file, but neither what a link of that name points to nor anything that is no plain file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno not in ODD:
            raise
        raise _odd_lock(path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _odd_lock(path)
    return handle


def _take_by_name(path: Path) -> None:
    """Create the lock file, which only one process can; a lock of a dead process is taken over."""
    for _ in range(2):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if path.is_symlink() or not path.is_file():
                raise _odd_lock(path) from None
            if not _is_stale_lock(path):
                raise _busy(path) from None
            path.unlink(missing_ok=True)
            continue
        _sign_lock(handle)
        os.close(handle)
        return
    raise _busy(path)


def _sign_lock(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def _lock_holder(path: Path) -> tuple[int | None, str | None]:
    try:
        holder = json.loads(path.read_bytes())
        return int(holder["pid"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _is_stale_lock(path: Path) -> bool:
    """Return whether the holder was a process of this machine that is gone; False where that is not known."""
    pid, host = _lock_holder(path)
    if pid is None or host != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _busy(path: Path) -> BadInput:
    pid, host = _lock_holder(path)
    who = f"process {pid} on {host}" if pid is not None else "another process"
    expected = "a folder that no other run is writing to"
    remedy = "Wait for it to end, or choose another --out."
    return BadInput("--out", expected=expected, got=f"{path.parent}, in use by {who}", remedy=remedy)


def _odd_lock(path: Path) -> BadInput:
    expected = f"a folder whose {LOCK} is a plain file or absent"
    remedy = "Remove it, or choose another --out."
    return BadInput("--out", expected=expected, got=f"{path}, a symbolic link or no file", remedy=remedy)
