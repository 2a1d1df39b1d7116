"""One audit at a time in a folder: the lock names its holder and is free again when the holder is dead."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedxray.errors import BadInput

NAME = ".lock"
ODD = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # a link, a folder, a socket
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse naming who holds it."""
    path = folder / NAME
    handle = _take_with_flock(path)
    if handle is not None:
        try:
            _sign(handle)
            yield
        finally:
            os.ftruncate(handle, 0)
            os.close(handle)  # frees the lock, as the end of the process would
        return
    _take_by_name(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


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
        raise _odd(path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _odd(path)
    return handle


def _take_by_name(path: Path) -> None:
    """Create the lock file, which only one process can; a lock of a dead process is taken over."""
    for _ in range(2):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if path.is_symlink() or not path.is_file():
                raise _odd(path) from None
            if not _is_stale(path):
                raise _busy(path) from None
            path.unlink(missing_ok=True)
            continue
        _sign(handle)
        os.close(handle)
        return
    raise _busy(path)


def _sign(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def _holder(path: Path) -> tuple[int | None, str | None]:
    try:
        found = json.loads(path.read_bytes())
        return int(found["pid"]), str(found["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None


def _is_stale(path: Path) -> bool:
    """Whether the holder was a process of this machine that is gone; if one cannot ask, it is not."""
    pid, host = _holder(path)
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
    pid, host = _holder(path)
    who = f"process {pid} on {host}" if pid is not None else "another process"
    return BadInput(
        "--out",
        expected="a folder that no other run is writing to",
        got=f"{path.parent}, in use by {who}",
        remedy="Wait for it to end, or choose another --out.",
    )


def _odd(path: Path) -> BadInput:
    return BadInput(
        "--out",
        expected=f"a folder whose {NAME} is a plain file or absent",
        got=f"{path}, a symbolic link or no file",
        remedy="Remove it, or choose another --out.",
    )
