"""A user's own CSV file: text in, a private data set or a message with line and column out."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import check_size, names, plain_name, read_bytes, shown, unknown_column
from fedxray.data.dataset import USE, Dataset, check_uses
from fedxray.data.encode import MOST_COLUMNS, distinct, make_table
from fedxray.data.subjects import number_subjects
from fedxray.errors import BadInput, check_one_of, some

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
FILLED = "missing"  # the category of missing values
HANDLINGS = ("drop-rows", "median", "category")  # of missing values
MOST_LISTED = 12  # columns in a message
MOST_CLASSES = 100  # of a text target
# 27,3 or 1.234,5 or 1,234.5: a number to people, but not to float().
WITH_COMMA = re.compile(r"[+-]?((\d{1,3}([.' ]\d{3})+|\d*),\d+([eE][+-]?\d+)?|\d{1,3}(,\d{3})+(\.\d+)?)")

# float() alone would also take 1_000 and the digits of other scripts; inf is taken here and refused with its line.
NUMBER = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The text of a CSV file by column, and the line of the file on which each row begins."""

    columns: dict[str, list[str]]
    lines: list[int]

    def where(self, row: int) -> str:
        """The line of a row as an editor counts it."""
        return f"line {self.lines[row]} of the file"

    def bad_cell(self, column: str, row: int, expected: str, got: str, remedy: str) -> BadInput:
        """The refusal of one cell, with its column and line."""
        return BadInput(f"column {shown(column)}, {self.where(row)}", expected=expected, got=got, remedy=remedy)

    def without(self, rows: Set[int]) -> Cells:
        """The table without some rows."""
        stay = [row for row in range(len(self.lines)) if row not in rows]
        columns = {name: [cells[row] for row in stay] for name, cells in self.columns.items()}
        return Cells(columns=columns, lines=[self.lines[row] for row in stay])


def own_csv(
    path: Path,
    *,
    target: str | None = None,
    sensitive: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    missing: str | None = None,
    scale_target: bool | None = None,
    scale_categories: bool = True,
    use: str | None = None,
    subject: str | None = None,
) -> Dataset:
    """The table in a CSV file with a header; numbers are standardised, text becomes categories.

    `target` is predicted, `sensitive` is the column to protect, `categorical` lists columns that are categories
    although they hold numbers, `drop` those to leave out, `keep` those to learn from although they look like
    identifiers or dates. `missing` is the treatment of missing values (`HANDLINGS`). With `scale_categories = false`
    categories stay 0 and 1. `use` names a column with the use of each record, `subject` one that identifies its person;
    neither is a feature.
    """
    cells = read_cells(path)
    given = {"categorical": categorical, "drop": drop, "keep": keep}
    listed = {argument: names(argument, found) for argument, found in given.items()}
    apart = {"use": use, "subject": subject}  # columns that are no features
    for argument, found in (*listed.items(), *((key, (name,)) for key, name in apart.items() if name is not None)):
        for name in found:
            if name not in cells.columns:
                raise unknown_column(argument, name, path.name, list(cells.columns))
    as_category, dropped = frozenset(listed["categorical"]), frozenset(listed["drop"])
    columns = [name for name in cells.columns if name not in dropped and name not in apart.values()]
    _check_subject(cells, subject, (target, sensitive))
    target = _check_columns(path.name, columns, dropped, target, sensitive)
    cells, gaps, remark = _handle_missing(path, cells, columns, missing, as_category, (target, sensitive))
    read = {name: _column(cells, name, gaps.get(name, frozenset()), name in as_category, missing) for name in columns}
    kept = _check_features({name: read[name].no_feature for name in columns if name != target}, listed["keep"], path)
    raw = {name: column.values for name, column in read.items()}
    numbers = [name for name in columns if name != target and not is_category(raw[name])]
    groups = [name for name in columns if name != target and is_category(raw[name])]
    _check_width(raw, numbers, groups)
    classification = _check_target(cells, target, raw[target])
    if use is not None:
        raw[USE] = check_uses(path, use, np.array(cells.columns[use]), len(cells.lines))
    table = make_table(
        plain_name(path.name),
        raw,
        target=target,
        classification=classification,
        continuous=numbers,
        categorical=groups,
        sensitive=sensitive,
        unscaled=_unscaled(scale_categories, groups),
        scale_target=bool(scale_target) if classification else scale_target is None or scale_target,
        private=True,
        note="A user's own table.",
    )
    people = None if subject is None else number_subjects(np.array(cells.columns[subject]))
    return replace(table, remarks=(*remark, *kept), subject=people)


