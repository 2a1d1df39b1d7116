"""Recordings from saved models: two checkpoints of one round, or a folder with files for every round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput
from fedxray.federation.recording.form import Arrays, Said
from fedxray.federation.recording.writing import open_folder, write_message
from fedxray.integrations.checkpoint_files import read_checkpoint

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
    sent, reply = read_checkpoint(before), read_checkpoint(after)
    _check_alike(before, sent, after, reply)
    open_folder(out, "checkpoints")
    write_message(out, _said(round, sent, reply, examples, recipe))
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
    first, second = _files(folder, "sent", sent), {} if reply is None else _files(folder, "reply", reply)
    if not first:
        raise BadInput(
            f"folder {str(folder)!r}",
            expected=f"files called {sent}",
            got=_names_in(folder),
            remedy='Say how they are called: --sent "round-{round}-weights.npz".',
        )
    lonely = sorted(set(second) - set(first))
    if lonely:
        raise BadInput(
            f"file {second[lonely[0]].name!r}",
            expected=f"the model that was sent in round {lonely[0]} ({sent})",
            got="no such file",
            remedy="Add it, or take the reply away: without the model it started from it says nothing.",
        )
    shift = 1 - min(first) if min(first) < 1 else 0
    open_folder(out, "checkpoints")
    for number in sorted(first):
        model = read_checkpoint(first[number])
        back = read_checkpoint(second[number]) if number in second else None
        if back is not None:
            _check_alike(first[number], model, second[number], back)
        write_message(out, _said(number + shift, model, back, examples, recipe))
    return [number + shift for number in sorted(first)]


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
    for name in {**sent, **reply}:
        there = [None if name not in side else list(side[name].shape) for side in (sent, reply)]
        if there[0] != there[1]:
            raise BadInput(
                f"checkpoint {str(after)!r}",
                expected=f"the same arrays as {before.name}: {name!r} {there[0] or 'absent'}",
                got=f"{there[1] or 'absent'}",
                remedy="Give two checkpoints of the same network.",
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
