"""Fingerprints of a user's own file or folder of images: by content, and quickly by sizes and times."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from fedxray.data.checks import CHUNK, missing_file, shown, unreadable
from fedxray.data.own_images import IGNORED

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
            Path(parent, name)
            for name in sorted(names)
            if not name.startswith(".") and name.lower() not in IGNORED
        )
