"""What a defence promises each client: reckoned once per run and kept beside it, anew where more rounds were spent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedxray.audit import results
from fedxray.errors import BadInput
from fedxray.federation.setting import Federation, rounds_worked
from fedxray.files import read_json

PRIVACY = "privacy.json"
REMEDY = "Remove the folder of this run and go on with --resume, or choose another --out."

Told = dict[str, Any]  # epsilon, delta, noise_multiplier, rate, steps, accountant, note, rounds


def promised(federation: Federation, client: int, rounds: int) -> Told | None:
    """The promise to the records of one client after so many rounds of work; None where none is made."""
    privacy = federation.defence.seams(federation.work(client)).privacy
    return None if privacy is None else {**asdict(privacy(rounds)), "rounds": rounds}


def write_promises(folder: Path, federation: Federation, seed: int) -> None:
    """Keep what is promised to every client after the rounds it took part in, if anything is."""
    rounds = rounds_worked(federation, seed)
    found = [promised(federation, client, worked) for client, worked in enumerate(rounds)]
    if any(told is not None for told in found):
        (folder / PRIVACY).write_text(json.dumps(found, allow_nan=False))


def promise_kept(folder: Path, federation: Federation, client: int | None, rounds_spent: int) -> Told | None:
    """What is promised to a client in a case: every executed step counts, those for a tampering server too.

    Where a case is about everyone it is the weakest promise that any of them was given.
    """
    if client is None:
        return worst_promise([folder])
    kept = _read(folder)
    told = kept[client] if client < len(kept) else None
    if told is None or not rounds_spent:
        return told
    return promised(federation, client, told["rounds"] + rounds_spent)


def worst_promise(folders: Sequence[Path]) -> Told | None:
    """The weakest promise over all clients of these runs: the largest epsilon, or none at all."""
    found = [told for folder in folders for told in _read(folder)]
    known = [told for told in found if told is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda told: (told["epsilon"] is None, told["epsilon"] or 0.0))


def privacy_words(told: Mapping[str, Any]) -> str:
    """Delta and what the number rests on, beside an epsilon."""
    parts = [f"delta {told['delta']:g}", f"accountant {told['accountant']}", told["note"]]
    return ", ".join(part for part in parts if part)


def _read(folder: Path) -> list[Told | None]:
    path = folder / PRIVACY
    if not path.is_file():
        return []
    found = read_json(path, remedy=REMEDY)
    if not isinstance(found, list):
        raise BadInput(str(path), expected="a list", got=type(found).__name__, remedy=REMEDY)
    for told in found:
        if told is not None:
            results.check_part(told, "privacy", path, REMEDY)
    return found