def _unscaled(scale_categories: bool, groups: list[str]) -> list[str]:
    """The categories that stay 0 and 1."""
    if scale_categories not in (True, False):
        remedy = "Leave it out, or state false."
        raise BadInput("scale_categories", expected="true or false", got=shown(scale_categories), remedy=remedy)
    return [] if scale_categories else groups


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
    if len(header) > MOST_COLUMNS:
        raise bad_csv(path, f"at most {MOST_COLUMNS:,} columns", f"{len(header):,}", "Leave some out.")
    check_names("column name", header)
    for line, row in numbered[1:]:
        if len(row) != len(header):
            got = f"{len(row)} on line {line} of the file"
            raise bad_csv(path, f"{len(header)} values on every line", got, "Correct that line.")
    by_column = zip(*(row for _, row in numbered[1:]), strict=True)
    columns = {name: [cell.strip() for cell in found] for name, found in zip(header, by_column, strict=True)}
    return Cells(columns=columns, lines=[line for line, _ in numbered[1:]])


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


def _check_columns(file: str, columns: list[str], dropped: Set[str], target: str | None, sensitive: str | None) -> str:
    """The target column, refused where it or the sensitive one is missing, dropped or the same."""
    if target is None:
        remedy = f"The columns are: {some(columns, 40)}."
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


def _check_subject(cells: Cells, subject: str | None, learned: Sequence[str | None]) -> None:
    """Refuse a record without a person, and a column that is the target or sensitive."""
    if subject is None:
        return
    if subject in learned:
        expected = "a column that is neither the target nor sensitive"
        raise BadInput("subject", expected=expected, got=shown(subject), remedy="Choose another.")
    for row in sorted(_gaps(cells.columns[subject], as_category=False))[:1]:
        remedy = "Fill it in, or remove the line."
        raise cells.bad_cell(subject, row, "a person for every record", "no value", remedy)


def _handle_missing(
    path: Path,
    cells: Cells,
    columns: list[str],
    missing: str | None,
    as_category: Set[str],
    never: Sequence[str | None],
) -> tuple[Cells, dict[str, frozenset[int]], tuple[str, ...]]:
    """The table, the rows of its missing values by column, and a remark on how they are treated.

    The columns `never` filled are the target and the sensitive one: an invented value would be scored as the truth.
    """
    if missing is not None:
        check_one_of("missing", missing, HANDLINGS)
    gaps = {name: _gaps(cells.columns[name], name in as_category) for name in columns}
    gaps = {name: rows for name, rows in gaps.items() if rows}
    if not gaps:
        return cells, {}, ()
    total = sum(len(rows) for rows in gaps.values())
    counts = some([f"{len(rows):,} in {shown(name)}" for name, rows in gaps.items()], MOST_LISTED)
    affected = frozenset().union(*gaps.values())
    if missing == "drop-rows":
        if len(cells.lines) - len(affected) < 2:
            remedy = "Leave such columns out with drop."
            raise bad_csv(path, "at least two rows without a missing value", counts, remedy)
        remark = f"{len(affected):,} rows with missing values are left out: {counts}"
        return cells.without(affected), {}, (remark,)
    first = cells.where(min(affected))
    if missing is None:
        remedy = f"Fill them in, leave columns out with drop, or set missing to {', '.join(map(repr, HANDLINGS))}"
        remedy += f" (rows without any: {len(cells.lines) - len(affected):,} of {len(cells.lines):,})."
        raise bad_csv(path, "a value in every cell", f"{total:,} missing: {counts}; the first on {first}", remedy)
    for name in (name for name in never if name in gaps):
        expected = f"values in {shown(name)}, which is the target or sensitive and never filled"
        raise BadInput("missing", expected=expected, got=counts, remedy='Set missing = "drop-rows".')
    return cells, gaps, (f"{total:,} missing values are filled ({missing}): {counts}",)


def _gaps(cells: list[str], as_category: bool) -> frozenset[int]:
    """The rows of missing values; a category may be called NA."""
    return frozenset(row for row, cell in enumerate(cells) if not cell or (cell.lower() in MISSING and not as_category))


@dataclass(frozen=True, kw_only=True)
class _Column:
    """The values of one column: float64 numbers, or text where they are categories."""

    values: NDArray[Any]
    no_feature: str  # why it should not be learned from; empty where it may be


