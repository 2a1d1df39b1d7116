"""Recordings from saved models: two checkpoints of one round, or a folder with files for every round."""

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
from fedxray.data.checks import check_size
from fedxray.errors import BadInput
from fedxray.federation.recording.format import ARRAYS, HEAD, MESSAGES, Arrays, Said
from fedxray.federation.recording.transcribe import by_position
from fedxray.federation.recording.writer import DTYPES, open_folder, write_message
from fedxray.files import TEMPORARY

# --- Looks through the instructions of a .pt file before torch reads it; nothing is carried out.
#
# Reading weights only executes nothing foreign, yet it may never end: forty tuples, each holding the one
# before it twice, take an hour to be hashed as a name. So the instructions are followed here with sizes in
# place of values, where every object that is held twice counts twice.


MOST_BYTES = 4 * 1024**2  # of instructions: about 150 for each tensor
MOST_PARTS = 1000  # of a tuple with all that it holds
MOST_LONG = 2**64
OLD_FORM = 5  # pickles that a file of torch before 1.6 begins with
ZIP = b"PK\x03\x04"
FILLED = ("collections OrderedDict", "collections Counter", "builtins set", "__builtin__ set")
HASHED = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINSTRING", "NONE"})
MARK = "MARK"
Cell = tuple[int, str]  # parts of a value, and the instruction that made it or the name it stands for


class Strange(Exception):
    """A file that would take for ever, or that is none of torch; its text says why."""


def look_through(path: Path) -> None:
    """Refuse a file whose instructions are too many, or build what no state dict holds."""
    try:
        with path.open("rb") as stream:
            zipped = stream.read(4) == ZIP
            stream.seek(0)
            if zipped:
                for content in _packed(path):
                    _follow(io.BytesIO(content))
            elif tarfile.is_tarfile(path):
                raise Strange("a tar archive")
            else:
                beginning = io.BytesIO(stream.read(MOST_BYTES))
                for _ in range(OLD_FORM):
                    _follow(beginning)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as problem:
        raise Strange(str(problem) or type(problem).__name__) from problem
    except (ValueError, LookupError, TypeError) as problem:
        raise Strange("damaged or cut-off content") from problem


def _packed(path: Path) -> Iterator[bytes]:
    """Every file of instructions in the archive; torch finds its own whatever the case of its name."""
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.filename.lower().endswith(".pkl"):
                if part.file_size > MOST_BYTES:
                    raise Strange(f"{part.file_size} bytes of instructions, more than {MOST_BYTES}")
                yield archive.read(part)


def _follow(stream: IO[bytes]) -> None:
    """One pickle, with the sizes of what it would build."""
    stack: list[Cell] = []
    memo: dict[int, Cell] = {}
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
            taken = _take(stack, instruction)
            _check(name, taken)
            made = str(argument) if name == "GLOBAL" else name
            stack.extend((1 + sum(parts for parts, _ in taken), made) for _ in instruction.stack_after)


def _take(stack: list[Cell], instruction: pickletools.OpcodeInfo) -> list[Cell]:
    """What an instruction takes from the stack, the lowest first, without a mark."""
    before = instruction.stack_before
    if pickletools.markobject not in before:
        count = len(before)
        if count > len(stack):
            raise ValueError("an empty stack")
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return taken
    place = max(at for at, (_, made) in enumerate(stack) if made == MARK)
    start = place - before.index(pickletools.markobject)
    if start < 0:
        raise ValueError("an empty stack")
    taken = stack[start:place] + stack[place + 1 :]
    del stack[start:]
    return taken


def _check(name: str, taken: list[Cell]) -> None:
    if name.startswith("TUPLE") and sum(parts for parts, _ in taken) > MOST_PARTS:
        raise Strange(f"a tuple of more than {MOST_PARTS} parts")
    if name in ("SETITEM", "SETITEMS"):
        for _, made in taken[1::2]:
            if made not in HASHED:
                raise Strange("a dictionary with names that are neither text nor number")
    if name == "REDUCE" and taken[0][1] in FILLED and taken[1][1] != "EMPTY_TUPLE":
        raise Strange(f"{taken[0][1].replace(' ', '.')} that is filled as it is made")


def _whole(argument: Any) -> int:
    return int(argument)


# --- One checkpoint as arrays: .safetensors, .pt or .pth, or an .npz in the network's order; nothing in it
# is executed.
#
# Sizes are checked before anything is laid out: a tensor of one stored number may claim to be of any size.


INSIDE = ("state_dict", "model_state_dict", "model")  # where a saved dictionary may hold the weights
WRAPPED = "module."  # put before every name by DataParallel
UNNAMED = "arr_"  # put before every position by numpy.savez
AS_FLOAT = "Save the weights as float32."
STATE = "a file of tensors (torch.save(model.state_dict(), ...))"


