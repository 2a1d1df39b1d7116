"""The plan or plans behind a document: results of several plans may stand in one, each row with its plan's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.audit.gate import label_of as label
from fedxray.audit.gate import parts, plans_of

__all__ = ["attack_names", "deployed", "label", "parts", "plan_of", "plans_of", "table"]

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


def attack_names(document: Mapping[str, Any]) -> dict[str, str]:
    """The catalogue name behind each label of an attack."""
    listed = [part for plan in plans_of(document).values() for part in parts(plan, "attack")]
    return {label(part): str(part["name"]) for part in listed if part.get("name")}