def _column(table: Cells, name: str, gaps: Set[int], as_category: bool, missing: str | None) -> _Column:
    """One column, whose missing values become the median of its numbers or a category of their own."""
    every = table.columns[name]
    cells = [cell for row, cell in enumerate(every) if row not in gaps] if gaps else every
    if not cells:
        raise BadInput(f"column {shown(name)}", expected="values", got="none", remedy="Leave it out with drop.")
    values = as_numbers(cells)
    reason = why_no_feature(name, cells, values, category=as_category)
    if values is None and not as_category:
        _refuse_commas(table, name, every)
    elif values is not None and not as_category:
        for row in np.flatnonzero(~np.isfinite(values))[:1]:
            remedy = "Correct the value or remove the line."
            raise table.bad_cell(name, every.index(cells[row]), "a finite number", shown(cells[row]), remedy)
        binary = len(np.unique(values)) == 2 and len(set(cells)) == 2
        if not binary:
            return _Column(values=_with_median(name, values, gaps, len(every), missing), no_feature=reason)
    filled = [FILLED if row in gaps else cell for row, cell in enumerate(every)] if gaps else every
    return _Column(values=np.array(filled), no_feature=reason)


def _with_median(
    name: str, values: NDArray[np.float64], gaps: Set[int], rows: int, missing: str | None
) -> NDArray[np.float64]:
    """Numbers [rows] of a column, those of missing rows the median of the others."""
    if not gaps:
        return values
    if missing == "category":
        expected, remedy = f"categories, as {shown(name)} holds numbers", 'Set missing = "median" or "drop-rows".'
        raise BadInput("missing", expected=expected, got=f"{len(gaps):,} missing values in it", remedy=remedy)
    filled = np.full(rows, np.median(values))
    filled[[row for row in range(rows) if row not in gaps]] = values
    return filled


def _check_features(reasons: dict[str, str], kept: Sequence[str], path: Path) -> tuple[str, ...]:
    """Remarks on the kept columns that look like no feature; refused where one is not kept."""
    marked = {name: f"{shown(name)} ({reason})" for name, reason in reasons.items() if reason}
    refused = [name for name in marked if name not in kept]
    if refused:
        quoted = some([f'"{name}"' for name in refused], MOST_LISTED)
        raise bad_csv(
            path,
            "features, not identifiers, dates or texts that hardly repeat",
            some([marked[name] for name in refused], MOST_LISTED),
            f"Leave them out with drop = [{quoted}], or learn from them with keep = [...].",
        )
    return tuple(f"! kept as a feature: {text}" for text in marked.values())


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


def _check_width(raw: dict[str, NDArray[Any]], numbers: list[str], groups: list[str]) -> None:
    """Refuse text that cannot be shown, and tables too wide for memory."""
    width = len(numbers)
    for name in groups:
        values = distinct(raw[name])[0]
        check_names(f"value of column {shown(name)}", values)
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


# Columns that should not be learned from: identifiers, dates and durations, texts that hardly repeat. A measurement
# whose values all differ is a number and stays a feature: numbers count as identifiers only where they are row numbers
# or spread like random codes, or where the column's name says so.

FEWEST_ROWS = 20  # of a table: in a smaller one all values may differ by chance
MOST_CATEGORIES = 200  # different texts of a column
FEWEST_DURATIONS = 11  # different ones of a number and a unit: 30s, 40s and 50s may be age groups
FEWEST_CODES = 100  # rows in which random codes can be distinguished from amounts
MOST_DIGITS = 300  # of a number that a float can hold
FEWEST_DIGITS = 5  # of a code
EPOCH = (1e9, 4.1e9)  # seconds since 1970 of the years 2001 and 2099
ID_WORDS = frozenset({"id", "ids", "uuid", "guid", "mrn", "ssn", "rowid", "rownum", "unnamed"})

_YEAR, _MONTH, _DAY = r"(1[89]|20)\d\d", r"(0?[1-9]|1[0-2])", r"(0?[1-9]|[12]\d|3[01])"
_TIME = r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s?([ap]m)?\s?(z|[+-]\d\d:?\d\d)?"
_NAMED = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = rf"""{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}|{_DAY}[-/.]{_MONTH}[-/.]({_YEAR}|\d\d)|{_MONTH}[-/]{_DAY}[-/]({_YEAR}|\d\d)
|{_DAY}[\s-]{_NAMED}[\s-](\d\d)?\d\d|{_NAMED}\s{_DAY},?\s\d{{4}}""".replace("\n", "")
_UNITS = r"(days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"  # no text in two ways: it would double the work
DATE = re.compile(rf"({_DATE})([t\s]\s?{_TIME})?", re.ASCII | re.IGNORECASE)
WHOLE_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", re.ASCII)
_LENGTH = rf"\d+([.,]\d+)?\s?{_UNITS}"
LENGTH = re.compile(_LENGTH, re.ASCII | re.IGNORECASE)
DURATION = re.compile(
    rf"{_TIME}|({_LENGTH}[\s,]*)+({_TIME})?|p(?=[\dt])(\d+[ymwd])*(t(\d+([.,]\d+)?[hms])+)?", re.ASCII | re.IGNORECASE
)


