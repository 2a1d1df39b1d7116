"""The power check: would this attack have seen a leak? It is run where a leak of its kind was planted.

"No leak found" rests on it. The same attack with the same settings, seat and grants is run on the plan's own network
and recipe, undefended, where the records leak as plainly as they can (`plant.py`), and must beat its floor there by the
margin. Its runs and cases are runs and cases of the store like any other: they are resumed, and every engine gives the
same. Only attacks whose verdict waits for it are checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.audit.cases import Case, Run, is_about_everyone, planted_case
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plant import CHANGES, TARGETS, planted_clients
from fedxray.audit.prepare import Prepared, prepare
from fedxray.audit.summary import PowerKey, summarise
from fedxray.audit.verdict import LEAST_UNITS, NO_POWER_CHECK, Power, number

Row = dict[str, Any]

LEAST_RUNS = 4
UNKNOWN_RECIPE = "the recipe of the recording is not known, so nothing can be planted"


def waiting(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The attacks with a verdict that only a power check could settle."""
    found = [row["attack"] for row in rows if NO_POWER_CHECK in row["reason"] and not row["oracle"]]
    return list(dict.fromkeys(found))


def planted_work(
    plan: Plan, attacks: Sequence[str], prepared: Prepared | None = None
) -> tuple[list[Run], list[Case]]:
    """The runs and cases of the power checks of these attacks; none where nothing can be planted."""
    prepared = prepared or prepare(plan, plan.defences[0].title, plan.seeds[0])
    if prepared.unknown:
        return [], []
    runs: dict[str, Run] = {}
    cases: list[Case] = []
    for label in attacks:
        part = plan.attack_of(label)
        kind = part.make(plan.folder).kind
        if kind in CHANGES:
            for case in _cases(plan, part, kind, prepared):
                runs.setdefault(case.run, Run(id=case.run, defence=case.defence, seed=case.seed, plant=kind))
                cases.append(case)
    return list(runs.values()), cases


def _cases(plan: Plan, part: AttackPart, kind: str, prepared: Prepared) -> list[Case]:
    """One case per planted client, in as many runs as make enough units."""
    clients = planted_clients(plan, kind, prepared.federation.space)
    others = [client for client in range(clients) if client not in part.seats]
    targets: Sequence[int | None] = others[:TARGETS]
    if targets and is_about_everyone(plan, part):
        targets = [None]
    if not targets:
        return []
    seeds = planted_seeds(plan.seeds, planted_runs(len(targets)))
    label = plan.defences[0].title  # whose seams are taken off again
    return [planted_case(seed, label, part, client, kind) for seed in seeds for client in targets]


def planted_runs(targets: int) -> int:
    """One run where it has enough clients, else several: an interval over two runs says nothing."""
    return 1 if targets >= TARGETS else max(LEAST_RUNS, math.ceil(TARGETS / targets))


def planted_seeds(seeds: Sequence[int], count: int) -> list[int]:
    """The first seeds of the plan, and further ones where it has too few."""
    more = range(max(seeds) + 1, max(seeds) + 1 + count)
    return [*seeds, *more][:count]


def planted_share(plan: Plan, kinds: Sequence[str], prepared: Prepared) -> float:
    """How many runs of the plan's size all planted ones amount to."""
    own, total = len(prepared.federation.clients), 0.0
    for kind in set(kinds) & set(CHANGES):
        clients = planted_clients(plan, kind, prepared.federation.space)
        total += planted_runs(clients) * clients / own
    return total


def power_rows(
    plan: Plan, attacks: Sequence[str], cases: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What every checked attack reached where a leak was planted, by metric, and whether that is enough."""
    kinds = {case["attack"]: case["plant"] for case in cases}
    rows = [_row(row, kinds[row["attack"]], cases) for row in summarise(cases)]
    for label in attacks:
        if label not in kinds:
            part = plan.attack_of(label)
            rows.append(_missing(label, part.role))
    return rows


def _row(row: Mapping[str, Any], kind: str, cases: Sequence[Mapping[str, Any]]) -> Row:
    kept = ("attack", "role", "metric", "mean", "floor", "over", "difference", "low", "high", "n", "margin")
    beats = row["low"] is not None and row["n"] >= LEAST_UNITS and row["low"] > row["margin"]
    found = {name: row[name] for name in kept} | {"planted": kind, "passed": beats}
    if beats:
        return found | {"reason": f"it finds a planted leak: {_gain(row)}"}
    lost = [case for case in cases if case["attack"] == row["attack"] and not case["scores"]]
    if lost:
        return found | {"reason": f"a planted case came to nothing: {lost[0]['reason']}"}
    if row["low"] is None:
        return found | {"reason": "nothing could be measured where a leak was planted"}
    return found | {"reason": f"a planted leak was not seen: {_gain(row)}"}


def _gain(row: Mapping[str, Any]) -> str:
    spread = f"95 % interval {number(row['low'])} to {number(row['high'])}, margin {number(row['margin'])}"
    return f"{number(row['difference'])} over {row['over']} ({spread})"


def _missing(label: str, role: str) -> Row:
    """An attack for which nothing could be planted."""
    empty = dict.fromkeys(
        ("metric", "mean", "floor", "over", "difference", "low", "high", "margin", "planted")
    )
    return {"attack": label, "role": role, **empty, "n": 0, "passed": False, "reason": UNKNOWN_RECIPE}


def powers(rows: Sequence[Mapping[str, Any]]) -> dict[PowerKey, Power]:
    """The checks as verdicts read them; None for a metric stands for all metrics of the attack."""
    return {
        (row["attack"], row["metric"]): Power(
            passed=row["passed"],
            gain=None
            if row["difference"] is None or not row["margin"]
            else row["difference"] / row["margin"],
            reason=row["reason"],
        )
        for row in rows
    }
