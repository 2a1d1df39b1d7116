"""A user's own CSV file: text in, a private data set or a message with row and column out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import names, plain_name, shown
from fedxray.data.columns import make_table
from fedxray.data.limits import check_size, read_bytes
from fedxray.data.space import Dataset
from fedxray.errors import BadInput, unknown_name

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
MOST_CATEGORIES = 200  # of a text column that was not named under categorical
MOST_CLASSES = 100  # of a text target


def own_csv(
    path: Path,
    *,
    target: str | None = None,
    sensitive: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale_target: bool | None = None,
) -> Dataset:
    """The table in a CSV file with a header; numbers are standardised, text becomes categories."""
    header, rows = read_rows(path)
    as_category, dropped = names("categorical", categorical), names("drop", drop)
    for argument, listed in (("categorical", as_category), ("drop", dropped)):
        for name in listed:
            if name not in header:
                raise unknown_name(argument, name, header)
    kept = [name for name in header if name not in dropped]
    target = _check_columns(kept, dropped, target, sensitive)
    raw = {name: _column(rows, header.index(name), name, name in as_category) for name in kept}
    features = [name for name in kept if name != target]
    numbers = [name for name in features if not is_category(raw[name])]
    groups = [name for name in features if is_category(raw[name])]
    _check_width(raw, numbers, groups, as_category)
    classification = _check_target(rows, header.index(target), target, raw[target])
    return make_table(
        plain_name(path.name),
        raw,
        target=target,
        classification=classification,
        continuous=numbers,
        categorical=groups,
        sensitive=sensitive,
        scale_target=bool(scale_target) if classification else scale_target is None or scale_target,
        private=True,
        note="A user's own table.",
    )


def read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, separated by the comma, semicolon or tab that the header uses most."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise bad_csv(
            path, "UTF-8 text", f"byte {problem.start} is not UTF-8", "Save the file as UTF-8."
        ) from problem
    first = text.split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = [
            line
            for line in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            if line
        ]
    except csv.Error as problem:
        raise bad_csv(
            path, "a CSV file", problem, "Check quotes and separators near that place."
        ) from problem
    if len(lines) < 3:
        raise bad_csv(
            path, "a header and at least two rows", f"{len(lines)} lines", "Check that this is the file."
        )
    header = [name.strip() for name in lines[0]]
    check_names("column name", header)
    for place, line in enumerate(lines[1:], start=1):
        if len(line) != len(header):
            got = f"row {place} with {len(line)} values"
            raise bad_csv(path, f"{len(header)} values in every row", got, "Correct that row.")
    return header, lines[1:]


def check_names(what: str, found: Sequence[str]) -> None:
    """Refuse names that stand twice, are too long or hold characters that cannot be printed."""
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise BadInput(
                what, expected="a different name each", got=f"{shown(name)} twice", remedy="Rename one."
            )
        seen.add(name)
        if len(name) > 200 or not name.isprintable():
            raise BadInput(
                what,
                expected="printable text of at most 200 characters",
                got=shown(name),
                remedy="Rename it.",
            )


def _check_columns(
    kept: list[str], dropped: tuple[str, ...], target: str | None, sensitive: str | None
) -> str:
    if target is None:
        raise BadInput(
            "target",
            expected="the name of the column to predict",
            got="nothing",
            remedy=f"The columns are: {', '.join(kept[:40])}.",
        )
    for argument, name in (("target", target), ("sensitive", sensitive)):
        if name is not None and name in dropped:
            raise BadInput(
                argument, expected="a column that is kept", got=shown(name), remedy="Take it out of drop."
            )
        if name is not None and name not in kept:
            raise unknown_name(argument, name, kept)
    if target == sensitive:
        raise BadInput(
            "sensitive",
            expected="a column other than the target",
            got=shown(target),
            remedy="Choose another.",
        )
    if len(kept) < 2:
        raise BadInput(
            "drop", expected="at least one column beside the target", got="none", remedy="Drop fewer columns."
        )
    return target


def _column(rows: list[list[str]], place: int, name: str, as_category: bool) -> NDArray[Any]:
    """The values of one column: float64 numbers, or text where they are categories."""
    cells = [row[place].strip() for row in rows]
    for row, cell in enumerate(cells, start=1):
        if not cell or (cell.lower() in MISSING and not as_category):
            raise BadInput(
                f"column {shown(name)}, row {row}",
                expected="a value",
                got=shown(cell) if cell else "nothing",
                remedy="Fill in the value, remove the row, or leave the column out with drop.",
            )
    values = None if as_category else as_numbers(cells)
    if values is None:
        return np.array(cells)
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        raise BadInput(
            f"column {shown(name)}, row {row + 1}",
            expected="a finite number",
            got=shown(cells[row]),
            remedy="Correct the value or remove the row.",
        )
    distinct = np.unique(values)
    return np.array(cells) if len(distinct) == 2 and len(set(cells)) == 2 else values


def as_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """The cells as numbers, or None when one of them is none."""
    try:
        return np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def is_category(values: NDArray[Any]) -> bool:
    """Whether a column holds categories."""
    return bool(values.dtype.kind == "U")


def _check_width(
    raw: dict[str, NDArray[Any]], numbers: list[str], groups: list[str], named: Sequence[str]
) -> None:
    """Refuse identifiers taken for categories, text that cannot be shown, and tables too wide to hold."""
    width = len(numbers)
    for name in groups:
        values = np.unique(raw[name])
        if len(values) > MOST_CATEGORIES and name not in named:
            raise BadInput(
                f"column {shown(name)}",
                expected=f"numbers, or at most {MOST_CATEGORIES} different texts",
                got=f"{len(values)} different texts such as {shown(str(values[0]))}",
                remedy="Leave it out with drop if it is an identifier, or name it under categorical.",
            )
        check_names(f"value of column {shown(name)}", [str(value) for value in values])
        width += max(len(values) - 1, 1)
        check_size("encoded table", 4 * width * len(raw[name]))


def _check_target(rows: list[list[str]], place: int, target: str, values: NDArray[Any]) -> bool:
    """Whether the target is a class; a text target that is meant as a number is refused."""
    if not is_category(values):
        if values.min() == values.max():
            raise BadInput(
                f"target {shown(target)}", expected="different values", got="one", remedy="Choose another."
            )
        return False
    cells = [str(value) for value in values]
    distinct = sorted(set(cells))
    odd = [row for row, cell in enumerate(cells, start=1) if as_numbers([cell]) is None]
    if (0 < len(odd) <= len(cells) // 2) or len(distinct) > min(MOST_CLASSES, max(len(cells) // 2, 2)):
        row = odd[0] if odd else 1
        raise BadInput(
            f"target {shown(target)}, row {row}",
            expected="a number, or one of a few classes",
            got=shown(rows[row - 1][place]),
            remedy="Correct the value, or choose a target of numbers or of few classes.",
        )
    if len(distinct) < 2:
        raise BadInput(
            f"target {shown(target)}", expected="different values", got="one", remedy="Choose another."
        )
    check_names(f"value of target {shown(target)}", distinct)
    return True


def bad_csv(path: Path, expected: str, got: object, remedy: str) -> BadInput:
    """The refusal of a file that is no table."""
    return BadInput(f"file {shown(str(path))}", expected=expected, got=got, remedy=remedy)
