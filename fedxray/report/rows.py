"""The rows of a summary as a reader needs them: what is the same for both attackers stands once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.report.plans import plan_of, plans_of

Row = Mapping[str, Any]

EITHER = "either"  # in place of true or false, where both attackers reached the same


def shown_rows(document: Mapping[str, Any]) -> list[Row]:
    """Rows in order; one that is equal whether or not the attacker knows the defence stands once."""
    recorded = {name for name, plan in plans_of(document).items() if "transcript" in plan}
    rows = {
        (*_key(row), row["aware"]): _of_one_node(row) if plan_of(row) in recorded else row
        for row in document["summary"]
    }
    found: list[Row] = []
    for (*key, aware), row in rows.items():
        twin = None if aware is None else rows.get((*key, not aware))
        if twin is None or not _same(row, twin):
            found.append(row)
        elif not aware:
            found.append({**row, "aware": EITHER})
    return found


def _of_one_node(row: Row) -> Row:
    """A row of a recording: there is one node and one run, so that only a record can be the most exposed."""
    worst = row["worst"]
    single = worst is not None and worst["record"] is not None
    return {**row, "worst": {**worst, "client": None, "seed": None} if single else None}


def _key(row: Row) -> tuple[Any, ...]:
    return (plan_of(row), *(row[name] for name in ("attack", "role", "defence", "metric")))


def _same(row: Row, twin: Row) -> bool:
    return {**row, "aware": None} == {**twin, "aware": None}
