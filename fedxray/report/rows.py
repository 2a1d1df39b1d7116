"""Accessors over results.json: its plan or plans, attacks, utility, and the summary rows to show."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedxray.audit.judge.gate import UTILITY, label_of, parts, plans_of
from fedxray.audit.restoring import restored_title
from fedxray.metrics import units
from fedxray.report.noise import noise_of

Row = Mapping[str, Any]
Plan = Mapping[str, Any]
Item = TypeVar("Item")
Key = TypeVar("Key")

UNUSED = "unused"  # in place of true or false, where the attack cannot use what is known of the defence
EITHER = "either"  # in place of true or false, where both attackers have the same result


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items with equal keys together, in the order in which they come first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def gain_words(row: Row, metric: str | None, floor: float | None) -> str:
    """Return the gain of a row over its floor, or over one of its controls in its place, with its interval."""
    gain = units.value(row["difference"], metric, sign=True)
    return f"{gain} ({units.between(row['low'], row['high'], metric, sign=True, floor=floor)})"


def audit_command(document: Mapping[str, Any]) -> str:
    """Return how to run the audit again: with the plan's file, and the folder where it is not the usual one."""
    file, out = document.get("plan_file") or "PLAN.toml", document.get("out")
    usual = out is None or Path(out) == Path("fedxray-out", str(document["plan"].get("name")))
    return shlex.join(["fedxray", "audit", str(file), *([] if usual else ["--out", str(out)])])


def placed(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return results that know their folder as it was typed; an absolute one is not printed, as reports are shared."""
    return {**document, "out": "DIR" if folder.is_absolute() else folder.as_posix()}


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


def utilities(document: Mapping[str, Any], plan: str | None) -> dict[str, Row]:
    """Return the utility rows of one plan by defence, of the preferred metric."""
    rows = [row for row in document["utility"] if plan_of(row) == plan and row["value"] is not None]
    metric = next((name for name in UTILITY if any(row["metric"] == name for row in rows)), None)
    return {row["defence"]: row for row in rows if row["metric"] == metric}


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


def judged(document: Mapping[str, Any]) -> list[Row]:
    """Return the rows that decide: of primary metrics and not of oracles."""
    return [row for row in shown_rows(document) if row["primary"] and not row["oracle"]]


def shown_rows(document: Mapping[str, Any]) -> list[Row]:
    """Return the rows in order; equal results of attackers who know the defence and who do not become one row.

    Each has its number of `runs` with a score, whether they are `recorded`, the share of `public` records, and how many
    clients of all were `sampled`, the command of its `audit`, whether its records are `synthetic`, the `noise` on
    updates to try first, and whether the plan has `listed` defences; its `worst` unit has the `name` of its client.
    """
    plans, names = plans_of(document), _client_names(document)
    recorded = {name for name, plan in plans.items() if "transcript" in plan}
    seeds: dict[tuple[Any, ...], set[Any]] = {}
    for case in document["cases"]:
        seeds.setdefault(_of(case), set()).update([case["seed"]] if case["scores"] else [])
    rows = {}
    for row in document["summary"]:
        single = plan_of(row) in recorded
        facts: dict[str, Any] = {
            "runs": len(seeds.get(_of(row), ())),
            "recorded": single,
            "public": None if single else _public(plans, row),
            "sampled": _sampled(plans, row),
            "audit": audit_command(document),
            "synthetic": "schema" in table(plans.get(plan_of(row), {}), "data"),
            "noise": noise_of(plans.get(plan_of(row), {})),
            "listed": bool(parts(plans.get(plan_of(row), {}), "defence")),
        }
        if row["worst"] is not None:
            facts["worst"] = {**row["worst"], "name": names.get((plan_of(row), row["worst"]["client"]))}
        whole = {**row, **facts}
        rows[*_of(row), row["metric"], row["aware"]] = _of_one_node(whole) if single else whole
    shown: list[Row] = []
    for (*key, aware), row in rows.items():
        twin = None if aware is None else rows.get((*key, not aware))
        if twin is not None and (row.get("adapts") is False or twin.get("adapts") is False):
            shown += (
                [{**row, "aware": UNUSED}] if not aware else []
            )  # an attack that cannot use the defence counts once
            continue
        if twin is None or {**row, "aware": not aware, "adapts": twin.get("adapts")} != twin:
            shown.append(row)
        elif not aware:
            shown.append({**row, "aware": EITHER})
    return shown


def _client_names(document: Mapping[str, Any]) -> dict[tuple[str | None, Any], str]:
    """Return the name of every client that has one, by plan and index."""
    return {
        (plan_of(case), case["client"]): case["ledger"]["target_name"]
        for case in document["cases"]
        if case["client"] is not None and case["ledger"].get("target_name")
    }


def _public(plans: Mapping[str | None, Row], row: Row) -> float | None:
    """Return the share of records taken as public; None where it is not known or not all that the attacker has."""
    data = table(plans.get(plan_of(row), {}), "data")
    return None if row["role"] == "curious-client" or data.get("use") else data.get("public")


def _sampled(plans: Mapping[str | None, Row], row: Row) -> tuple[int, int] | None:
    """Return how many clients were drawn at random, and of how many; None where none were drawn."""
    plan = plans.get(plan_of(row), {})
    part = next((part for part in parts(plan, "attack") if row["attack"] in (label_of(part), *_restored(part))), {})
    chosen, clients = part.get("targets"), table(plan, "data").get("clients")
    if isinstance(chosen, int) and isinstance(clients, int) and chosen < clients:
        return chosen, clients
    return None


def _of(part: Row) -> tuple[Any, ...]:
    return plan_of(part), part["attack"], part["role"], part["defence"]


def _of_one_node(row: Row) -> Row:
    """Return a row of a recording: one node and one run, so only a record can be the most exposed unit."""
    worst = row["worst"]
    single = worst is not None and worst["record"] is not None
    return {**row, "worst": {**worst, "client": None, "seed": None, "name": None} if single else None}
