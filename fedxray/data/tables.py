"""Public tables: Adult (UCI census income), incomes of the American Community Survey, medical costs, flight prices."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedxray.data.checks import check_size, number, read_bytes, read_member, shown, whole_number
from fedxray.data.dataset import Dataset
from fedxray.data.encode import make_table, owners_of
from fedxray.data.store import as_columns, folders, locate, read_table, wrong_content
from fedxray.errors import BadInput, unknown_name
from fedxray.seeds import fork, permutation

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "income",
)  # fmt: skip
ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_GROUPS = ("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex")
SCHOOL = ("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th")
LEVELS = dict.fromkeys(SCHOOL, "Compulsory") | {
    "Some-college": "Bachelors",
    "Assoc-acdm": "Associate",
    "Assoc-voc": "Associate",
}
PARTS = {"train": ("adult.data",), "test": ("adult.test",), "all": ("adult.data", "adult.test")}


def adult(*, sensitive: str | None = "sex", part: str = "all", missing: str = "drop") -> Dataset:
    """Six numbers and seven groups as 53 standardised features; rows with an unknown value are left out.

    The paper states 53 features without listing them; education in seven levels, no native country and a column
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
    for name in ADULT_NUMBERS:
        raw[name] = raw[name].astype(np.float64)
    raw["education"] = np.array([LEVELS.get(level, level) for level in raw["education"].tolist()])
    # The test file ends its labels with a point.
    raw["income"] = np.array([label.rstrip(".") for label in raw["income"].tolist()])
    return make_table(
        "adult",
        raw,
        target="income",
        classification=True,
        continuous=ADULT_NUMBERS,
        categorical=ADULT_GROUPS,
        keep_first=True,
        sensitive=sensitive,
        note="Adult, extracted by Becker and Kohavi from the 1994 US census (UCI, CC BY 4.0).",
    )


def _read(file: str) -> list[list[str]]:
    text = read_bytes(locate("adult", f"adult/{file}.gz")).decode("ascii")
    lines = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [line for line in lines if len(line) == len(COLUMNS)]  # skips the comment on top of the test file


# Incomes of the American Community Survey by state, in dollars or as above 50,000 dollars
#
# Encoded as in Diana et al. 2025 (AIA): numbers and sex are standardised, other groups are 0 and 1. No available state
# with incomes in dollars has occupations, the widest column of the paper's table; `drawn_occupations` adds a column of
# groups drawn at random, some common and most rare, where the width of the table matters. They carry no information.

INCOME_NUMBERS = ("AGEP", "SCHL", "WKHP")
INCOME_GROUPS = ("COW", "MAR", "OCCP", "RELP", "RAC1P", "SEX")
MOST_OCCUPATIONS = 2000
# The Connecticut file has its own names; it has an industry group, but no occupation and no relation.
CONNECTICUT = {
    "Age": "AGEP",
    "Education": "SCHL",
    "Hours_Worked": "WKHP",
    "COW": "COW",
    "Marital_Status": "MAR",
    "IND": "INDP",
    "Race": "RAC1P",
    "Sex": "SEX",
    "Income": "PINCP",
}


