"""Recordings from saved models: two checkpoints of one round, or a folder with files for every round."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedxray.audit.plan.keys import values_of
from fedxray.audit.plan.parts import FederationPart
from fedxray.errors import BadInput
from fedxray.federation.recording.fitting import by_position
from fedxray.federation.recording.form import ARRAYS, HEAD, MESSAGES, Arrays, Said
from fedxray.federation.recording.writing import open_folder, write_message
from fedxray.files import TEMPORARY
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
