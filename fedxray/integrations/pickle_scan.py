"""Looks through the instructions of a .pt file before torch reads it; nothing is carried out.

Reading weights only executes nothing foreign, yet it may never end: forty tuples, each holding the one before it twice,
take an hour to be hashed as a name. So the instructions are followed here with sizes in place of values, where every
object that is held twice counts twice.
"""

from __future__ import annotations

import io
import pickletools
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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
