"""Incomes of the American Community Survey by state, in dollars or as above 50,000 dollars.

Coded as in paper 003: numbers and sex are standardised, other groups are 0 and 1. No state with dollars that comes
along tells occupations, the widest column of the paper's table; `drawn_occupations` adds a column of so many groups
that are drawn at random and tell nothing, some common and most rare, where the width of the table matters.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedxray.data.checks import number, shown, whole_number
from fedxray.data.columns import make_table
from fedxray.data.space import Dataset
from fedxray.data.store import folders, read_table, wrong_content
from fedxray.errors import BadInput
from fedxray.seeds import fork, permutation

NUMBERS = ("AGEP", "SCHL", "WKHP")
GROUPS = ("COW", "MAR", "OCCP", "RELP", "RAC1P", "SEX")
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

    "all" takes every state whose file has dollars, each an owner; `share` keeps so much of every state.
    """
    if not isinstance(state, str) or not re.fullmatch("[A-Z]{2}|all", state):
        raise BadInput(
            "state", expected='two capital letters such as "CT"', got=shown(state), remedy="Use CT or NE."
        )
    number("share", share, least=0.001, most=1.0)
    whole_number("drawn_occupations", drawn_occupations, least=0, most=MOST_OCCUPATIONS)
    names = states_in_dollars() if state == "all" else [state]
    if not names:
        remedy = "Make files of states with the package folktables, or use CT or NE."
        raise BadInput(
            "state", expected="a file of a state with incomes in dollars", got="none", remedy=remedy
        )
    parts = [_part(name, share) for name in names]
    raw = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if drawn_occupations:
        raw["OCCP"] = _drawn(raw, drawn_occupations)
    classification = "PINCP" not in raw
    groups = [name for name in (*GROUPS, "INDP") if name in raw]
    for name in (*NUMBERS, *(() if classification else ("PINCP",))):
        raw[name] = raw[name].astype(np.float64)
    if classification:
        raw["PINCP"] = np.where(raw.pop("PINCP_gt_50k").astype(np.float64) > 0, ">50K", "<=50K")
    return make_table(
        "acs-income",
        raw,
        target="PINCP",
        classification=classification,
        continuous=NUMBERS,
        categorical=groups,
        sensitive=sensitive,
        unscaled=[name for name in groups if name != "SEX"],
        scale_target=bool(scale_target),
        owner=_owner(parts) if state == "all" else None,
        owners=tuple(names) if state == "all" else (),
        note=f"American Community Survey 2018, state {state}; duplicates removed, place of birth left out."
        + (f" The {drawn_occupations} occupations are drawn at random." if drawn_occupations else ""),
    )


def _drawn(raw: dict[str, NDArray[Any]], groups: int) -> NDArray[np.int64]:
    """Groups [n] that tell nothing, the k-th as common as k to the power -0.8."""
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
    found = set()
    for folder in folders():
        for file in sorted((folder / "acs").glob("acsincome_2018_??.csv*")):
            if re.fullmatch(r"acsincome_2018_[a-z]{2}\.csv(\.gz)?", file.name) and _has_dollars(file):
                found.add(file.name[len("acsincome_2018_") :][:2].upper())
    return sorted(found)


def _owner(parts: list[dict[str, NDArray[Any]]]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(parts), dtype=np.int64), [len(part["AGEP"]) for part in parts])


def _has_dollars(file: Path) -> bool:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return "PINCP" in lines.readline(10_000).strip().split(",")


def _part(state: str, share: float) -> dict[str, NDArray[Any]]:
    """One state, cut to a share in an order of its own."""
    raw = _connecticut() if state == "CT" else _folktables(state)
    count = len(raw["AGEP"])
    kept = np.sort(permutation(count, fork(0, "acs-income", state)).numpy()[: max(1, round(share * count))])
    return {name: values[kept] for name, values in raw.items()}


def _connecticut() -> dict[str, NDArray[Any]]:
    """People above 16 who work and earn more than 100 dollars, the definition of ACSIncome."""
    found = read_table("acs-income", "acs/pums_ct_2018.csv.gz")
    if not set(CONNECTICUT) <= set(found):
        raise wrong_content("acs-income", f"columns {', '.join(CONNECTICUT)}", "fewer")
    raw = {new: found[old] for old, new in CONNECTICUT.items()}
    age, hours, income = (raw[name].astype(np.float64) for name in ("AGEP", "WKHP", "PINCP"))
    kept = (age > 16) & (hours > 0) & (income > 100)
    return _distinct({name: values[kept] for name, values in raw.items()})


def _folktables(state: str) -> dict[str, NDArray[Any]]:
    """A file in the layout of folktables' ACSIncome, with PINCP in dollars or PINCP_gt_50k."""
    place = f"acs/acsincome_2018_{state.lower()}.csv.gz"
    remedy = (
        ""
        if state == "NE"
        else f"Make it with the package folktables and save it as {place}, or use CT or NE."
    )
    raw = _distinct(read_table("acs-income", place, remedy=remedy))
    raw.pop("POBP", None)
    if not {*NUMBERS, *GROUPS} <= set(raw) or not {"PINCP", "PINCP_gt_50k"} & set(raw):
        raise wrong_content(
            "acs-income", f"columns {', '.join((*NUMBERS, *GROUPS))} and PINCP", ", ".join(raw)
        )
    for name in GROUPS:
        raw[name] = raw[name].astype(np.float64).astype(np.int64)
    return raw


def _distinct(raw: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Only the first of equal rows."""
    first = list(
        {row: place for place, row in reversed(list(enumerate(zip(*raw.values(), strict=True))))}.values()
    )
    return {name: values[np.sort(first)] for name, values in raw.items()}
