"""Size caps: no file, packed or unpacked, may be larger than FEDXRAY_MAX_BYTES (2 GiB unless set)."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from fedxray.data.checks import shown
from fedxray.errors import BadInput

DEFAULT_CAP = 2 * 1024**3
CHUNK = 1024 * 1024


def max_bytes() -> int:
    """The cap in bytes."""
    text = os.environ.get("FEDXRAY_MAX_BYTES", "").strip()
    if not text:
        return DEFAULT_CAP
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < 1:
        raise BadInput(
            "FEDXRAY_MAX_BYTES",
            expected="a whole number of bytes above 0",
            got=shown(text),
            remedy="For instance FEDXRAY_MAX_BYTES=4000000000.",
        )
    return int(text)


def check_size(what: str, size: int) -> None:
    """Refuse a size above the cap."""
    cap = max_bytes()
    if size > cap:
        raise BadInput(
            what,
            expected=f"at most {cap} bytes",
            got=f"{size} bytes or more",
            remedy="Use less data, or raise the cap by setting FEDXRAY_MAX_BYTES.",
        )


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz, never more than the cap."""
    what = f"file {shown(str(path), longest=400)}"
    try:
        if not path.is_file():
            raise missing_file(path)
        check_size(what, path.stat().st_size)
        return unpack(path) if path.name.endswith(".gz") else path.read_bytes()
    except (OSError, ValueError) as problem:
        raise unreadable(what, problem) from problem


def unpack(path: Path) -> bytes:
    """The content of a gzip file, read in pieces and never more than the cap."""
    what = f"file {shown(str(path), longest=400)}"
    parts: list[bytes] = []
    total = 0
    try:
        with gzip.open(path, "rb") as stream:
            while part := stream.read(CHUNK):
                total += len(part)
                check_size(f"{what}, unpacked", total)
                parts.append(part)
    except (OSError, EOFError, zlib.error) as problem:
        raise unreadable(what, problem) from problem
    return b"".join(parts)


def unreadable(what: str, problem: Exception) -> BadInput:
    """The refusal of a file that cannot be read to its end."""
    return BadInput(
        what,
        expected="a readable file",
        got=f"{type(problem).__name__}: {problem}",
        remedy="Check the path, the permissions and that the file is complete.",
    )


def missing_file(path: Path) -> BadInput:
    """The refusal of a path where there is no file."""
    return BadInput(
        "path",
        expected="an existing file or folder",
        got=shown(str(path), longest=400),
        remedy="Check the spelling.",
    )
