"""Writes a recording beside a training, on a thread of its own; whatever goes wrong, the training goes on."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedxray.errors import BadInput
from fedxray.federation.recording.format import (
    ARRAYS,
    FORMAT,
    HEAD,
    KIND,
    MESSAGES,
    MOST_FACTS,
    STOPPED,
    Arrays,
    Heard,
    Said,
    Side,
    why_not,
)
from fedxray.files import read_object, write_whole

MOST_WAITING = 1_000_000_000  # bytes of arrays that may wait for the disk
DTYPES = {  # of NumPy, as safetensors calls them
    "<f2": "F16",
    "<f4": "F32",
    "<f8": "F64",
    "|u1": "U8",
    "|i1": "I8",
    "<i2": "I16",
    "<i4": "I32",
    "<i8": "I64",
    "|b1": "BOOL",
}

log = logging.getLogger("fedxray.recorder")


class RecordingWriter:
    """The recording of one side in one folder; several processes may write to the same one."""

    def __init__(self, folder: str | Path, side: Side, *, most_waiting: int = MOST_WAITING) -> None:
        """Nothing is written before the first message."""
        self.folder, self.side = place_of(folder), side
        self._most_waiting = most_waiting
        self._opened = False
        self._stored: set[str] = set()  # hashes of arrays that this writer knows to be whole on disk
        self.stopped: str | None = None  # why nothing more is recorded
        self._begin()

    def _begin(self) -> None:
        """Nothing waits, and nobody writes yet in this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Said], int]] = deque()
        self._waiting_bytes = 0
        self._in_burst = False
        self._thread: threading.Thread | None = None
        self._note: str | None = None  # to be left in the folder

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as the place of the recording alone: a thread, a lock and what waits stay with their process."""
        return (writer_here, (str(self.folder), self.side, self._most_waiting))

    def submit(self, message: Callable[[], Said], size: int) -> None:
        """Have a message written soon; `message` is called on the writer's thread, `size` is what it holds in bytes."""
        with self._held():
            if self.stopped is not None:
                return
            waiting = self._waiting_bytes
            if waiting + size <= self._most_waiting or not self._waiting or self._in_burst:
                self._waiting.append((message, size))
                self._waiting_bytes += size
                self._start()
                return
        self._stop(f"the disk is slower than the training: {waiting} bytes wait", keep=True)

    @contextmanager
    def burst(self) -> Iterator[None]:
        """A block whose messages are let in together, unless too much waits already: they came at once, in memory."""
        with self._held():
            self._in_burst = self._waiting_bytes <= self._most_waiting
        try:
            yield
        finally:
            self._in_burst = False

    def wait(self) -> None:
        """Return when everything that was submitted is written or given up."""
        with self._held():
            thread = self._thread
        if thread is not None:
            thread.join()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A block of the recorder inside the training: an error in it ends the recording, never the training."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (a user's training must go on)
            self._stop(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _held(self) -> threading.Lock:
        """The lock of this process."""
        if self._process != os.getpid():  # a fork: the thread stayed behind, perhaps with the lock
            self._begin()
        return self._lock

    def _start(self) -> None:
        """Have a thread at work, with the lock held."""
        if self._thread is None:
            # No daemon: Python waits for it at its end, so that a short-lived process loses nothing.
            thread = threading.Thread(target=self._work, name="fedxray-recorder")
            thread.start()
            self._thread = thread

    def _work(self) -> None:
        """Write until nothing waits."""
        while True:
            with self._held():
                note, self._note = self._note, None
                if note is None and not self._waiting:
                    self._thread = None
                    return
                message, size = self._waiting.popleft() if note is None else (None, 0)
            try:
                if message is not None:
                    self._write(message())
            except Exception as error:  # noqa: BLE001  (a user's training must go on)
                self._stop(f"{type(error).__name__}: {error}", traceback.format_exc())
            if note is not None:
                self._leave(note)
            with self._held():
                self._waiting_bytes -= size

    def _stop(self, reason: str, trace: str = "", *, keep: bool = False) -> None:
        """Say once why nothing more is recorded; the disk may be what fails, so the thread leaves the note there."""
        reason = " ".join(reason.split())
        with self._held():
            if not keep:  # what waits would fail too
                self._waiting.clear()
            if self.stopped is not None:
                return
            self.stopped, self._note = reason, f"{reason}\n{trace}"
            try:
                self._start()
            except RuntimeError as error:  # no thread can be started, which may be what failed
                log.debug("no note could be left: %s\n%s", error, trace)
        log.warning("fedxray stopped recording to %s: %s. The training goes on.", self.folder, reason)

    def _leave(self, note: str) -> None:
        """Say in the folder why the recording ended, where that is possible."""
        try:
            open_folder(self.folder, self.side)
            path = self.folder / f"{STOPPED}-{uuid.uuid4().hex[:12]}.txt"
            write_whole(path, note.encode(errors="replace"), "note", lasting=False)
        except Exception as error:  # noqa: BLE001  (the disk may be what failed)
            log.debug("no note could be left: %s\n%s", error, note)

    def _write(self, said: Said) -> None:
        if not self._opened:
            open_folder(self.folder, self.side)
            self._opened = True
        write_message(self.folder, said, self._stored)


@functools.cache
def writer_here(folder: str, side: Side, most_waiting: int) -> RecordingWriter:
    """The one writer of this process for copies that arrive: a simulation engine sends a new one with each message."""
    return RecordingWriter(folder, side, most_waiting=most_waiting)


def place_of(folder: str | Path) -> Path:
    """The folder of a recording by its full name, which holds in other processes too."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as problem:  # ~somebody whom nobody knows
        raise BadInput(
            "folder", expected="a home that exists", got=str(folder), remedy="Write the whole path."
        ) from problem


def open_folder(folder: Path, side: Side) -> None:
    """Begin a recording, or go on with one of the same side."""
    for place in (folder, folder / MESSAGES, folder / ARRAYS):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = folder / HEAD
    if not head.exists():
        content = {"kind": KIND, "format": FORMAT, "side": side}
        write_whole(
            head, json.dumps(content).encode(), "recording"
        )  # lasting: without it nothing can be read
    found = read_object(head)
    if (found.get("kind"), found.get("format"), found.get("side")) != (KIND, FORMAT, side):
        raise BadInput(
            f"folder {str(folder)!r}",
            expected=f"no recording yet, or one of the {side}'s side",
            got=f"side {found.get('side')!r}, format {found.get('format')!r}",
            remedy="Give each side its own folder.",
        )


def write_message(folder: Path, said: Said, stored: set[str] | None = None) -> None:
    """Write one message of a recording: its arrays first, then its facts; `stored` remembers arrays that are whole."""
    stored = set() if stored is None else stored
    facts: dict[str, Any] = {
        "what": said.what,
        "node": said.node,
        "run": said.run,
        "round": said.round,
        "sent": _store(folder, said.sent, stored),
        "reply": None if said.reply is None else _store(folder, said.reply, stored),
        "examples": said.examples,
        "config": dict(said.config),
        "partition": said.partition,
        "inside": None if said.inside is None else list(said.inside),
        "outside": None if said.outside is None else list(said.outside),
        "secure": said.secure,
    }
    # The time comes first in the name, for frameworks that do not number their rounds.
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.json"
    write_whole(folder / MESSAGES / name, _checked(facts), "message", lasting=False)


def _checked(facts: dict[str, Any]) -> bytes:
    """The facts as JSON that the reader takes."""
    content = json.dumps(facts, allow_nan=False).encode()
    try:
        Heard.model_validate(json.loads(content))
        wrong = f"{len(content)} bytes" if len(content) > MOST_FACTS else None
    except ValidationError as problem:
        wrong = why_not(problem)
    if wrong is not None:
        raise BadInput(
            "message",
            expected=f"facts that can be read again, of at most {MOST_FACTS} bytes",
            got=wrong,
            remedy="Shorten names, counts or the config.",
        )
    return content


def _store(folder: Path, arrays: Arrays, stored: set[str]) -> dict[str, Any]:
    """Keep arrays under the hash of their file, and say which names they have in which order."""
    content = pack(arrays)
    digest = hashlib.sha256(content).hexdigest()
    path = folder / ARRAYS / f"{digest}.safetensors"
    if not _is_whole(path, content, known=digest in stored):
        write_whole(path, content, "arrays", lasting=False)
    stored.add(digest)
    return {"sha256": digest, "bytes": len(content), "names": list(arrays)}


def _is_whole(path: Path, content: bytes, *, known: bool) -> bool:
    """Whether the file is there; one that an earlier run left is compared, as it may be torn."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != len(content):
        return False
    return known or path.read_bytes() == content


def pack(arrays: Arrays) -> bytes:
    """Arrays as a safetensors file, copied once: its own writer copies them three times, beside a training."""
    plain = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    header: dict[str, Any] = {}
    pieces: list[memoryview] = []
    end = 0
    # Wide types first, so that every array begins at a multiple of its own width.
    for name, value in sorted(plain.items(), key=lambda one: (-one[1].itemsize, one[0])):
        if value.dtype.str not in DTYPES:
            expected = f"numbers of {', '.join(sorted(DTYPES.values()))}"
            raise BadInput(f"array {name!r}", expected=expected, got=value.dtype, remedy="Convert it.")
        start, end = end, end + value.nbytes
        header[name] = {
            "dtype": DTYPES[value.dtype.str],
            "shape": list(value.shape),
            "data_offsets": [start, end],
        }
        pieces.append(value.reshape(-1).view(np.uint8).data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])