def read_checkpoint(path: Path) -> Arrays:
    """The arrays of a checkpoint by name, or by position where they have none."""
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
            got = "NaN or infinity: the training had broken down"
            raise _bad_tensor(path, name, "finite numbers", got, "Give the checkpoint of an earlier round.")
    if all(name.startswith(WRAPPED) for name in arrays):
        arrays = {name.removeprefix(WRAPPED): value for name, value in arrays.items()}
    return arrays


def _safetensors(path: Path) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except (SafetensorError, OSError, ValueError, LookupError, RuntimeError) as problem:
        raise _bad(path, "a safetensors file", problem) from problem
    return _from_torch(path, found)


def _torch(path: Path) -> Arrays:
    """Weights in a file of torch.save; anything but tensors and plain values is refused, never executed."""
    import torch
    from torch import serialization

    _check_unpacked(path)
    try:
        look_through(path)
    except Strange as problem:
        raise _bad(path, STATE, problem) from problem
    wrong: Any = serialization.pickle.UnpicklingError  # type: ignore[attr-defined]
    damaged = (RuntimeError, EOFError, OSError, ValueError, LookupError, AttributeError, TypeError)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except wrong as problem:
        foreign = re.search(r"GLOBAL (\S{1,100})", str(problem))
        got = "something else" if foreign is None else f"{foreign[1]}, which is not loaded"
        raise _bad(path, STATE, got) from problem
    except (*damaged, AssertionError, OverflowError, MemoryError) as problem:
        short = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise _bad(path, STATE, short) from problem
    for name in INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise _bad(path, "a state dict: names and tensors", _kind(found))
    for name in found:
        if not isinstance(name, str):
            raise _bad(path, "a state dict: names and tensors", f"{name!r} in place of a name")
    return _from_torch(path, found)


