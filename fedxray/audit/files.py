"""Files that are there whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedxray.audit.faults import fault
from fedxray.errors import FedxrayError

TEMPORARY = ".part-"  # how the name of an unfinished file or folder begins
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


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
            "Free some space, then go on with --resume."
        ) from error


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Put a file in place under its name only when all of it is on the disk."""
    part = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with room_for(f"{what} {path.name}"), part.open("wb") as stream:
            stream.write(content)
            fault(f"{what} written")
            stream.flush()
            os.fsync(stream.fileno())
        fault(f"{what} synced")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
    fault(f"{what} in place")


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
