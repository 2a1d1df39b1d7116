"""What a folder of a reproduction holds: finished rows, their numbers, what defences cost, what searches found."""

from __future__ import annotations

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


def read_cells(made: Reproduction, folder: Path, row: str) -> list[Cell]:
    """What was measured in a row."""
    if made.plan is not None:
        return cells_of_audit(made, row, read_results(folder / row))
    kept = read_json(folder / row / MEASURED)["cells"]
    measured = [Measured(**{**one, "units": tuple(Unit(**unit) for unit in one["units"])}) for one in kept]
    return cells_of_measured(made, row, measured)


def read_costs(made: Reproduction, folder: Path, row: str) -> list[dict[str, Any]]:
    """What the defences of a row cost."""
    return [] if made.plan is None else costs_of_audit(row, read_results(folder / row))


def read_searches(made: Reproduction, folder: Path, row: str) -> list[dict[str, Any]]:
    """What the searches of a row found."""
    return [] if made.plan is None else searches_of_audit(made, row, read_results(folder / row))
