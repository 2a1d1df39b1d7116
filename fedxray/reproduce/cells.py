"""From results to cells: every unit of a row and column, with its floors and controls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedxray.audit.summary import ENDED
from fedxray.reproduce.base import Column, Measured, Number, Reproduction, Unit

# What an attack tells of its seat's own records: no score, since they were no secret to it.
TOLD = frozenset({"own_psnr"})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Our side of one number of the table, and the published one."""

    row: str
    column: Column
    units: tuple[Unit, ...]
    paper: Number | None
    summary: Mapping[str, Any] = field(default_factory=dict)  # of the audit: floors and controls
    statuses: Mapping[str, int] = field(default_factory=dict)
    controls_left_out: tuple[str, ...] = ()
    data: str | None = None  # the data set
    floors: Mapping[str, Mapping[tuple[int, int | None], float]] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def values(self) -> dict[tuple[int, int | None], float]:
        """Values by seed and client, for pairing."""
        return {(unit.seed, unit.client): unit.value for unit in self.units}


def cells_of_audit(made: Reproduction, row: str, document: Mapping[str, Any]) -> list[Cell]:
    """The cells of a row whose attack is in the results of its audit."""
    labels = {case["attack"] for case in document["cases"]}
    return [_cell(made, row, column, document) for column in made.columns if column.attack in labels]


def _cell(made: Reproduction, row: str, column: Column, document: Mapping[str, Any]) -> Cell:
    cases = [case for case in document["cases"] if belongs(case, column)]
    rows = [one for one in document["summary"] if belongs(one, column) and one["metric"] == column.metric]
    left_out = [name for case in cases for name in case["ledger"].get("controls_left_out", ())]
    return Cell(
        row=row,
        column=column,
        units=tuple(_units(cases, column.metric)),
        paper=made.number(row, column),
        summary=rows[0] if rows else {},
        statuses=Counter(case["status"] for case in cases),
        controls_left_out=tuple(dict.fromkeys(left_out)),
        data=document["plan"]["data"].get("name"),
        floors=_floors(cases, column.metric),
        seconds=math.fsum(case["seconds"] or 0.0 for case in cases),
    )


def costs_of_audit(row: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How useful the models of a row are under every defence; nothing where there is only one."""
    found = [
        {
            "row": row,
            **{key: one[key] for key in ("defence", "metric", "value", "low", "high", "n", "epsilon")},
        }
        for one in document["utility"]
    ]
    return found if len({one["defence"] for one in found}) > 1 else []


def belongs(entry: Mapping[str, Any], column: Column) -> bool:
    """Whether a case or a line of a summary is of this column."""
    return (entry["attack"], entry["defence"], entry["aware"]) == (
        column.attack,
        column.defence,
        column.aware,
    )


def _units(cases: Sequence[Mapping[str, Any]], metric: str) -> list[Unit]:
    """The cases that ended with a finite value, as a summary counts them."""
    found = []
    for case in cases:
        value = (case["ledger"] if metric in TOLD else case["scores"]).get(metric)
        if case["status"] in ENDED and value is not None and math.isfinite(value):
            found.append(Unit(seed=case["seed"], client=case["client"], value=float(value)))
    return found


def _floors(
    cases: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, dict[tuple[int, int | None], float]]:
    """Every floor with its value for each seed and client."""
    found: dict[str, dict[tuple[int, int | None], float]] = {}
    for case in cases:
        for name, scores in case["floors"].items():
            if scores.get(metric) is not None:
                found.setdefault(name, {})[case["seed"], case["client"]] = float(scores[metric])
    return found


def cells_of_measured(made: Reproduction, row: str, measured: Sequence[Measured]) -> list[Cell]:
    """The cells of a row that was measured without an audit."""
    found = []
    for one in measured:
        column = next(c for c in made.columns if (c.name, c.metric) == (one.column, one.metric))
        places = [(unit.seed, unit.client) for unit in one.units]
        floors = {name: dict.fromkeys(places, value) for name, value in one.floors.items()}
        found.append(
            Cell(row=row, column=column, units=one.units, paper=made.number(row, column), floors=floors)
        )
    return found
