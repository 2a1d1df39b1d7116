"""Columns of a table that should not be learned from: identifiers, dates and durations, texts that hardly repeat.

A measurement whose values all differ is a number and stays a feature: numbers count as identifiers only where they are
row numbers or spread like random codes, or where the column's name says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

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
