"""Imports saved models as a recording: two checkpoints of one round, or a folder with files for every round.

A checkpoint comes from someone else, so nothing in it is executed, and its sizes are checked before it is loaded.
"""

from __future__ import annotations

import io
import pickletools
import re
import shutil
import tarfile
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import ValidationError

from fedxray.audit.plan.schema import FederationPart, values_of
from fedxray.data.checks import check_size, read_member
from fedxray.errors import BadInput, some
from fedxray.federation.recording.format import ARRAYS, HEAD, MESSAGES, Arrays, Said
from fedxray.federation.recording.transcribe import by_position
from fedxray.federation.recording.writer import DTYPES, open_folder, write_message
from fedxray.files import TEMPORARY

TRAINED = {"what": "train", "node": "checkpoints", "run": "1"}  # facts of every message
ROUND = "{round}"
SENT, REPLY = "global-{round}.*", "local-{round}.*"
SAME_NETWORK = "Give checkpoints of the same network."


def import_pair(
    before: Path,
    after: Path,
    out: Path,
    *,
    round: int = 1,
    examples: int | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Path:
    """Write a recording of one round: the model that was sent (`before`) and the one that was returned (`after`).

    `examples` and `recipe` are what is known about the client's training.
    """
    _check_new(out)
    facts: dict[str, Any] = {**TRAINED, "examples": examples, "config": _checked(recipe)}
    sent, reply = read_checkpoint(before), read_checkpoint(after)
    _check_same_network(before, sent, after, reply)
    with _new_recording(out) as folder:
        write_message(folder, Said(round=round, sent=sent, reply=reply, **facts))
    return out


def import_folder(
    folder: Path,
    out: Path,
    *,
    sent: str = SENT,
    reply: str | None = REPLY,
    examples: int | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> list[int]:
    """Write a recording of all rounds in a folder; the patterns have {round} at its position in the file names.

    Returns the rounds as the recording counts them, from 1. A round without a reply is a global model that was sent.
    """
    _check_new(out)
    facts: dict[str, Any] = {**TRAINED, "examples": examples, "config": _checked(recipe)}
    models = _files(folder, "sent", sent)
    replies = {} if reply is None else _files(folder, "reply", reply)
    _check_matched(folder, sent, models, reply, replies)
    shift = 1 - min(models) if min(models) < 1 else 0  # some frameworks count rounds from 0
    first = models[min(models)]
    first_model = read_checkpoint(first)
    with _new_recording(out) as recording:
        for number in sorted(models):
            model = read_checkpoint(models[number])
            _check_same_network(first, first_model, models[number], model)
            returned = read_checkpoint(replies[number]) if number in replies else None
            if returned is not None:
                _check_same_network(models[number], model, replies[number], returned)
            write_message(recording, Said(round=number + shift, sent=model, reply=returned, **facts))
    return [number + shift for number in sorted(models)]


def _check_matched(
    folder: Path, sent: str, models: dict[int, Path], reply: str | None, replies: dict[int, Path]
) -> None:
    """Refuse patterns that match nothing, and replies to models that are not there."""
    if not models:
        remedy = 'Give the pattern of their names: --sent "round-{round}-weights.npz".'
        raise BadInput(f"folder {str(folder)!r}", expected=f"files called {sent}", got=_names_in(folder), remedy=remedy)
    if reply is not None and not replies:
        remedy = 'Give the pattern of their names, or --reply "" where there are only models that were sent.'
        raise BadInput("--reply", expected=f"at least one file called {reply}", got=_names_in(folder), remedy=remedy)
    unmatched = sorted(set(replies) - set(models))
    if unmatched:
        expected = f"the model that was sent in round {unmatched[0]} ({sent})"
        remedy = "Add it, or remove the reply: without the model it started from it has no meaning."
        raise BadInput(f"file {replies[unmatched[0]].name!r}", expected=expected, got="no such file", remedy=remedy)


def _checked(recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the recipe, refused where a plan would refuse it."""
    try:
        FederationPart.model_validate(dict(recipe or {}))
    except ValidationError as problem:
        name = str(problem.errors(include_url=False)[0]["loc"][0])
        field = FederationPart.model_fields.get(name)
        raise BadInput(
            f"--{name.replace('_', '-')}",
            expected="a field of the recipe" if field is None else values_of(field),
            got=(recipe or {}).get(name),
            remedy="Leave it out where it is not known.",
        ) from None
    return dict(recipe or {})


@contextmanager
def _new_recording(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes the recording when all is written, and is removed where something fails."""
    inside = out.is_dir()  # an empty folder, which may be the root of a disk
    part = (out if inside else out.parent) / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        try:
            open_folder(part, "checkpoints")
            yield part
            for name in (ARRAYS, MESSAGES, HEAD) if inside else ():
                (part / name).rename(out / name)
            if not inside:
                part.rename(out)
        except OSError as problem:
            raise BadInput(
                "--out", expected="a folder that can be written", got=problem, remedy="Choose another one."
            ) from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _files(folder: Path, argument: str, pattern: str) -> dict[int, Path]:
    """Return the files of a pattern by their round."""
    if pattern.count(ROUND) != 1 or "/" in pattern:
        remedy = "For instance global-{round}.safetensors."
        raise BadInput(f"--{argument}", expected="a file name with {round} in it", got=repr(pattern), remedy=remedy)
    start, _, end = pattern.partition(ROUND)
    shape = re.compile(_regex(start) + r"(\d{1,9})" + _regex(end))
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = shape.fullmatch(path.name)
        if match is None:
            continue
        number = int(match.group(1))
        if number in files:
            got = f"{files[number].name} and {path.name}"
            raise BadInput(f"--{argument}", expected=f"one file for round {number}", got=got, remedy="Remove one.")
        files[number] = path
    return files


def _regex(text: str) -> str:
    """Return a piece of a pattern as a regular expression; only * is special."""
    return ".*".join(re.escape(part) for part in text.split("*"))


def _check_same_network(before: Path, sent: Arrays, after: Path, reply: Arrays) -> None:
    unnamed = [by_position(list(side)) for side in (sent, reply)]
    if unnamed[0] != unnamed[1]:
        order = {True: "by position", False: "by name"}
        expected, got = f"arrays {order[unnamed[0]]}, as in {before.name}", f"arrays {order[unnamed[1]]}"
        raise _bad(after, expected, got, "Save both the same way.")
    for name in {**sent, **reply}:
        shapes = [None if name not in side else list(side[name].shape) for side in (sent, reply)]
        if shapes[0] != shapes[1]:
            expected = f"the same arrays as {before.name}: {name!r} {shapes[0] or 'absent'}"
            raise _bad(after, expected, shapes[1] or "absent", SAME_NETWORK)
        kinds = [side[name].dtype for side in (sent, reply)]
        # counters are scalars, and an average makes fractions of them
        if sent[name].ndim and (kinds[0].kind == "f") != (kinds[1].kind == "f"):
            raise _bad(after, f"{name!r} of {kinds[0]}, as in {before.name}", kinds[1], SAME_NETWORK)


def _check_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput("--out", expected="a new or empty folder", got=str(out), remedy="Choose another one.")


def _names_in(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    return some(names, nothing="an empty folder")


# One checkpoint as arrays: .safetensors, .pt or .pth, or an .npz in the network's order; nothing in it is executed
#
# Sizes are checked before memory is allocated: a tensor with one stored number may claim any size.

INSIDE = ("state_dict", "model_state_dict", "model")  # keys of a saved dictionary that may hold the weights
WRAPPED = "module."  # prefix of every name by DataParallel
UNNAMED = "arr_"  # prefix of every position by numpy.savez
AS_FLOAT = "Save the weights as float32."
STATE = "a file of tensors (torch.save(model.state_dict(), ...))"


def read_checkpoint(path: Path) -> Arrays:
    """Return the arrays of a checkpoint by name, or by position where they have none."""
    readers = {".safetensors": _safetensors, ".pt": _torch, ".pth": _torch, ".npz": _npz}
    if path.suffix.lower() not in readers:
        raise _bad(path, f"a file of {', '.join(readers)}", f"{path.suffix or 'no ending'}")
    if not path.is_file():
        raise _bad(path, "a file", "none", "Check the path.")
    check_size(f"checkpoint {str(path)!r}", path.stat().st_size)
    arrays = readers[path.suffix.lower()](path)
    if not arrays:
        raise _bad(path, "the weights of a network", "nothing")
    for name, value in arrays.items():
        if value.dtype.str not in DTYPES:
            raise _bad_tensor(path, name, f"numbers of {', '.join(DTYPES.values())}", value.dtype, AS_FLOAT)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            got = "NaN or infinity: the training had diverged"
            raise _bad_tensor(path, name, "finite numbers", got, "Give the checkpoint of an earlier round.")
    if all(name.startswith(WRAPPED) for name in arrays):
        arrays = {name.removeprefix(WRAPPED): value for name, value in arrays.items()}
    return arrays


def _safetensors(path: Path) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, LookupError, RuntimeError) as problem:
        raise _bad(path, "a safetensors file", problem) from problem
    return _from_torch(path, tensors)


def _torch(path: Path) -> Arrays:
    """Return the weights in a file of torch.save; anything but tensors and plain values is refused, never executed."""
    import torch
    from torch import serialization

    _check_unpacked(path)
    try:
        scan(path)
    except SuspiciousPickle as problem:
        raise _bad(path, STATE, problem) from problem
    foreign_code: Any = serialization.pickle.UnpicklingError  # type: ignore[attr-defined]
    damaged = (RuntimeError, EOFError, OSError, ValueError, LookupError, AttributeError, TypeError)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except foreign_code as problem:
        foreign = re.search(r"GLOBAL (\S{1,100})", str(problem))
        got = "something else" if foreign is None else f"{foreign[1]}, which is not loaded"
        raise _bad(path, STATE, got) from problem
    except (*damaged, AssertionError, OverflowError, MemoryError) as problem:
        short = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise _bad(path, STATE, short) from problem
    for name in INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise _bad(path, "a state dict: names and tensors", _kind(content))
    for name in content:
        if not isinstance(name, str):
            raise _bad(path, "a state dict: names and tensors", f"{name!r} in place of a name")
    return _from_torch(path, content)


def _check_unpacked(path: Path) -> None:
    """Check the unpacked size: a file of torch.save is an archive, whose parts may be compressed a thousandfold."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            check_size(f"checkpoint {str(path)!r}, unpacked", sum(part.file_size for part in parts))
            for part in parts:
                if part.compress_type != zipfile.ZIP_STORED:  # torch.save never packs
                    raise _bad(path, "parts that are not packed, as torch.save writes them", f"{part.filename!r}")
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # of an older format, or damaged, which torch.load reports


def _from_torch(path: Path, tensors: Mapping[str, Any]) -> Arrays:
    """Return tensors as arrays; everything but plain tensors is refused before it is read."""
    total = 0
    for name, value in tensors.items():
        _check_plain(path, name, value)
        size = value.numel() * value.element_size()
        check_size(f"tensor {name!r} of checkpoint {str(path)!r}", size)
        total += size
    check_size(f"tensors of checkpoint {str(path)!r}", total)
    return {name: value.detach().resolve_neg().contiguous().numpy() for name, value in tensors.items()}


def _check_plain(path: Path, name: str, value: Any) -> None:
    import torch

    if value.is_nested or value.layout != torch.strided:
        kind = "a nested one" if value.is_nested else f"{str(value.layout).removeprefix('torch.')}"
        raise _bad_tensor(path, name, "a dense tensor", kind, "Save it dense: tensor.to_dense().")
    if value.device.type != "cpu":
        raise _bad_tensor(
            path, name, "a tensor with values", f"one on {value.device}", "Save a network that has its values."
        )
    if value.is_quantized:
        raise _bad_tensor(path, name, "plain numbers", f"quantised ones ({value.dtype})", AS_FLOAT)
    try:
        torch.empty(0, dtype=value.dtype, device="cpu").numpy()
    except TypeError:
        raise _bad_tensor(path, name, "a dtype that NumPy knows", value.dtype, AS_FLOAT) from None
    if value.is_complex():
        raise _bad_tensor(path, name, "real numbers", value.dtype, AS_FLOAT)


def _npz(path: Path) -> Arrays:
    from fedxray.data.own_arrays import read_arrays

    arrays = read_arrays(path)
    if all(name.startswith(UNNAMED) and name.removeprefix(UNNAMED).isdigit() for name in arrays):
        ordered = sorted(arrays, key=lambda name: int(name.removeprefix(UNNAMED)))
        return {str(index): np.asarray(arrays[name]) for index, name in enumerate(ordered)}
    return arrays


def _kind(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a dictionary with {some([str(name) for name in content])}"
    return type(content).__name__


def _bad(path: Path, expected: str, got: object, remedy: str = "Save the state dict of the network.") -> BadInput:
    return BadInput(f"checkpoint {str(path)!r}", expected=expected, got=str(got)[:300], remedy=remedy)


def _bad_tensor(path: Path, name: str, expected: str, got: object, remedy: str) -> BadInput:
    return _bad(path, f"{expected} in tensor {name[:200]!r}", got, remedy)


# The scan of a .pt file before torch reads it; no instruction of it is executed
#
# Loading with weights_only executes nothing foreign, yet it may never end: forty tuples, each holding the one before it
# twice, take an hour to be hashed as a name. So the instructions are followed here on a stack of sizes in place of
# values, where every object that is held twice counts twice.

MOST_BYTES = 4 * 1024**2  # of instructions; a tensor needs about 150
MOST_PARTS = 1000  # of a tuple with everything that it holds
MOST_LONG = 2**64
OLD_FORMAT = 5  # pickles at the beginning of a file of torch before 1.6
ZIP = b"PK\x03\x04"
FILLED = ("collections OrderedDict", "collections Counter", "builtins set", "__builtin__ set")
HASHED = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINSTRING", "NONE"})
MARK = "MARK"
StackItem = tuple[int, str]  # parts of a value, and the instruction that made it or the global it is


class SuspiciousPickle(Exception):
    """A file that would take too long to load, or that is none of torch; its text has the reason."""


def scan(path: Path) -> None:
    """Refuse a file with too many instructions, or with ones that build what no state dict holds."""
    try:
        with path.open("rb") as stream:
            zipped = stream.read(4) == ZIP
            stream.seek(0)
            if zipped:
                for content in _packed(path):
                    _follow(io.BytesIO(content))
            elif tarfile.is_tarfile(path):
                raise SuspiciousPickle("a tar archive")
            else:
                beginning = io.BytesIO(stream.read(MOST_BYTES))
                for _ in range(OLD_FORMAT):
                    _follow(beginning)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as problem:
        raise SuspiciousPickle(str(problem) or type(problem).__name__) from problem
    except (ValueError, LookupError, TypeError) as problem:
        raise SuspiciousPickle("damaged or cut-off content") from problem


def _packed(path: Path) -> Iterator[bytes]:
    """Yield every file of instructions in the archive; torch finds its own in any case of the name."""
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.filename.lower().endswith(".pkl"):
                if part.file_size > MOST_BYTES:
                    raise SuspiciousPickle(f"{part.file_size} bytes of instructions, more than {MOST_BYTES}")
                yield read_member(archive, part)


def _follow(stream: IO[bytes]) -> None:
    """Follow one pickle on a stack of sizes."""
    stack: list[StackItem] = []
    memo: dict[int, StackItem] = {}
    for instruction, argument, _ in pickletools.genops(stream):
        name = instruction.name
        if name in ("BINPUT", "LONG_BINPUT"):
            memo[_whole(argument)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[_whole(argument)])
        elif name == "MARK":
            stack.append((0, MARK))
        elif name == "LONG1" and abs(_whole(argument)) >= MOST_LONG:
            stack.append((1, "a long number"))
        else:
            arguments = _pop(stack, instruction)
            _check(name, arguments)
            origin = str(argument) if name == "GLOBAL" else name
            stack.extend((1 + sum(parts for parts, _ in arguments), origin) for _ in instruction.stack_after)


def _pop(stack: list[StackItem], instruction: pickletools.OpcodeInfo) -> list[StackItem]:
    """Pop the arguments of an instruction from the stack, the lowest first, without a mark."""
    before = instruction.stack_before
    end, count = len(stack), len(before)
    if pickletools.markobject in before:
        end = max(index for index, (_, origin) in enumerate(stack) if origin == MARK)
        count = before.index(pickletools.markobject)
    start = end - count
    if start < 0:
        raise ValueError("an empty stack")
    arguments = stack[start:end] + stack[end + 1 :]
    del stack[start:]
    return arguments


def _check(name: str, arguments: list[StackItem]) -> None:
    """Refuse large tuples, unhashed keys and containers that are filled by their constructor."""
    if name.startswith("TUPLE") and sum(parts for parts, _ in arguments) > MOST_PARTS:
        raise SuspiciousPickle(f"a tuple of more than {MOST_PARTS} parts")
    if name in ("SETITEM", "SETITEMS"):
        for _, origin in arguments[1::2]:
            if origin not in HASHED:
                raise SuspiciousPickle("a dictionary with names that are neither text nor number")
    if name == "REDUCE" and arguments[0][1] in FILLED and arguments[1][1] != "EMPTY_TUPLE":
        raise SuspiciousPickle(f"{arguments[0][1].replace(' ', '.')} that is filled by its constructor")


def _whole(argument: Any) -> int:
    return int(argument)
