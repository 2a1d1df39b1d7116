"""Writing a recording during a training, on a separate thread; an error ends the recording, never the training."""

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
from fedxray.federation.recording import format as form
from fedxray.files import NoSpaceError, read_object, write_whole

MOST_WAITING = 1_000_000_000  # bytes of arrays that may wait for the disk
EXIT_SECONDS = 30.0  # that a process waits at its end for a disk on which nothing more arrives
RESERVED = 4096  # bytes of the note that is made at the beginning
DTYPES = {  # of NumPy, with their names in safetensors
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

    def __init__(
        self, folder: str | Path, side: form.Side, *, most_waiting: int = MOST_WAITING, at_exit: bool = True
    ) -> None:
        """Prepare a recording; nothing is written before the first message.

        Unless `at_exit`, the end of the process does not wait for the disk: call `wait` before.
        """
        self.folder, self.side, self._at_exit = place_of(folder), side, at_exit
        self._most_waiting = most_waiting
        self._opened = False
        self._stored: set[str] = set()  # hashes of arrays that this writer knows to be complete on disk
        self.stopped: str | None = None  # the reason why nothing more is recorded
        self._begin()

    def _begin(self) -> None:
        """Start with an empty queue and no thread in this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], form.Said], int]] = deque()
        self._waiting_bytes = 0
        self._in_burst = False
        self._thread: threading.Thread | None = None
        self._waiter: threading.Thread | None = None
        self._handled = 0  # messages and notes written or dropped by the thread
        self._note: str | None = None  # to be written to the folder

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the path of the recording alone: thread, lock and queue stay with their process."""
        return (writer_here, (str(self.folder), self.side, self._most_waiting))

    def submit(self, message: Callable[[], form.Said], size: int) -> None:
        """Queue a message; `message` is called on the writer's thread, `size` is the bytes of its arrays."""
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
        """A block whose messages are queued together, unless too much waits already: they are all in memory anyway."""
        with self._held():
            self._in_burst = self._waiting_bytes <= self._most_waiting
        try:
            yield
        finally:
            self._in_burst = False

    def wait(self, seconds: float | None = None) -> None:
        """Return when every submitted message is written or dropped, or after that time."""
        with self._held():
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A block of the recorder inside the training: an error in it ends the recording, never the training."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (a user's training must continue)
            self.stop(error)

    def stop(self, error: Exception) -> None:
        """Record nothing more, because of this error, which is being handled."""
        self._stop(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _held(self) -> threading.Lock:
        """The lock of this process."""
        if self._process != os.getpid():  # a fork: the thread stayed behind, perhaps with the lock
            self._begin()
        return self._lock

    def _start(self) -> None:
        """Start the thread if there is none; the lock must be held."""
        if self._waiter is None and self._at_exit:
            # No daemon: Python waits for it at exit, so that a short-lived process loses nothing.
            waiter = threading.Thread(target=self._wait_at_exit, name="fedxray-recorder-exit")
            waiter.start()
            self._waiter = waiter
        if self._thread is None:
            # A daemon: a disk that hangs keeps no process alive.
            thread = threading.Thread(target=self._work, name="fedxray-recorder", daemon=True)
            thread.start()
            self._thread = thread

    def _wait_at_exit(self) -> None:
        """When the program has ended, wait until all is written, but not for a disk that takes nothing more."""
        threading.main_thread().join()
        while True:
            with self._held():
                thread, handled = self._thread, self._handled
                if thread is None:
                    self._waiter = None  # a thread that outlives the main one may record more
                    return
            thread.join(EXIT_SECONDS)
            if thread.is_alive() and self._handled == handled:
                reason = f"the disk took nothing for {EXIT_SECONDS:g} s when the program ended"
                log.warning("fedxray stopped recording to %s: %s.", self.folder, reason)
                note = threading.Thread(target=self._write_note, args=(reason,), daemon=True)  # it may hang as well
                note.start()
                note.join(EXIT_SECONDS)
                return

    def _work(self) -> None:
        """Write until the queue is empty."""
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
            except Exception as error:  # noqa: BLE001  (a user's training must continue)
                self.stop(error)
            if note is not None:
                self._write_note(note)
            with self._held():
                self._waiting_bytes -= size
                self._handled += 1

    def _stop(self, reason: str, trace: str = "", *, keep: bool = False) -> None:
        """Stop recording and log the reason once; the thread writes a note, since the disk may be what fails."""
        reason = " ".join(reason.split())
        with self._held():
            if not keep:  # the queued messages would fail too
                self._waiting.clear()
            if self.stopped is not None:
                return
            self.stopped, self._note = reason, f"{reason}\n{trace}"
            try:
                self._start()
            except RuntimeError as error:  # no thread can be started, which may be what failed
                log.debug("no note could be written: %s\n%s", error, trace)
        log.warning("fedxray stopped recording to %s: %s. The training continues.", self.folder, reason)

    def _write_note(self, note: str) -> None:
        """Write to the folder why the recording ended, where that is possible."""
        content = note.encode(errors="replace")
        try:
            open_folder(self.folder, self.side)
            try:
                path = self.folder / f"{form.STOPPED}-{uuid.uuid4().hex[:12]}.txt"
                write_whole(path, content, "note", lasting=False)
            except (OSError, NoSpaceError):  # in place, which needs no space on a full disk
                with (self.folder / form.RESERVE).open("r+b") as stream:
                    stream.write(content[:RESERVED].ljust(RESERVED))
        except Exception as error:  # noqa: BLE001  (the disk may be what failed)
            log.debug("no note could be written: %s\n%s", error, note)

    def _write(self, message: form.Said) -> None:
        if not self._opened:
            open_folder(self.folder, self.side)
            self._opened = True
        write_message(self.folder, message, self._stored)


@functools.cache
def writer_here(folder: str, side: form.Side, most_waiting: int) -> RecordingWriter:
    """The one writer of this process for unpickled copies: a simulation engine sends one with each message."""
    return RecordingWriter(folder, side, most_waiting=most_waiting)


def place_of(folder: str | Path) -> Path:
    """The absolute path of a recording's folder, which is valid in other processes too."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as problem:  # ~name of an unknown user
        raise BadInput(
            "folder", expected="a home that exists", got=str(folder), remedy="Write the full path."
        ) from problem


def open_folder(folder: Path, side: form.Side) -> None:
    """Begin a recording, or continue one of the same side."""
    for path in (folder, folder / form.MESSAGES, folder / form.ARRAYS):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    head, reserve = folder / form.HEAD, folder / form.RESERVE
    if side != "checkpoints" and not reserve.exists():  # an import that fails leaves nothing, and so no note
        write_whole(reserve, b" " * RESERVED, "note")
    if not head.exists():
        content = {"kind": form.KIND, "format": form.FORMAT, "side": side}
        # Lasting: without the head nothing can be read.
        write_whole(head, json.dumps(content).encode(), "recording")
    existing = read_object(head)
    if (existing.get("kind"), existing.get("format"), existing.get("side")) != (form.KIND, form.FORMAT, side):
        raise BadInput(
            f"folder {str(folder)!r}",
            expected=f"no recording yet, or one of the {side}'s side",
            got=f"side {existing.get('side')!r}, format {existing.get('format')!r}",
            remedy="Give each side its own folder.",
        )


def write_message(folder: Path, message: form.Said, stored: set[str] | None = None) -> None:
    """Write one message: its arrays first, then its facts; `stored` collects hashes of arrays known to be complete."""
    stored = set() if stored is None else stored
    facts = {
        **vars(message),
        "sent": _store(folder, message.sent, stored),
        "reply": None if message.reply is None else _store(folder, message.reply, stored),
        "config": dict(message.config),
    }
    # The time comes first in the name, for frameworks that do not number their rounds.
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.json"
    write_whole(folder / form.MESSAGES / name, _checked(facts), "message", lasting=False)


def _checked(facts: dict[str, Any]) -> bytes:
    """The facts as JSON, refused where the reader would refuse them."""
    content = json.dumps(facts, allow_nan=False).encode()
    try:
        form.RecordedMessage.model_validate(json.loads(content))
        wrong = f"{len(content)} bytes" if len(content) > form.MOST_FACTS else None
    except ValidationError as problem:
        wrong = form.why_not(problem)
    if wrong is not None:
        expected = f"facts that can be read again, of at most {form.MOST_FACTS} bytes"
        remedy = "Shorten names, counts or the config."
        raise BadInput("message", expected=expected, got=wrong, remedy=remedy)
    return content


def _store(folder: Path, arrays: form.Arrays, stored: set[str]) -> dict[str, Any]:
    """Store arrays under the hash of their file; returns hash, size and the names in order."""
    content = pack(arrays)
    digest = hashlib.sha256(content).hexdigest()
    path = folder / form.ARRAYS / f"{digest}.safetensors"
    if not _is_complete(path, content, known=digest in stored):
        write_whole(path, content, "arrays", lasting=False)
    stored.add(digest)
    return {"sha256": digest, "bytes": len(content), "names": list(arrays)}


def _is_complete(path: Path, content: bytes, *, known: bool) -> bool:
    """Whether the file exists with this content; one of an earlier run is compared, as it may be incomplete."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != len(content):
        return False
    return known or path.read_bytes() == content


def pack(arrays: form.Arrays) -> bytes:
    """The bytes of a safetensors file with these arrays, copied once; the library's writer copies them three times."""
    plain = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    header: dict[str, Any] = {}
    pieces: list[memoryview] = []
    end = 0
    # Wide types first, so that every array begins at a multiple of its own width.
    for name, value in sorted(plain.items(), key=lambda item: (-item[1].itemsize, item[0])):
        if value.dtype.str not in DTYPES:
            expected = f"numbers of {', '.join(sorted(DTYPES.values()))}"
            raise BadInput(f"array {name!r}", expected=expected, got=value.dtype, remedy="Convert it.")
        start, end = end, end + value.nbytes
        header[name] = {"dtype": DTYPES[value.dtype.str], "shape": list(value.shape), "data_offsets": [start, end]}
        pieces.append(value.reshape(-1).view(np.uint8).data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])
