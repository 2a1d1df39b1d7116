"""Rows that wait for an earlier one: a search in one row, what it found in the plan of another.

What the later row takes is in the results of the earlier one, so an interrupted reproduction goes on with the same
plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.results import NAME as RESULTS
from fedxray.audit.results import read as read_results
from fedxray.errors import BadInput
from fedxray.reproduce.base import Reproduction


def check_rows(made: Reproduction, rows: Sequence[str], folder: Path) -> None:
    """Refuse a row without the one that it waits for, unless the folder holds that one."""
    for row in rows:
        earlier = made.follows[row].row if row in made.follows else row
        if earlier not in rows and not (folder / earlier / RESULTS).is_file():
            raise BadInput(
                "--row",
                expected=f"{earlier} too, which {row} takes its numbers from",
                got=f"{row} alone",
                remedy=f"Add --row {earlier}, or go on with --resume in a folder that has it.",
            )


def informed(made: Reproduction, row: str, plan: Plan, folder: Path) -> Plan:
    """The plan with what the row it waits for has found, as far as that has ended."""
    follows = made.follows.get(row)
    if follows is None or not (folder / follows.row / RESULTS).is_file():
        return plan
    return make_plan(follows.fill(plan.to_document(), read_results(folder / follows.row)), plan.folder)


def chosen_point(results: Mapping[str, Any], label: str) -> dict[str, float]:
    """The settings of lowest own loss that the search of an attack tried, in its first case."""
    case = next(one for one in results["cases"] if one["attack"] == label)
    told = case.get("search") or {}
    if told.get("best") is None:
        raise BadInput(
            f"row {results['plan']['name']}",
            expected=f"a search by {label} that found something",
            got=case["reason"] or case["status"],
            remedy="Look at its report; try again in another --out.",
        )
    return dict(told["trials"][told["best"]]["point"])
