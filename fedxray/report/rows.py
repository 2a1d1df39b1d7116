"""The rows of a summary as a reader needs them: what is the same for both attackers stands once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.audit.judge.gate import label_of as label
from fedxray.audit.judge.gate import parts, plans_of
from fedxray.audit.restoring import restored_title

# --- The plan or plans behind a document: results of several plans may stand in one, each row with its
# plan's name.


__all__ = ["attack_facts", "deployed", "label", "parts", "plan_of", "plans_of", "restorer_names", "table"]

Plan = Mapping[str, Any]


def plan_of(row: Mapping[str, Any]) -> str | None:
    """The name of the plan that a row comes from; None where there is only one."""
    found = row.get("plan")
    return None if found is None else str(found)


def table(plan: Plan, key: str) -> Mapping[str, Any]:
    """A table of a plan, empty where there is none."""
    found = plan.get(key)
    return found if isinstance(found, Mapping) else {}


def deployed(document: Mapping[str, Any]) -> set[tuple[str | None, str]]:
    """Plan and label of every defence that is marked as deployed."""
    return {
        (name, label(part))
        for name, plan in plans_of(document).items()
        for part in parts(plan, "defence")
        if part.get("deployed")
    }


def attack_facts(document: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    """Kind, description, paper and source of an attack by its label; empty in older results."""
    facts: Mapping[str, Any] = (document.get("attacks") or {}).get(label, {})
    return facts


def restorer_names(document: Mapping[str, Any]) -> dict[str, str]:
    """The restorer behind each label of a restored version."""
    return {title: name for part in _attacks(document) for title, name in _restored(part).items()}


def _attacks(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for plan in plans_of(document).values() for part in parts(plan, "attack")]


def _restored(part: Mapping[str, Any]) -> dict[str, str]:
    """By label of a restored version its restorer."""
    given = part.get("restore")
    tables = [
        {"name": one} if isinstance(one, str) else one
        for one in (given if isinstance(given, list) else [given])
    ]
    return {
        restored_title(label(part), one): one["name"]
        for one in tables
        if isinstance(one, Mapping) and isinstance(one.get("name"), str)
    }


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
