"""Reading a recording: facts first, arrays when needed.

A message that is incomplete is left out and listed in `Recording.cut` with the reason.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor

from fedxray.data.checks import check_size
from fedxray.errors import BadInput, printable, some
from fedxray.federation.recording import format as form
from fedxray.files import is_unfinished, read_json

MOST_MESSAGES = 1_000_000
MOST_NOTES, MOST_NOTE = 100, 500  # notes that are read, and bytes of each
MOST_DIMENSIONS = 64  # of an array
MOST_CHECKED = 100_000  # files of arrays whose check is remembered
RECORD_AGAIN = "Record again, or ask for a complete copy."

DTYPES = {  # by their names in the header of a file
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The messages of one folder in the order they were written; `cut` lists the incomplete ones with the reason."""

    folder: Path
    side: form.Side
    messages: tuple[form.RecordedMessage, ...]
    cut: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()  # why recorders stopped before the training did

    def arrays(self, stored: form.StoredArrays) -> dict[str, Tensor]:
        """The arrays of one message by name, in their order, checked against their hash."""
        path = self.folder / form.ARRAYS / f"{stored.sha256}.safetensors"
        arrays = _load(path, stored.bytes, stored.sha256)
        if set(arrays) != set(stored.names):
            raise damaged(path, f"the arrays {some(stored.names)}", some(sorted(arrays)))
        return {name: arrays[name] for name in stored.names}

    def fault(self, stored: form.StoredArrays) -> str | None:
        """The reason why the arrays of one message cannot be used, None where they are complete and finite."""
        path = self.folder / form.ARRAYS / f"{stored.sha256}.safetensors"
        check_size(f"recording {str(path)!r}", stored.bytes)
        try:
            stamp = path.stat().st_mtime_ns
        except OSError as problem:
            return str(problem.strerror)
        return _fault(path, stored.bytes, stored.sha256, stamp)

    def forms(self, stored: form.StoredArrays) -> dict[str, Tensor]:
        """Shapes and dtypes of the arrays of one message, without their values."""
        path = self.folder / form.ARRAYS / f"{stored.sha256}.safetensors"
        try:
            with safe_open(path, framework="pt", device="cpu") as handle:
                names: list[str] = handle.keys()
                forms = {name: _form(path, name, handle.get_slice(name)) for name in names}
        except (SafetensorError, OSError, RuntimeError, ValueError, KeyError, OverflowError) as problem:
            raise damaged(path, "a file of arrays", str(problem)) from problem
        if set(forms) != set(stored.names):
            raise damaged(path, f"the arrays {some(stored.names)}", some(sorted(forms)))
        return {name: forms[name] for name in stored.names}

    def nodes(self) -> dict[str, list[form.RecordedMessage]]:
        """The messages of every node, by its id."""
        by_node: dict[str, list[form.RecordedMessage]] = {}
        for message in self.messages:
            by_node.setdefault(message.node, []).append(message)
        return by_node

    def runs(self) -> list[str]:
        """The ids of all runs in this folder."""
        return list(dict.fromkeys(message.run for message in self.messages))

    def digest(self) -> str:
        """A SHA-256 that is equal for equal recordings; the messages name their arrays by content."""
        messages = [message.model_dump_json() for message in self.messages]
        text = "\n".join([self.side, *messages, *self.cut, *self.stops])
        return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def read_recording(path: str | Path) -> Recording:
    """The recording in a folder, as far as it is complete."""
    folder = Path(path)
    side = _read_head(folder)
    names = _message_files(folder)
    messages, cut, stops = [], [], _stops(folder)
    if len(names) > MOST_MESSAGES:
        cut.append(f"{len(names) - MOST_MESSAGES:,} messages after the first {MOST_MESSAGES:,}: too many to be read")
    for name in names[:MOST_MESSAGES]:
        try:
            message = _read_message(folder / form.MESSAGES / name)
        except BadInput as problem:
            cut.append(printable(f"message {name}: {problem.got}"))
            continue
        parts = [stored for stored in (message.sent, message.reply) if stored is not None]
        if all(_is_there(folder / form.ARRAYS / f"{stored.sha256}.safetensors", stored.bytes) for stored in parts):
            messages.append(message)
        else:
            cut.append(f"{title(message)}: arrays that are missing or cut off")
    if not messages:
        got = f"none; {len(cut)} are incomplete, first {cut[0]}" if cut else "none"
        got += f"; the recorder stopped: {stops[0]}" if stops else ""
        raise damaged(folder, "at least one complete message", got, "Check that the recorder ran and had space.")
    return Recording(folder=folder, side=side, messages=tuple(messages), cut=tuple(cut), stops=tuple(stops))


