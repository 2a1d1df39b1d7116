"""The card of a prior: what it is, what it was trained on, and a hash of every record that it has seen.

A prior that has seen a client's records would show what it remembers, not what leaked; the hashes let an audit refuse
it. A record's hash is taken of its pixels as bytes, at the size of the prior's images. A mirror image tells as much as
the picture, and training may have shown it (`flip`), so records are looked up both as they are and mirrored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.files import read_object, write_whole

NAME, FORMAT = "card.json", 1
HASH_LENGTH = 32
NEEDED: Mapping[str, type] = {
    "format": int,
    "kind": str,
    "shape": list,
    "classes": list,
    "records": list,
    "weights": str,
}
REMEDY = "Train the prior anew with `fedxray train-prior`."


def record_hashes(pixels: Tensor) -> list[str]:
    """A hash of every image [n, c, h, w] in 0..1, equal for images that are equal as bytes."""
    whole = (pixels.detach().cpu() * 255).round().clamp(0, 255).to(torch.uint8).contiguous()
    shape = str(tuple(whole.shape[1:])).encode()
    return [hashlib.sha256(shape + one.numpy().tobytes()).hexdigest()[:HASH_LENGTH] for one in whole]


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Put the card beside the weights."""
    text = json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False) + "\n"
    write_whole(folder / NAME, text.encode("ascii"), "card")


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a folder, refused where something is missing or from a later version."""
    found = read_object(folder / NAME, remedy=REMEDY)
    for name, kind in NEEDED.items():
        if not isinstance(found.get(name), kind):
            raise BadInput(
                f"{folder / NAME}: {name}", expected=kind.__name__, got=repr(found.get(name)), remedy=REMEDY
            )
    if found["format"] != FORMAT:
        remedy = "A newer fedxray wrote it: upgrade fedxray to read it."
        raise BadInput(f"{folder / NAME}: format", expected=str(FORMAT), got=found["format"], remedy=remedy)
    return found


def known_among(seen: Iterable[str], pixels: Tensor) -> Tensor:
    """Which of these images [n, c, h, w] in 0..1 are among the hashes, as they are or mirrored; bool [n]."""
    known = set(seen)
    both = zip(record_hashes(pixels), record_hashes(pixels.flip(3)), strict=True) if known else ()
    found = [straight in known or mirrored in known for straight, mirrored in both]
    return torch.tensor(found or [False] * len(pixels), dtype=torch.bool)


def check_overlap(argument: str, seen: Iterable[str], pixels: Tensor, whose: str) -> None:
    """Refuse a prior that was trained on any of these images [n, c, h, w] in 0..1, or on a mirror image of one."""
    shared = int(known_among(seen, pixels).sum())
    if shared:
        raise BadInput(
            argument,
            expected="a prior that has seen no record of an audited client",
            got=f"one that was trained on {shared} of the {len(pixels)} records of {whose}, mirror images included",
            remedy="Train one on other images; `fedxray train-prior --plan` leaves out every client's records.",
        )