def acs_income(
    *,
    state: str = "CT",
    sensitive: str | None = "SEX",
    scale_target: bool | None = None,
    share: float = 1.0,
    drawn_occupations: int = 0,
) -> Dataset:
    """Income of people at work in one state: CT in dollars, NE above 50,000 or not, others from a file.

    "all" takes every state whose file has dollars, each an owner; `share` is the part of every state that is used, and
    `drawn_occupations` the number of random groups to add.
    """
    if not isinstance(state, str) or not re.fullmatch("[A-Z]{2}|all", state):
        raise BadInput("state", expected='two capital letters such as "CT"', got=shown(state), remedy="Use CT or NE.")
    number("share", share, least=0.001, most=1.0)
    whole_number("drawn_occupations", drawn_occupations, least=0, most=MOST_OCCUPATIONS)
    names = states_in_dollars() if state == "all" else [state]
    if not names:
        remedy = "Make files of states with the package folktables, or use CT or NE."
        raise BadInput("state", expected="a file of a state with incomes in dollars", got="none", remedy=remedy)
    parts = [_part(name, share) for name in names]
    raw = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if drawn_occupations:
        raw["OCCP"] = _drawn(raw, drawn_occupations)
    owner = np.repeat(np.arange(len(parts), dtype=np.int64), [len(part["AGEP"]) for part in parts])
    classification = "PINCP" not in raw
    groups = [name for name in (*INCOME_GROUPS, "INDP") if name in raw]
    for name in (*INCOME_NUMBERS, *(() if classification else ("PINCP",))):
        raw[name] = raw[name].astype(np.float64)
    if classification:
        raw["PINCP"] = np.where(raw.pop("PINCP_gt_50k").astype(np.float64) > 0, ">50K", "<=50K")
    return make_table(
        "acs-income",
        raw,
        target="PINCP",
        classification=classification,
        continuous=INCOME_NUMBERS,
        categorical=groups,
        sensitive=sensitive,
        unscaled=[name for name in groups if name != "SEX"],
        scale_target=bool(scale_target),
        owner=owner if state == "all" else None,
        owners=tuple(names) if state == "all" else (),
        note=f"American Community Survey 2018, state {state}; duplicates removed, place of birth left out."
        + (f" The {drawn_occupations} occupations are drawn at random." if drawn_occupations else ""),
    )


def _drawn(raw: dict[str, NDArray[Any]], groups: int) -> NDArray[np.int64]:
    """Random groups [n], the k-th with a frequency proportional to k to the power -0.8."""
    if "OCCP" in raw:
        remedy = "Leave drawn_occupations out: the file has real ones."
        raise BadInput("drawn_occupations", expected="a state without occupations", got=groups, remedy=remedy)
    common = torch.arange(1, groups + 1, dtype=torch.float64, device="cpu") ** -0.8
    drawn = torch.multinomial(
        common, len(raw["AGEP"]), replacement=True, generator=fork(0, "acs-income", "occupations", groups)
    )
    return np.asarray(drawn.numpy(), dtype=np.int64)


def states_in_dollars() -> list[str]:
    """The states of which the user has a file in the layout of folktables with incomes in dollars."""
    states = set()
    for folder in folders():
        for file in sorted((folder / "acs").glob("acsincome_2018_??.csv*")):
            if re.fullmatch(r"acsincome_2018_[a-z]{2}\.csv(\.gz)?", file.name) and _has_dollars(file):
                states.add(file.name[len("acsincome_2018_") :][:2].upper())
    return sorted(states)


def _has_dollars(file: Path) -> bool:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return "PINCP" in lines.readline(10_000).strip().split(",")


def _part(state: str, share: float) -> dict[str, NDArray[Any]]:
    """A random share of the records of one state, the same for every seed."""
    raw = _connecticut() if state == "CT" else _folktables(state)
    count = len(raw["AGEP"])
    rows = np.sort(permutation(count, fork(0, "acs-income", state)).numpy()[: max(1, round(share * count))])
    return {name: values[rows] for name, values in raw.items()}


def _connecticut() -> dict[str, NDArray[Any]]:
    """People above 16 who work and earn more than 100 dollars, the definition of ACSIncome."""
    table = read_table("acs-income", "acs/pums_ct_2018.csv.gz")
    if not set(CONNECTICUT) <= set(table):
        raise wrong_content("acs-income", f"columns {', '.join(CONNECTICUT)}", "fewer")
    raw = {new: table[old] for old, new in CONNECTICUT.items()}
    age, hours, income = (raw[name].astype(np.float64) for name in ("AGEP", "WKHP", "PINCP"))
    included = (age > 16) & (hours > 0) & (income > 100)
    return _distinct({name: values[included] for name, values in raw.items()})


