"""What a folder of a reproduction holds: finished rows, their numbers, what defences cost, what searches found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedxray.audit.results import NAME as RESULTS
from fedxray.audit.results import read as read_results
from fedxray.files import read_json
from fedxray.reproduce.base import Measured, Reproduction, Unit
from fedxray.reproduce.cells import Cell, cells_of_audit, cells_of_measured, costs_of_audit
from fedxray.reproduce.searches import searches_of_audit

MEASURED = "measured.json"


def finished_rows(made: Reproduction, folder: Path) -> list[str]:
    """The rows that a folder holds results of, in the order of the table."""
    name = RESULTS if made.plan is not None else MEASURED
    return [row for row in made.rows if (folder / row / name).is_file()]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a row came to: its numbers, what its defences cost and what its searches found."""

    cells: list[Cell]
    costs: list[dict[str, Any]]
    searches: list[dict[str, Any]]


def read_row(made: Reproduction, folder: Path, row: str) -> Row:
    """A finished row; its results are read once."""
    if made.plan is not None:
        found = read_results(folder / row)
        return Row(
            cells=cells_of_audit(made, row, found),
            costs=costs_of_audit(row, found),
            searches=searches_of_audit(made, row, found),
        )
    kept = read_json(folder / row / MEASURED)["cells"]
    measured = [Measured(**{**one, "units": tuple(Unit(**unit) for unit in one["units"])}) for one in kept]
    return Row(cells=cells_of_measured(made, row, measured), costs=[], searches=[])
