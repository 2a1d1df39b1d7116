"""Append-only files that hold many entries by their keys, so that the number of files does not grow with the clients.

Every process that writes has a file of its own, so writers never interleave and need no lock; a fork shares that of its
parent, which must wait for it meanwhile. An entry is a line of JSON (key, number, bytes, whether the key is forgotten,
SHA-256 of all this and of the content) and its content. Of several entries of one key the one with the highest number
counts, of equal numbers the one in the file of the later name. An entry that a killed process left incomplete is
ignored, and overwritten by the next of the same file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from fedxray.errors import BadInput
from fedxray.files import NoSpaceError, fault, readers_of, room_for, sync_folder

ENDING = ".journal"
LONGEST = 10_000  # bytes of the line before an entry
MOST = 2**53  # numbers of entries


class Entry(NamedTuple):
    """The place of an entry: `start` and `size` in bytes. The later of two entries of a key is the larger one."""

    number: int
    file: str
    start: int
    size: int
    forgotten: bool
    digest: str


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
        return sorted(key for key, entry in self.entries.items() if not entry.forgotten)

    def unread(self) -> int:
        """Return the bytes of all files that hold no complete entry."""
        self._follow()
        return sum(size - self.ends.get(name, 0) for name, size in self._sizes().items())

    def read(self, key: str) -> bytes | None:
        """Return the content of a key, None where it is missing, forgotten or damaged."""
        self._follow()
        entry = self.entries.get(key)
        if entry is None or entry.forgotten:
            return None
        with (self.folder / entry.file).open("rb") as stream:
            stream.seek(entry.start)
            content = stream.read(entry.size)
        return content if _digest(key, entry.number, entry.size, False, [content]) == entry.digest else None

    def write(self, key: str, parts: Sequence[bytes], what: str, *, lasting: bool = True) -> None:
        """Add an entry whose content is the parts joined.

        `what` is its name in messages; `lasting` brings it to the disk before this returns.
        """
        self._append(key, parts, what, lasting=lasting)

    def forget(self, key: str) -> None:
        """Let a key have no entry."""
        if self.read(key) is not None:
            self._append(key, [], "forgotten entry", forgotten=True)

    def _append(
        self, key: str, parts: Sequence[bytes], what: str, *, lasting: bool = True, forgotten: bool = False
    ) -> None:
        self._follow()
        number, size = self.entries[key].number + 1 if key in self.entries else 1, sum(map(len, parts))
        digest = _digest(key, number, size, forgotten, parts)
        head = (json.dumps([key, number, size, forgotten, digest]) + "\n").encode("ascii")
        if len(head) > LONGEST:
            expected, got = f"a name whose entry starts with at most {LONGEST} bytes", f"{len(head)} bytes"
            raise BadInput(f"{what} {key[:60]}", expected=expected, got=got, remedy="Shorten the name.")
        end = self.ends.get(self.own, 0)
        opener = partial(os.open, mode=readers_of(self.folder))
        try:
            with room_for(f"{what} {key}"), open(self.folder / self.own, "ab", opener=opener) as stream:
                stream.truncate(end)  # what a killed fork left incomplete
                stream.write(head)
                stream.flush()
                fault(f"{what} half written")
                stream.writelines(parts)
                stream.flush()
                if lasting:
                    os.fsync(stream.fileno())
        except NoSpaceError:
            with suppress(OSError):  # the next entry does it again
                os.truncate(self.folder / self.own, end)
            raise
        if lasting and end == 0:
            sync_folder(self.folder)
        self.entries[key] = Entry(number, self.own, end + len(head), size, forgotten, digest)
        self.ends[self.own] = end + len(head) + size
        fault(f"{what} in place")

    def _sizes(self) -> dict[str, int]:
        """Return the size of every journal of the folder; anything else of such a name is none."""
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(self.folder) as present:
            for entry in present:
                with suppress(FileNotFoundError):  # removed at this moment
                    if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                        sizes[entry.name] = entry.stat().st_size
        return sizes

    def _follow(self) -> None:
        """Read on in every file that has grown; from the start where one was removed or cut."""
        sizes = self._sizes()
        if sizes.get(self.own, 0) < self.ends.get(self.own, 0):  # what is there is never cut further
            self.own = f"{uuid4().hex}{ENDING}"
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
                key, number, count, forgotten, digest = head
                found = Entry(number, name, stream.tell(), count, forgotten, digest)
                self.entries[key] = max(found, self.entries.get(key, found))
                end = stream.seek(count, os.SEEK_CUR)
        self.ends[name] = end


@lru_cache(maxsize=16)
def journal(folder: Path) -> Journal:
    """Return the journal of a folder, one for this process."""
    return Journal(folder)


def _digest(key: str, number: int, size: int, forgotten: bool, parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256(json.dumps([key, number, size, forgotten]).encode("ascii") + b"\n")
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _head(line: bytes) -> tuple[str, int, int, bool, str] | None:
    """Return the key, number, bytes, whether it is forgotten, and digest of an entry; None where the line is none."""
    try:
        key, number, count, forgotten, digest = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    whole = type(number) is type(count) is int and count >= 0 and 0 < number < MOST
    if not (whole and isinstance(key, str) and isinstance(forgotten, bool) and isinstance(digest, str)):
        return None
    genuine = not forgotten or (count == 0 and digest == _digest(key, number, 0, True, []))
    return (key, number, count, forgotten, digest) if genuine and line.endswith(b"\n") else None