def _folktables(state: str) -> dict[str, NDArray[Any]]:
    """A file in the layout of folktables' ACSIncome, with PINCP in dollars or PINCP_gt_50k."""
    relative = f"acs/acsincome_2018_{state.lower()}.csv.gz"
    remedy = "" if state == "NE" else f"Make it with the package folktables and save it as {relative}, or use CT or NE."
    raw = _distinct(read_table("acs-income", relative, remedy=remedy))
    raw.pop("POBP", None)
    if not {*INCOME_NUMBERS, *INCOME_GROUPS} <= set(raw) or not {"PINCP", "PINCP_gt_50k"} & set(raw):
        raise wrong_content(
            "acs-income", f"columns {', '.join((*INCOME_NUMBERS, *INCOME_GROUPS))} and PINCP", ", ".join(raw)
        )
    for name in INCOME_GROUPS:
        raw[name] = raw[name].astype(np.float64).astype(np.int64)
    return raw


def _distinct(raw: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The table without repeated rows: of equal rows the first stays."""
    first = list({row: index for index, row in reversed(list(enumerate(zip(*raw.values(), strict=True))))}.values())
    return {name: values[np.sort(first)] for name, values in raw.items()}


# Medical costs (Lantz 2013): 1,338 simulated insurance records


def medical(*, sensitive: str | None = "smoker", scale_target: bool | None = None) -> Dataset:
    """Age, bmi, children, sex, smoker, region to charges in dollars; all eight features standardised."""
    raw = read_table("medical", "insurance/insurance.csv.gz")
    numbers = ("age", "bmi", "children")
    for name in (*numbers, "charges"):
        raw[name] = raw[name].astype(np.float64)
    return make_table(
        "medical",
        raw,
        target="charges",
        classification=False,
        continuous=numbers,
        categorical=("sex", "smoker", "region"),
        sensitive=sensitive,
        scale_target=bool(scale_target),
        note="Medical costs of Lantz (2013), simulated by the author from US statistics.",
    )


# Flight prices in India: the stand-in for the private prices of Driouich et al. (LMRA)

ROWS = 300_153


def flights(*, rows: int = 30_000, sensitive: str | None = "class", scale_target: bool | None = None) -> Dataset:
    """Eight features of a ticket to its price; airlines are the owners; a fixed random sample of `rows` rows.

    There is no trip type, so the sensitive attribute is the class (economy or business), or `stops`.
    """
    whole_number("rows", rows, least=10, most=ROWS)
    lines = _lines()
    if len(lines) != ROWS + 1:
        raise wrong_content("flights", f"{ROWS} rows", f"{len(lines) - 1} rows")
    chosen = np.sort(np.random.RandomState(0).permutation(ROWS)[:rows])
    header = lines[0].split(",")
    raw = as_columns("flights", header, list(csv.reader(lines[row + 1] for row in chosen)))
    for name in ("duration", "days_left", "price"):
        raw[name] = raw[name].astype(np.float64)
    raw.pop(header[0])
    owner, owners = owners_of(raw["airline"])
    return make_table(
        "flights",
        raw,
        target="price",
        classification=False,
        continuous=("duration", "days_left"),
        categorical=("source_city", "departure_time", "stops", "arrival_time", "destination_city", "class"),
        sensitive=sensitive,
        scale_target=scale_target is None or scale_target,
        owner=owner,
        owners=owners,
        note="Stand-in: Indian flight prices in rupees (public table), not the private prices of the paper.",
    )


def _lines() -> list[str]:
    """The lines of the CSV file in the archive, the header first."""
    content = read_bytes(locate("flights", "flights/Clean_Dataset.csv.zip"))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = archive.getinfo("Clean_Dataset.csv")
            check_size("flights, unpacked", member.file_size)
            return read_member(archive, member).decode("ascii").splitlines()
    except (zipfile.BadZipFile, zlib.error, KeyError, UnicodeDecodeError) as problem:
        raise wrong_content("flights", "a zip file with Clean_Dataset.csv", problem) from problem