def title(message: form.RecordedMessage) -> str:
    """The name of a message in a list of those left out; rounds are counted from 0."""
    round = "?" if message.round is None else message.round - 1
    return f"{message.what} of round {round} with node {printable(message.node)}"


def _read_head(folder: Path) -> form.Side:
    path = folder / form.HEAD
    try:
        there = path.is_file() and not path.is_symlink()
    except (OSError, ValueError) as problem:
        raise damaged(path, "a readable file", str(problem), "Check the path.") from problem
    if not there:
        remedy = "Name the folder that a recorder or `fedxray import` wrote."
        raise damaged(folder, f"a recording with {form.HEAD}", "none", remedy)
    head = read_json(path, argument=f"recording {str(path)!r}", remedy=RECORD_AGAIN, most=form.MOST_FACTS)
    if not isinstance(head, dict) or head.get("kind") != form.KIND:
        raise damaged(path, f'kind = "{form.KIND}"', "something else")
    version = head.get("format")
    if version != form.FORMAT:
        newer = isinstance(version, int) and version > form.FORMAT
        remedy = "It comes from a newer fedxray: update yours." if newer else RECORD_AGAIN
        raise damaged(path, f"format {form.FORMAT}", repr(version)[:80], remedy)
    side = head.get("side")
    if side not in ("client", "server", "checkpoints"):
        raise damaged(path, "side client, server or checkpoints", repr(side)[:80])
    known: form.Side = side
    return known


def _message_files(folder: Path) -> list[str]:
    """Names of the message files, oldest first; unfinished files of a process that ended are left out."""
    parent = folder / form.MESSAGES
    try:
        names = [path.name for path in parent.iterdir()] if parent.is_dir() and not parent.is_symlink() else []
    except OSError as problem:
        raise damaged(parent, "a readable folder", str(problem)) from problem
    return sorted(name for name in names if name.endswith(".json") and not is_unfinished(name))


def _stops(folder: Path) -> list[str]:
    """The first line of every note that a recorder wrote when it stopped."""
    reasons = []
    try:
        for path in [folder / form.RESERVE, *sorted(folder.glob(f"{form.STOPPED}-*.txt"))[:MOST_NOTES]]:
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as stream:
                    lines = stream.read(MOST_NOTE).decode(errors="replace").strip().splitlines()
                if lines or path.name != form.RESERVE:
                    reasons.append(printable(lines[0] if lines else "no reason given"))
    except OSError as problem:
        raise damaged(folder, "readable notes", str(problem)) from problem
    return list(dict.fromkeys(reasons))


def _read_message(path: Path) -> form.RecordedMessage:
    if path.is_symlink() or not path.is_file():
        raise damaged(path, "a plain file", "a link or something else")
    plain = read_json(path, argument=f"recording {str(path)!r}", remedy=RECORD_AGAIN, most=form.MOST_FACTS)
    try:
        return form.RecordedMessage.model_validate(plain)
    except ValidationError as problem:
        raise damaged(path, "a complete message", form.why_not(problem)) from problem


