"""Adult (UCI census income): whether a person earns more than 50,000 dollars a year."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.columns import make_table
from fedxray.data.limits import read_bytes
from fedxray.data.space import Dataset
from fedxray.data.store import as_columns, locate
from fedxray.errors import unknown_name

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "income",
)  # fmt: skip
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
GROUPS = ("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex")
SCHOOL = ("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th")
LEVELS = dict.fromkeys(SCHOOL, "Compulsory") | {
    "Some-college": "Bachelors",
    "Assoc-acdm": "Associate",
    "Assoc-voc": "Associate",
}
PARTS = {"train": ("adult.data",), "test": ("adult.test",), "all": ("adult.data", "adult.test")}


def adult(*, sensitive: str | None = "sex", part: str = "all", missing: str = "drop") -> Dataset:
    """Six numbers and seven groups as 53 standardised features; rows with an unknown value are left out.

    The paper says 53 features without listing them; education in seven levels, no native country and a column
    for every group (one for sex) add up to that number. `missing = "keep"` makes unknown a group of its own.
    """
    if part not in PARTS:
        raise unknown_name("part", str(part), PARTS)
    if missing not in ("drop", "keep"):
        raise unknown_name("missing", str(missing), ("drop", "keep"))
    rows = [row for file in PARTS[part] for row in _read(file)]
    if missing == "drop":
        rows = [row for row in rows if "?" not in row]
    raw: dict[str, NDArray[Any]] = as_columns("adult", COLUMNS, rows)
    for name in NUMBERS:
        raw[name] = raw[name].astype(np.float64)
    raw["education"] = np.array([LEVELS.get(level, level) for level in raw["education"].tolist()])
    raw["income"] = np.array(
        [label.rstrip(".") for label in raw["income"].tolist()]
    )  # the test file ends its labels so
    return make_table(
        "adult",
        raw,
        target="income",
        classification=True,
        continuous=NUMBERS,
        categorical=GROUPS,
        keep_first=True,
        sensitive=sensitive,
        note="Adult, extracted by Becker and Kohavi from the 1994 US census (UCI, CC BY 4.0).",
    )


def _read(file: str) -> list[list[str]]:
    text = read_bytes(locate("adult", f"adult/{file}.gz")).decode("ascii")
    lines = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [line for line in lines if len(line) == len(COLUMNS)]  # skips the comment on top of the test file
