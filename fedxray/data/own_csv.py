"""A user's own CSV file: text in, a private data set or a message with line and column out."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import check_size, names, plain_name, read_bytes, shown, unknown_column
from fedxray.data.dataset import USE, Dataset, check_uses
from fedxray.data.encode import make_table
from fedxray.errors import BadInput

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
MOST_CATEGORIES = 200  # of a text column that is not listed under categorical
MOST_CLASSES = 100  # of a text target
# 27,3 or 1.234,5 or 1,234.5: a number to people, but not to float().
WITH_COMMA = re.compile(r"[+-]?((\d{1,3}([.' ]\d{3})+|\d*),\d+([eE][+-]?\d+)?|\d{1,3}(,\d{3})+(\.\d+)?)")

# float() alone would also take 1_000 and the digits of other scripts; inf is taken here and refused with its line.
NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The text of a CSV file, and the line of the file on which each row begins."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """The texts of one column."""
        index = self.header.index(name)
        return [row[index].strip() for row in self.rows]

    def where(self, row: int) -> str:
        """The line of a row as an editor counts it."""
        return f"line {self.lines[row]} of the file"

    def bad_cell(self, column: str, row: int, expected: str, got: str, remedy: str) -> BadInput:
        """The refusal of one cell, with its column and line."""
        return BadInput(f"column {shown(column)}, {self.where(row)}", expected=expected, got=got, remedy=remedy)


def own_csv(
    path: Path,
    *,
    target: str | None = None,
    sensitive: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale_target: bool | None = None,
    use: str | None = None,
) -> Dataset:
    """The table in a CSV file with a header; numbers are standardised, text becomes categories.

    `target` is predicted, `sensitive` is the column to protect, `categorical` lists columns that are categories
    although they hold numbers, `drop` those to leave out. `use` names a column with the use of each record, which is
    no feature.
    """
    cells = read_cells(path)
    as_category, dropped = names("categorical", categorical), names("drop", drop)
    for argument, listed in (("categorical", as_category), ("drop", dropped), ("use", (use,) if use else ())):
        for name in listed:
            if name not in cells.header:
                raise unknown_column(argument, name, path.name, cells.header)
    columns = [name for name in cells.header if name not in dropped and name != use]
    target = _check_columns(path.name, columns, dropped, target, sensitive)
    raw = {name: _column(cells, name, name in as_category) for name in columns}
    features = [name for name in columns if name != target]
    numbers = [name for name in features if not is_category(raw[name])]
    groups = [name for name in features if is_category(raw[name])]
    _check_width(raw, numbers, groups, as_category)
    classification = _check_target(cells, target, raw[target])
    if use is not None:
        raw[USE] = check_uses(path, use, np.array(cells.column(use)), len(cells.rows))
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


def read_cells(path: Path) -> Cells:
    """The cells of a CSV file, separated by the comma, semicolon or tab that the header uses most."""
    text = _decode(path, read_bytes(path))
    first = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    numbered: list[tuple[int, list[str]]] = []  # line of the file and cells of each row
    begins = 1
    try:
        for row in reader:
            if row:
                numbered.append((begins, row))
            begins = reader.line_num + 1
    except csv.Error as problem:
        remedy = "Check quotes and separators near that place."
        raise bad_csv(path, "a CSV file", f"{problem} on line {begins}", remedy) from problem
    if len(numbered) < 3:
        raise bad_csv(path, "a header and at least two rows", f"{len(numbered)} lines", "Check that this is the file.")
    header = [name.strip() for name in numbered[0][1]]
    if "" in header:
        got = f"column {header.index('') + 1} without one"
        remedy = "Name it or remove it; pandas writes such a column unless to_csv gets index=False."
        raise bad_csv(path, "a name for every column", got, remedy)
    check_names("column name", header)
    for line, row in numbered[1:]:
        if len(row) != len(header):
            got = f"{len(row)} on line {line} of the file"
            raise bad_csv(path, f"{len(header)} values on every line", got, "Correct that line.")
    return Cells(header=header, rows=[row for _, row in numbered[1:]], lines=[line for line, _ in numbered[1:]])


def _decode(path: Path, content: bytes) -> str:
    """The text of a file, which must be UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise bad_csv(
            path,
            "UTF-8 text",
            f"a character that is not UTF-8 on line {line}",
            "Save the file as UTF-8. In Excel: Save as, CSV UTF-8.",
        ) from problem


def check_names(what: str, found: Sequence[str]) -> None:
    """Refuse names that occur twice, are too long or cannot be printed; `what` describes them in messages."""
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise BadInput(what, expected="a different name each", got=f"{shown(name)} twice", remedy="Rename one.")
        seen.add(name)
        if len(name) > 200 or not name.isprintable():
            raise BadInput(
                what, expected="printable text of at most 200 characters", got=shown(name), remedy="Rename it."
            )