def why_no_feature(name: str, cells: Sequence[str], numbers: NDArray[np.float64] | None, *, category: bool) -> str:
    """The reason why a column is no feature, empty where it may be one.

    `cells` are its texts without the missing ones, `numbers` the same as numbers, None where one is none; `category`
    says that the user called it a category, which may have many texts or look like durations.
    """
    texts = set(cells)
    rows, different = len(cells), len(texts)
    if cells and numbers is None and all(DATE.fullmatch(text) for text in texts):
        return "dates"
    if cells and numbers is None and not category and _are_durations(texts):
        return "times or durations"
    if cells and all(WHOLE_DATE.fullmatch(text) for text in texts):
        return "dates"
    if rows >= FEWEST_ROWS:
        many = f"all {rows:,} values different" if different == rows else f"{different:,} values in {rows:,} rows"
        if numbers is None and different > rows / 2:
            return many
        if _says_id(name) and different > min(rows / 2, MOST_CATEGORIES) and not _has_fractions(numbers):
            return f"{many}, and its name"
        if numbers is not None and different == rows and _is_row_number(numbers):
            return "row numbers"
        if numbers is not None and different > min(rows / 2, MOST_CATEGORIES) and _are_times(numbers):
            return "Unix times"
        if numbers is not None and rows >= FEWEST_CODES and different >= 0.9 * rows and _are_codes(cells, numbers):
            return f"{many}, like random codes"
    too_many = numbers is None and not category and different > MOST_CATEGORIES
    return f"{different:,} different texts" if too_many else ""


def _are_durations(texts: Set[str]) -> bool:
    few = len(texts) < FEWEST_DURATIONS and all(LENGTH.fullmatch(text) for text in texts)
    return not few and all(DURATION.fullmatch(text) for text in texts)


def _says_id(name: str) -> bool:
    """Whether one of the words of a name means an identifier: patient_id, PassengerId, Unnamed: 0."""
    words = re.findall("[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return words == ["index"] or not ID_WORDS.isdisjoint(words)


def _has_fractions(numbers: NDArray[np.float64] | None) -> bool:
    return numbers is not None and bool((numbers != np.floor(numbers)).any())


def _is_row_number(numbers: NDArray[np.float64]) -> bool:
    """Whether different numbers are n consecutive whole ones, in any order."""
    return not _has_fractions(numbers) and float(numbers.max() - numbers.min()) == len(numbers) - 1


def _are_times(numbers: NDArray[np.float64]) -> bool:
    """Whether all numbers are seconds or milliseconds since 1970, of this century."""
    low, high = EPOCH
    return any(bool(((low * unit <= numbers) & (numbers <= high * unit)).all()) for unit in (1, 1000))


def _are_codes(cells: Sequence[str], numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers of equally many digits are spread evenly over all numbers of that length.

    Amounts and weights of equally many digits are denser at one end or in the middle. Evenly is what Kolmogorov's test
    does not refuse at 1 %, or a largest difference of 0.05 between the distributions, without a gap at either end that
    random codes have once in a thousand times.
    """
    padded = len({len(cell) for cell in cells}) == 1 and any(cell.startswith("0") for cell in cells)
    digits = len(cells[0]) if padded else len(f"{numbers.max():.0f}")
    if digits > MOST_DIGITS:
        return False
    low, high = 0.0 if padded else 10.0 ** (digits - 1), 10.0**digits
    if digits < FEWEST_DIGITS or numbers.min() < low or high - low < 4 * len(numbers) or _has_fractions(numbers):
        return False
    even, rows = (np.sort(numbers) - low) / (high - low), len(numbers)
    difference = np.abs(even - (np.arange(rows) + 0.5) / rows).max()
    return bool(difference <= max(0.05, 1.63 / np.sqrt(rows)) and max(even[0], 1 - even[-1]) <= 7 / rows)
