"""Accessors over results.json: its plan or plans, the facts about attacks, and the summary rows to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.audit.restoring import restored_title
from fedxray.metrics import units

Row = Mapping[str, Any]
Plan = Mapping[str, Any]
Item = TypeVar("Item")
Key = TypeVar("Key")

EITHER = "either"  # in place of true or false, where both attackers have the same result


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items with equal keys together, in the order in which they come first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def gain_words(row: Row, metric: str | None) -> str:
    """Return the gain of a row, or over one of its controls, with its interval."""
    gain = units.value(row["difference"], metric, sign=True)
    return f"{gain} ({units.between(row['low'], row['high'], metric, sign=True)})"


def plan_of(row: Row) -> str | None:
    """Return the name of the plan that a row comes from; None where there is only one."""
    name = row.get("plan")
    return None if name is None else str(name)


def table(plan: Plan, key: str) -> Mapping[str, Any]:
    """Return a table of a plan, empty where there is none."""
    section = plan.get(key)
    return section if isinstance(section, Mapping) else {}


def deployed(document: Mapping[str, Any]) -> set[tuple[str | None, str]]:
    """Return plan and label of every defence that is marked as deployed."""
    return {
        (name, label_of(part))
        for name, plan in plans_of(document).items()
        for part in parts(plan, "defence")
        if part.get("deployed")
    }


# Attacks by their label


def attack_facts(document: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    """Return kind, description, paper and source of an attack by its label; empty in older results."""
    facts: Mapping[str, Any] = (document.get("attacks") or {}).get(label, {})
    return facts


def restorer_names(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the restorer behind each label of a restored version."""
    attacks = [part for plan in plans_of(document).values() for part in parts(plan, "attack")]
    return {title: name for part in attacks for title, name in _restored(part).items()}


def _restored(part: Mapping[str, Any]) -> dict[str, str]:
    """Return the restorer by label of a restored version."""
    given = part.get("restore")
    tables = [
        {"name": restorer} if isinstance(restorer, str) else restorer
        for restorer in (given if isinstance(given, list) else [given])
    ]
    return {
        restored_title(label_of(part), restorer): restorer["name"]
        for restorer in tables
        if isinstance(restorer, Mapping) and isinstance(restorer.get("name"), str)
    }


# Rows of the summary


def shown_rows(document: Mapping[str, Any]) -> list[Row]:
    """Return the rows in order; equal results of attackers who know the defence and who do not become one row."""
    recorded = {name for name, plan in plans_of(document).items() if "transcript" in plan}
    names = ("attack", "role", "defence", "metric", "aware")
    rows = {
        (plan_of(row), *(row[name] for name in names)): _of_one_node(row) if plan_of(row) in recorded else row
        for row in document["summary"]
    }
    shown: list[Row] = []
    for (*key, aware), row in rows.items():
        twin = None if aware is None else rows.get((*key, not aware))
        if twin is None or {**row, "aware": not aware} != twin:
            shown.append(row)
        elif not aware:
            shown.append({**row, "aware": EITHER})
    return shown


def _of_one_node(row: Row) -> Row:
    """Return a row of a recording: one node and one run, so only a record can be the most exposed unit."""
    worst = row["worst"]
    single = worst is not None and worst["record"] is not None
    return {**row, "worst": {**worst, "client": None, "seed": None} if single else None}
