"""FEMNIST as LEAF writes it: JSON files of writers, which a user makes with LEAF's own script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import shown, whole_number
from fedxray.data.handwriting import FEMNIST_MEAN, FEMNIST_STD
from fedxray.data.images import make_images
from fedxray.data.limits import check_size, read_bytes
from fedxray.data.space import Dataset
from fedxray.data.store import folders
from fedxray.errors import BadInput

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HOW = (
    "Make it with LEAF (github.com/TalwalkarLab/leaf): in data/femnist run "
    "`./preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then copy data/train to femnist/train in the folder "
    "that FEDXRAY_DATA names; or use femnist-like."
)


def femnist(*, writers: int = 0, size: object = None, normalise: bool = True) -> Dataset:
    """All samples in femnist/train/*.json (or femnist/*.json), or those of the first `writers` writers."""
    whole_number("writers", writers, least=0)
    x: list[NDArray[np.float32]] = []
    y: list[NDArray[np.int64]] = []
    owner: list[str] = []
    for file in _files():
        for writer, samples in _writers(file):
            if writers and len(x) == writers:
                break
            pixels, labels = _samples(file, writer, samples)
            x.append(pixels)
            y.append(labels)
            owner.extend([writer] * len(labels))
    if not x:
        raise _bad(_files()[0], "at least one writer", "none")
    return make_images(
        "femnist",
        np.concatenate(x),
        np.concatenate(y),
        classes=tuple(CHARACTERS),
        size=size,
        mean=FEMNIST_MEAN if normalise else (),
        std=FEMNIST_STD if normalise else (),
        owner=np.array(owner),
        note="FEMNIST (Caldas et al. 2018), writers are the owners.",
    )


def is_there() -> bool:
    """Whether the user has made FEMNIST."""
    return _found() is not None


def _found() -> tuple[Path, list[Path]] | None:
    """The folder that holds LEAF's JSON files, and the files."""
    for folder in folders():
        for place in (folder / "femnist" / "train", folder / "femnist"):
            files = sorted(place.glob("*.json"))
            if files:
                return place, files
    return None


def _files() -> list[Path]:
    found = _found()
    if found is not None:
        check_size(f"folder {shown(str(found[0]))}", sum(file.stat().st_size for file in found[1]))
        return found[1]
    places = " or ".join(str(folder / "femnist") for folder in folders())
    raise BadInput("data set femnist", expected="LEAF's JSON files", got=f"none in {places}", remedy=HOW)


def _writers(file: Path) -> list[tuple[str, Any]]:
    """Writers of one file in its own order."""
    try:
        content = json.loads(read_bytes(file))
        return [(str(writer), content["user_data"][writer]) for writer in content["users"]]
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise _bad(file, "users and user_data", f"{type(problem).__name__}: {problem}") from problem


def _samples(file: Path, writer: str, samples: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images [n, 28, 28] in 0..1 and labels [n] of one writer."""
    try:
        pixels = np.asarray(samples["x"], dtype=np.float32).reshape(-1, 28, 28)
        labels = np.asarray(samples["y"], dtype=np.int64)
    except (ValueError, TypeError, KeyError, OverflowError) as problem:
        raise _bad(file, "784 numbers per sample", f"{type(problem).__name__}: {problem}") from problem
    inside = np.isfinite(pixels).all() and pixels.min(initial=0) >= 0 and pixels.max(initial=0) <= 1
    if (
        len(labels) == 0
        or labels.shape != (len(pixels),)
        or labels.min() < 0
        or labels.max() > 61
        or not inside
    ):
        raise _bad(
            file, "labels 0..61 and pixels 0..1, one label per image", f"other values for {shown(writer)}"
        )
    return pixels, labels


def _bad(file: Path, expected: str, got: str) -> BadInput:
    return BadInput(f"file {shown(str(file))}", expected=expected, got=got, remedy=HOW)
