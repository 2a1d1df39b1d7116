"""Where data files are: the folder named by FEDXRAY_DATA, then the cache that `fedxray data get` fills."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.limits import read_bytes
from fedxray.data.own_npz import read_arrays
from fedxray.errors import BadInput


def cache_folder() -> Path:
    """The folder for downloads: FEDXRAY_CACHE, or ~/.cache/fedxray."""
    named = os.environ.get("FEDXRAY_CACHE", "").strip()
    return Path(os.path.expanduser(named)) if named else Path.home() / ".cache" / "fedxray"


def folders() -> list[Path]:
    """The folders to look into, in this order."""
    named = os.environ.get("FEDXRAY_DATA", "").strip()
    return [*([Path(os.path.expanduser(named))] if named else []), cache_folder()]


def locate(name: str, relative: str, *, remedy: str = "") -> Path:
    """The first place that holds a file of a data set, packed as .gz or not."""
    for folder in folders():
        for spelled in (relative, relative.removesuffix(".gz")):
            if (folder / spelled).exists():
                return folder / spelled
    raise BadInput(
        f"data set {name}",
        expected=f"the file {relative}",
        got=f"none in {' or '.join(str(folder) for folder in folders())}",
        remedy=remedy or f"Run `fedxray data get {name}`, or set FEDXRAY_DATA to a folder that has it.",
    )


def read_table(name: str, relative: str, *, remedy: str = "") -> dict[str, NDArray[Any]]:
    """The columns of a CSV file with a header, each as text [n]."""
    content = read_bytes(locate(name, relative, remedy=remedy))
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode(), newline="")) if line]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise wrong_content(name, f"a CSV file {relative}", problem) from problem
    return as_columns(name, lines[0] if lines else (), lines[1:])


def as_columns(name: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, NDArray[Any]]:
    """Rows of text as columns of text, each [n]."""
    if not lines or any(len(line) != len(header) for line in lines):
        raise wrong_content(name, f"{len(header)} values in every row", "a shorter or longer row")
    return {column: np.array(values) for column, values in zip(header, zip(*lines, strict=True), strict=True)}


def read_named_arrays(name: str, relative: str, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file, which must hold the needed ones."""
    arrays = read_arrays(locate(name, relative))
    for key in needed:
        if key not in arrays:
            raise wrong_content(name, f"an array {key} in {relative}", f"only {', '.join(sorted(arrays))}")
    return arrays


def wrong_content(name: str, expected: str, got: object) -> BadInput:
    """The refusal of a file of the catalogue that is not what it should be."""
    remedy = f"Delete the file and run `fedxray data get {name}`."
    return BadInput(f"data set {name}", expected=expected, got=got, remedy=remedy)
