"""Checks of settings and files: a wrong one is refused by name before any work starts; fingerprints of files.

No file, packed or unpacked, may be larger than FEDXRAY_MAX_BYTES (2 GiB unless set).
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import itertools
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedxray.errors import BadInput, some

MOST_NAMES = 20  # columns that a message lists
MOST_FILES = 10_000  # of a folder, compared with a name that is not there


def whole_number(argument: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """The value as an int from `least` to `most`, refused in the name of `argument` otherwise."""
    expected = f"a whole number of at least {least}" + (f" and at most {most}" if most is not None else "")
    fits = isinstance(value, int) and not isinstance(value, bool)
    if not fits or int(value) < least or (most is not None and int(value) > most):  # type: ignore[call-overload]
        raise BadInput(argument, expected=expected, got=shown(value), remedy=f"Give {argument} such a number.")
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(argument: str, value: object, *, least: float, most: float, open_low: bool = False) -> float:
    """The value as a finite float from `least` to `most`; `open_low` excludes `least` itself."""
    expected = f"a number from {least:g} to {most:g}" + (f", above {least:g}" if open_low else "")
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if is_number:
        plain = float(value)  # type: ignore[arg-type]
        if least <= plain <= most and not (open_low and plain == least):
            return plain
    raise BadInput(argument, expected=expected, got=shown(value), remedy=f"Give {argument} such a number.")


def share(argument: str, value: object) -> float:
    """The value as a share from 0 to below 1."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0.0 <= float(value) < 1.0:  # type: ignore[arg-type]
        raise BadInput(
            argument, expected="a share from 0 to below 1", got=shown(value), remedy="Ten percent is 0.1, none is 0."
        )
    return float(value)  # type: ignore[arg-type]


def names(argument: str, value: object) -> tuple[str, ...]:
    """A list of names; a single name counts as a list of one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        listed = tuple(value)
        if all(isinstance(item, str) for item in listed):
            return listed
    raise BadInput(argument, expected="a list of column names", got=shown(value), remedy='Write it as ["a", "b"].')


def unknown_column(argument: str, got: object, file: str, columns: Sequence[str]) -> BadInput:
    """The refusal of a column that a table does not have, with the nearest names and, if they are few, all of them."""
    near = difflib.get_close_matches(str(got), columns, n=3, cutoff=0.5)
    hints = [f"Did you mean {' or '.join(near)}?"] if near else []
    if len(columns) <= MOST_NAMES or not near:
        hints.append(f"Its columns: {some(columns, MOST_NAMES)}.")
    expected = f"a column of {plain_name(file)}"
    return BadInput(argument, expected=expected, got=shown(got), remedy=" ".join(hints))


def plain_name(name: str) -> str:
    """A file's name without characters that cannot be printed, at most 100 long: the name of a data set."""
    return "".join(character if character.isprintable() else "?" for character in name)[:100]


def shown(value: object, longest: int = 80) -> str:
    """A value as text for a message: escaped, and at most `longest` characters."""
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


# Size caps

DEFAULT_CAP = 2 * 1024**3
CHUNK = 1024 * 1024


def max_bytes() -> int:
    """The largest size of a file in bytes."""
    text = os.environ.get("FEDXRAY_MAX_BYTES", "").strip()
    if not text:
        return DEFAULT_CAP
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < 1:
        remedy = "For instance FEDXRAY_MAX_BYTES=4000000000."
        raise BadInput("FEDXRAY_MAX_BYTES", expected="a whole number of bytes above 0", got=shown(text), remedy=remedy)
    return int(text)


def check_size(what: str, size: int) -> None:
    """Refuse a size above the cap; `what` names the file in the message."""
    cap = max_bytes()
    if size > cap:
        remedy = "Use less data, or raise the cap by setting FEDXRAY_MAX_BYTES."
        raise BadInput(what, expected=f"at most {cap} bytes", got=f"{size} bytes or more", remedy=remedy)


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


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The content of one file of an archive, at most the size that its directory states.

    Read in pieces: in one piece everything is unpacked first and cut afterwards, whatever size is stated.
    """
    with archive.open(member) as stream:
        return b"".join(iter(lambda: stream.read(CHUNK), b""))


def unreadable(what: str, problem: Exception) -> BadInput:
    """The refusal of a file that cannot be read to its end."""
    remedy = "Check the path, the permissions and that the file is complete."
    return BadInput(what, expected="a readable file", got=f"{type(problem).__name__}: {problem}", remedy=remedy)


def missing_file(path: Path, argument: str = "path", *, without: Path | None = None) -> BadInput:
    """The refusal of a path where there is no file; the file `without` is not offered instead."""
    got, remedy = shown(str(path), longest=400), nearest_file(path, without=without)
    return BadInput(argument, expected="an existing file or folder", got=got, remedy=remedy)


def nearest_file(path: Path, *, without: Path | None = None) -> str:
    """A remedy for a path where there is nothing: the names nearest to it in its folder, or that there is no folder.

    The file `without` is not among the names.
    """
    try:
        if not path.parent.is_dir():
            return f"There is no folder {shown(str(path.parent), longest=400)}."
        entries = [entry for entry in itertools.islice(path.parent.iterdir(), MOST_FILES) if entry != without]
        found = sorted(entry.name for entry in entries)
    except (OSError, ValueError):  # a folder that may not be read, a name with a zero byte
        return "Check the spelling."
    near = difflib.get_close_matches(path.name[:200], found, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(shown(name) for name in near)}?"
    return f"That folder holds {some([shown(name) for name in found], nothing='nothing')}."


# Fingerprints of a user's own file or folder of images: by content, and quickly by sizes and times

IGNORED = ("thumbs.db", "desktop.ini")
Stamp = tuple[tuple[str, int, int], ...]  # name, size and time of every file


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of the names, sizes and first MiB of every file in a folder; no time goes in."""
    try:
        digest = hashlib.sha256()
        for file in _files(path):
            is_file = file == path
            name = b"" if is_file else os.fsencode(file.relative_to(path).as_posix())
            digest.update(b"%d:%s:%d:" % (len(name), name, file.stat().st_size))
            with file.open("rb") as stream:
                while part := stream.read(CHUNK):
                    digest.update(part)
                    if not is_file:
                        break
        return digest.hexdigest()
    except (OSError, ValueError) as problem:
        raise unreadable(f"file {shown(str(path), longest=400)}", problem) from problem


def stamp(path: Path) -> Stamp:
    """Names, sizes and times of the files: a cheap check whether one may have changed while a program runs."""
    try:
        stats = [(str(file), file.stat()) for file in _files(path)]
    except (OSError, ValueError) as problem:
        raise unreadable(f"file {shown(str(path), longest=400)}", problem) from problem
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or every file in a folder that may be an image, by name."""
    if not path.exists():
        raise missing_file(path)
    if not path.is_dir():
        yield path
        return
    for parent, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(parent, name) for name in sorted(names) if not name.startswith(".") and name.lower() not in IGNORED
        )
