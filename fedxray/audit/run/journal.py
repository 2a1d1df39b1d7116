"""Append-only files that hold many entries by their keys, so that the number of files does not grow with the clients.

Every process that writes has a file of its own, so writers never interleave and need no lock; a fork shares that of its
parent, which must wait for it meanwhile. An entry is a line of JSON (key, number, bytes, SHA-256) and its content. Of
several entries of one key the one with the highest number counts. An entry that a killed process left incomplete is
ignored, and overwritten by the next of the same file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from fedxray.files import NoSpaceError, fault, readers_of, room_for, sync_folder

ENDING = ".journal"
LONGEST = 10_000  # bytes of the line before an entry


class Entry(NamedTuple):
    """The place of an entry: `start` and `size` in bytes; without a digest the key was forgotten."""

    number: int
    file: str
    start: int
    size: int
    digest: str | None


class Journal:
    """The entries of a folder by their keys, as all processes have written them so far.

    Kept in memory are the places of the entries, and how far every file was read.
    """

    def __init__(self, folder: Path) -> None:
        """Choose the file that this process writes; nothing is read yet."""
        self.folder, self.own = folder, f"{uuid4().hex}{ENDING}"
        self.entries: dict[str, Entry] = {}
        self.ends: dict[str, int] = {}

    def all_keys(self) -> list[str]:
        """Return the keys of all entries, sorted."""
        self._follow()
        return sorted(key for key, entry in self.entries.items() if entry.digest is not None)

    def read(self, key: str) -> bytes | None:
        """Return the content of a key, None where it is missing, forgotten or damaged."""
        self._follow()
        entry = self.entries.get(key)
        if entry is None or entry.digest is None:
            return None
        with (self.folder / entry.file).open("rb") as stream:
            stream.seek(entry.start)
            content = stream.read(entry.size)
        return content if _digest(key, content) == entry.digest else None

    def write(self, key: str, content: bytes, what: str, *, lasting: bool = True) -> None:
        """Add an entry; `what` is its name in messages, `lasting` brings it to the disk before this returns."""
        self._append(key, content, _digest(key, content), what, lasting)

    def forget(self, key: str) -> None:
        """Let a key have no entry."""
        if self.read(key) is not None:
            self._append(key, b"", None, "forgotten entry", True)

    def _append(self, key: str, content: bytes, digest: str | None, what: str, lasting: bool) -> None:
        self._follow()
        number = self.entries[key].number + 1 if key in self.entries else 1
        end = self.ends.get(self.own, 0)
        head = (json.dumps([key, number, len(content), digest]) + "\n").encode("ascii")
        opener = partial(os.open, mode=readers_of(self.folder))
        try:
            with room_for(f"{what} {key}"), open(self.folder / self.own, "ab", opener=opener) as stream:
                stream.truncate(end)  # what a killed fork left incomplete
                stream.write(head + content[: len(content) // 2])
                stream.flush()
                fault(f"{what} half written")
                stream.write(content[len(content) // 2 :])
                stream.flush()
                if lasting:
                    os.fsync(stream.fileno())
        except NoSpaceError:
            os.truncate(self.folder / self.own, end)
            raise
        if lasting and end == 0:
            sync_folder(self.folder)
        self.entries[key] = Entry(number, self.own, end + len(head), len(content), digest)
        self.ends[self.own] = end + len(head) + len(content)
        fault(f"{what} in place")

    def _follow(self) -> None:
        """Read on in every file that has grown; from the start where one was removed or cut."""
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(self.folder) as present:
            sizes = {entry.name: entry.stat().st_size for entry in present if entry.name.endswith(ENDING)}
        if any(sizes.get(name, 0) < end for name, end in self.ends.items()):
            self.entries, self.ends = {}, {}
        for name, size in sizes.items():
            if size > self.ends.get(name, 0):
                self._read_on(name, size)

    def _read_on(self, name: str, size: int) -> None:
        """Note the places of the complete entries of a file that are new."""
        end = self.ends.get(name, 0)
        with (self.folder / name).open("rb") as stream:
            stream.seek(end)
            while (head := _head(stream.readline(LONGEST))) is not None and stream.tell() + head[2] <= size:
                key, number, count, digest = head
                if key not in self.entries or number >= self.entries[key].number:
                    self.entries[key] = Entry(number, name, stream.tell(), count, digest)
                end = stream.seek(count, os.SEEK_CUR)
        self.ends[name] = end


@lru_cache(maxsize=16)
def journal(folder: Path) -> Journal:
    """Return the journal of a folder, one for this process."""
    return Journal(folder)


def _digest(key: str, content: bytes) -> str:
    return hashlib.sha256(json.dumps(key).encode("ascii") + b"\n" + content).hexdigest()


def _head(line: bytes) -> tuple[str, int, int, str | None] | None:
    """Return the key, number, bytes and digest of an entry; None where the line is none."""
    try:
        key, number, count, digest = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    known = isinstance(key, str) and type(number) is type(count) is int and isinstance(digest, str | None)
    return (key, number, count, digest) if known and count >= 0 and line.endswith(b"\n") else None