@functools.lru_cache(maxsize=MOST_CHECKED)
def _fault(path: Path, size: int, sha256: str, stamp: int) -> str | None:
    """The reason why a file of arrays, as it was at that time, cannot be used; None where it can."""
    try:
        arrays = _load(path, size, sha256)
    except BadInput as problem:
        return problem.got
    for name, value in arrays.items():
        if value.dtype not in DTYPES.values():
            return f"{str(value.dtype).removeprefix('torch.')} in array {printable(name)}, which is not read"
        if value.ndim > MOST_DIMENSIONS:
            return f"{value.ndim} dimensions of array {printable(name)}"
    floats = (value for value in arrays.values() if value.is_floating_point())
    return None if all(value.isfinite().all() for value in floats) else "values that are not finite"


def _load(path: Path, size: int, sha256: str) -> dict[str, Tensor]:
    """The arrays of a file, refused where its bytes are not the original ones."""
    content = _plain_file(path, size)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise damaged(path, "the bytes that were written", "others: it was altered")
    try:
        return load(content)
    except KeyError as problem:  # a dtype that this version of torch does not have
        got = printable(f"numbers of {problem}, which are not read")
        raise damaged(path, f"numbers of {', '.join(DTYPES)}", got) from problem
    except (SafetensorError, ValueError, RuntimeError, OverflowError) as problem:
        raise damaged(path, "a file of arrays", str(problem)) from problem


def _form(path: Path, name: str, piece: Any) -> Tensor:
    """Shape and dtype of one array by the header of its file."""
    shape, dtype = piece.get_shape(), piece.get_dtype()
    if dtype not in DTYPES:
        expected = f"numbers of {', '.join(DTYPES)} in array {printable(name)}"
        raise damaged(path, expected, printable(str(dtype)))
    if len(shape) > MOST_DIMENSIONS:
        expected = f"at most {MOST_DIMENSIONS} dimensions of array {printable(name)}"
        raise damaged(path, expected, f"{len(shape)}")
    return torch.empty(shape, dtype=DTYPES[dtype], device="meta")


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size


def _plain_file(path: Path, size: int) -> bytes:
    check_size(f"recording {str(path)!r}", size)
    try:
        if not _is_there(path, size):
            raise damaged(path, f"a plain file of {size} bytes", "another one, or none")
        return path.read_bytes()
    except OSError as problem:
        raise damaged(path, "a readable file", str(problem)) from problem


def damaged(path: Path, expected: str, got: str, remedy: str = RECORD_AGAIN) -> BadInput:
    """The refusal of a file of a recording, with its path."""
    return BadInput(f"recording {str(path)!r}", expected=expected, got=got[:300], remedy=remedy)


# Choice of a run and a node: the only one, or the one that is named

MOST_LISTED = 20  # nodes or runs that a refusal names


def one_of(
    argument: str, noun: str, given: str | None, known: Sequence[str], more: Callable[[str], str] | None = None
) -> str:
    """The `given` name if it is known, or the only known one; refused otherwise with a list.

    `argument` is the key of the plan, `noun` the word for such a name, `more` gives a remark on each.
    """
    if given is None and len(known) == 1:
        return known[0]
    if given is None or given not in known:
        described = [printable(f"{name} ({more(name)})" if more else name) for name in known]
        listed = some(described, MOST_LISTED, between="; ")
        got = "nothing" if given is None else repr(given)
        short = argument.rpartition(".")[2]
        remedy = f'Name it: {short} = "{printable(known[0])}".'
        raise BadInput(argument, expected=f"a {noun} of this recording: {listed}", got=got, remedy=remedy)
    return given


def rounds_of(messages: Sequence[form.RecordedMessage], node: str) -> str:
    """A text with the number of rounds in which a node trained, and which, counted from 0."""
    rounds = [m.round for m in messages if m.node == node and m.what == "train"]
    numbers = [round - 1 for round in rounds if round is not None]
    if not rounds:
        return "never trained"
    if len(numbers) < len(rounds):
        return f"{len(rounds)} rounds"
    first, last, count = min(numbers), max(numbers), len(rounds)
    return f"1 round: {first}" if count == 1 else f"{count} rounds from {first} to {last}"


def trainers(messages: Sequence[form.RecordedMessage]) -> list[str]:
    """The nodes that were sent a model to train."""
    return list(dict.fromkeys(message.node for message in messages if message.what == "train"))