def _check_unpacked(path: Path) -> None:
    """A file of torch.save is an archive, whose parts may be packed a thousandfold."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # of an older form, or damaged, which torch.load tells
    check_size(f"checkpoint {str(path)!r}, unpacked", size)


def _from_torch(path: Path, tensors: Mapping[str, Any]) -> Arrays:
    """Plain arrays of tensors; whatever is no plain tensor is refused before it is touched."""
    found: dict[str, Any] = {}
    total = 0
    for name, value in tensors.items():
        _check_plain(path, name, value)
        size = value.numel() * value.element_size()
        check_size(f"tensor {name!r} of checkpoint {str(path)!r}", size)
        total += size
    check_size(f"tensors of checkpoint {str(path)!r}", total)
    for name, value in tensors.items():
        found[name] = value.detach().resolve_neg().contiguous().numpy()
    return found


def _check_plain(path: Path, name: str, value: Any) -> None:
    import torch

    if value.is_nested or value.layout != torch.strided:
        kind = "a nested one" if value.is_nested else f"{str(value.layout).removeprefix('torch.')}"
        raise _bad_tensor(path, name, "a dense tensor", kind, "Save it dense: tensor.to_dense().")
    if value.device.type != "cpu":
        raise _bad_tensor(
            path,
            name,
            "a tensor with values",
            f"one on {value.device}",
            "Save a network that has its values.",
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
        return {str(place): np.asarray(arrays[name]) for place, name in enumerate(ordered)}
    return arrays


def _kind(found: object) -> str:
    if isinstance(found, Mapping):
        return f"a dictionary with {', '.join(str(name) for name in list(found)[:5])}"
    return type(found).__name__


def _bad(
    path: Path, expected: str, got: object, remedy: str = "Save the state dict of the network."
) -> BadInput:
    return BadInput(f"checkpoint {str(path)!r}", expected=expected, got=str(got)[:300], remedy=remedy)


def _bad_tensor(path: Path, name: str, expected: str, got: object, remedy: str) -> BadInput:
    return _bad(path, f"{expected} in tensor {name[:200]!r}", got, remedy)


NODE, RUN = "checkpoints", "1"
ROUND = "{round}"
SENT, REPLY = "global-{round}.*", "local-{round}.*"


def import_pair(
    before: Path,
    after: Path,
    out: Path,
    *,
    round: int = 1,
    examples: int | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Path:
    """A recording of one round: the model that was sent, and the one that came back."""
    _check_new(out)
    told = _checked(recipe)
    sent, reply = read_checkpoint(before), read_checkpoint(after)
    _check_alike(before, sent, after, reply)
    with _new_recording(out) as place:
        write_message(place, _said(round, sent, reply, examples, told))
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
    """A recording of all rounds in a folder; the patterns say where {round} stands in the names of files.

    Returns the rounds as the recording counts them, from 1. A round without a reply counts as a global model that was
    sent.
    """
    _check_new(out)
    told = _checked(recipe)
    first, second = _files(folder, "sent", sent), {} if reply is None else _files(folder, "reply", reply)
    _check_matched(folder, sent, first, reply, second)
    shift = 1 - min(first) if min(first) < 1 else 0
    begin = first[min(first)]
    like = read_checkpoint(begin)
    with _new_recording(out) as place:
        for number in sorted(first):
            model = read_checkpoint(first[number])
            _check_alike(begin, like, first[number], model)
            back = read_checkpoint(second[number]) if number in second else None
            if back is not None:
                _check_alike(first[number], model, second[number], back)
            write_message(place, _said(number + shift, model, back, examples, told))
    return [number + shift for number in sorted(first)]


def _check_matched(
    folder: Path, sent: str, first: dict[int, Path], reply: str | None, second: dict[int, Path]
) -> None:
    """Refuse patterns that match nothing, and replies to models that are not there."""
    if not first:
        raise BadInput(
            f"folder {str(folder)!r}",
            expected=f"files called {sent}",
            got=_names_in(folder),
            remedy='Say how they are called: --sent "round-{round}-weights.npz".',
        )
    if reply is not None and not second:
        raise BadInput(
            "--reply",
            expected=f"at least one file called {reply}",
            got=_names_in(folder),
            remedy='Say how they are called, or --reply "" where there are only models that were sent.',
        )
    lonely = sorted(set(second) - set(first))
    if lonely:
        raise BadInput(
            f"file {second[lonely[0]].name!r}",
            expected=f"the model that was sent in round {lonely[0]} ({sent})",
            got="no such file",
            remedy="Add it, or take the reply away: without the model it started from it says nothing.",
        )


def _checked(recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """The recipe, refused where a plan would refuse it."""
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
    """A folder that becomes the recording when all is written, and is gone where something fails."""
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


def _said(
    round: int, sent: Arrays, reply: Arrays | None, examples: int | None, recipe: Mapping[str, Any] | None
) -> Said:
    return Said(
        what="train",
        node=NODE,
        run=RUN,
        round=round,
        sent=sent,
        reply=reply,
        examples=examples,
        config=dict(recipe or {}),
    )


def _files(folder: Path, argument: str, pattern: str) -> dict[int, Path]:
    """The files of a pattern by their round."""
    if pattern.count(ROUND) != 1 or "/" in pattern:
        remedy = "For instance global-{round}.safetensors."
        raise BadInput(
            f"--{argument}", expected="a file name with {round} in it", got=repr(pattern), remedy=remedy
        )
    start, _, end = pattern.partition(ROUND)
    shape = re.compile(_regex(start) + r"(\d{1,9})" + _regex(end))
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = shape.fullmatch(path.name)
        if match is None:
            continue
        number = int(match.group(1))
        if number in found:
            got = f"{found[number].name} and {path.name}"
            raise BadInput(
                f"--{argument}", expected=f"one file for round {number}", got=got, remedy="Remove one."
            )
        found[number] = path
    return found


def _regex(text: str) -> str:
    """A piece of a pattern as a regular expression; only * stands for something else."""
    return ".*".join(re.escape(part) for part in text.split("*"))


def _check_alike(before: Path, sent: Arrays, after: Path, reply: Arrays) -> None:
    unnamed = [by_position(list(side)) for side in (sent, reply)]
    if unnamed[0] != unnamed[1]:
        words = {True: "by position", False: "by name"}
        raise BadInput(
            f"checkpoint {str(after)!r}",
            expected=f"arrays {words[unnamed[0]]}, as in {before.name}",
            got=f"arrays {words[unnamed[1]]}",
            remedy="Save both the same way.",
        )
    for name in {**sent, **reply}:
        there = [None if name not in side else list(side[name].shape) for side in (sent, reply)]
        if there[0] != there[1]:
            raise BadInput(
                f"checkpoint {str(after)!r}",
                expected=f"the same arrays as {before.name}: {name!r} {there[0] or 'absent'}",
                got=f"{there[1] or 'absent'}",
                remedy="Give checkpoints of the same network.",
            )
        kinds = [side[name].dtype for side in (sent, reply)]
        # Counters have no extent; an average makes fractions of them.
        if sent[name].ndim and (kinds[0].kind == "f") != (kinds[1].kind == "f"):
            raise BadInput(
                f"checkpoint {str(after)!r}",
                expected=f"{name!r} of {kinds[0]}, as in {before.name}",
                got=kinds[1],
                remedy="Give checkpoints of the same network.",
            )


def _check_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput("--out", expected="a new or empty folder", got=str(out), remedy="Choose another one.")


def _names_in(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    return (
        ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "an empty folder"
    )