def _check_columns(
    file: str, columns: list[str], dropped: tuple[str, ...], target: str | None, sensitive: str | None
) -> str:
    """The target column, refused where it or the sensitive one is missing, dropped or the same."""
    if target is None:
        remedy = f"The columns are: {', '.join(columns[:40])}."
        raise BadInput("target", expected="the name of the column to predict", got="nothing", remedy=remedy)
    for argument, name in (("target", target), ("sensitive", sensitive)):
        if name is not None and name in dropped:
            raise BadInput(
                argument, expected="a column that is not dropped", got=shown(name), remedy="Take it out of drop."
            )
        if name is not None and name not in columns:
            raise unknown_column(argument, name, file, columns)
    if target == sensitive:
        raise BadInput(
            "sensitive", expected="a column other than the target", got=shown(target), remedy="Choose another."
        )
    if len(columns) < 2:
        raise BadInput(
            "drop", expected="at least one column beside the target", got="none", remedy="Drop fewer columns."
        )
    return target


def _column(table: Cells, name: str, as_category: bool) -> NDArray[Any]:
    """The values of one column: float64 numbers, or text where they are categories."""
    cells = table.column(name)
    for row, cell in enumerate(cells):
        if not cell or (cell.lower() in MISSING and not as_category):
            remedy = "Fill in the value, remove the line, or leave the column out with drop."
            raise table.bad_cell(name, row, "a value", shown(cell) if cell else "nothing", remedy)
    if as_category:
        return np.array(cells)
    values = as_numbers(cells)
    if values is None:
        _refuse_commas(table, name, cells)
        return np.array(cells)
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        remedy = "Correct the value or remove the line."
        raise table.bad_cell(name, int(row), "a finite number", shown(cells[row]), remedy)
    distinct = np.unique(values)
    return np.array(cells) if len(distinct) == 2 and len(set(cells)) == 2 else values


def _refuse_commas(table: Cells, name: str, cells: list[str]) -> None:
    """Refuse a column of numbers with commas or other signs, which would silently become categories."""
    odd = [row for row, cell in enumerate(cells) if as_numbers([cell]) is None]
    if all(WITH_COMMA.fullmatch(cells[row]) or _is_number_to_python(cells[row]) for row in odd):
        expected = "a decimal point and no other separator in a number"
        remedy = "Write numbers as 27.3 with the digits 0 to 9, or name the column under categorical."
        raise table.bad_cell(name, odd[0], expected, shown(cells[odd[0]]), remedy)


def _is_number_to_python(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def as_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """The cells as numbers, or None when one of them is none."""
    if not all(NUMBER.fullmatch(cell) for cell in cells):
        return None
    return np.array([float(cell) for cell in cells], dtype=np.float64)


def is_category(values: NDArray[Any]) -> bool:
    """Whether a column holds categories."""
    return bool(values.dtype.kind == "U")


def _check_width(raw: dict[str, NDArray[Any]], numbers: list[str], groups: list[str], named: Sequence[str]) -> None:
    """Refuse identifiers as categories, text that cannot be shown, and tables too wide for memory."""
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


def _check_target(table: Cells, target: str, values: NDArray[Any]) -> bool:
    """Whether the target is a class; a text target that is meant as a number is refused."""
    if not is_category(values):
        if values.min() == values.max():
            raise BadInput(f"target {shown(target)}", expected="different values", got="one", remedy="Choose another.")
        return False
    cells = [str(value) for value in values]
    distinct = sorted(set(cells))
    odd = [row for row, cell in enumerate(cells) if as_numbers([cell]) is None]
    if (0 < len(odd) <= len(cells) // 2) or len(distinct) > min(MOST_CLASSES, max(len(cells) // 2, 2)):
        row = odd[0] if odd else 0
        raise BadInput(
            f"target {shown(target)}, {table.where(row)}",
            expected="a number, or one of a few classes",
            got=shown(cells[row]),
            remedy="Correct the value, or choose a target of numbers or of few classes.",
        )
    if len(distinct) < 2:
        raise BadInput(f"target {shown(target)}", expected="different values", got="one", remedy="Choose another.")
    check_names(f"value of target {shown(target)}", distinct)
    return True


def bad_csv(path: Path, expected: str, got: object, remedy: str) -> BadInput:
    """The refusal of a file that is no table."""
    return BadInput(f"file {shown(str(path), longest=400)}", expected=expected, got=got, remedy=remedy)
