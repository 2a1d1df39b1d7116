"""Error rates of audits: simulated ones (`--simulate`), null audits, whose messages are noise, and planted leaks.

Simulations (`simulations.py`) draw scores and judge them by the project's rule; the tables go to a JSON file.

A null audit is an ordinary audit in which every client sends noise in place of its update. An audit counts as "leaks"
if any of its rows does. Planted leaks are those of the power check, as an audit of their own. Every audit has its own
seeds. The limits are at most 5 % of 200 null audits and at least 95 % of 50 planted ones (`--nulls 200 --leaks 50`);
the default is smaller. The last line is `null: X of N leaks, planted: Y of M leaks`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.audit.judge import statistics
from fedxray.audit.judge.summary import summarise
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.execute import execute_case, execute_run
from fedxray.audit.run.grid import Case, Run, planted_case
from fedxray.audit.run.store import open_store
from fedxray.audit.workers.engines import make_engine
from fedxray.defences.base import Defence, Hooks, State, Work
from fedxray.files import write_whole
from fedxray.seeds import normal_like

HERE = Path(__file__).resolve().parent
SEEDS, CLIENTS, PLANTED_SEEDS = 3, 3, 5
TABLE_ATTACKS = ("attribute-from-model", "attribute-from-gradients", "membership-loss", "source-majority")
MOST_FALSE, LEAST_FOUND = 0.05, 0.95


@dataclass(frozen=True, kw_only=True)
class NoiseOnly(Defence):
    """Noise in place of the update."""

    name: ClassVar[str] = "noise-only"

    def hooks(self, work: Work) -> Hooks:
        """Replace the outgoing update by noise that does not depend on the records."""
        return Hooks(outgoing=_noise)

    def describe(self) -> str:
        """Return the line for the attacker knowledge."""
        return "noise in place of every update"


def _noise(update: dict[str, Tensor], state: State, generator: torch.Generator) -> tuple[dict[str, Tensor], State]:
    return {name: 0.01 * normal_like(value, generator) for name, value in update.items()}, state


def plan_for(number: int, defences: list[dict[str, Any]], attacks: list[dict[str, Any]] | None = None) -> Plan:
    """Return a small plan with its own seeds: a table of three clinics (even numbers) or images of three clients."""
    document: dict[str, Any] = {
        "name": f"audit-{number}",
        "seeds": [SEEDS * number + index for index in range(SEEDS)],
        "data": {"name": "clinic", "clients": CLIENTS, "partition": "as-given", "records": 60, "sensitive": "smoker"},
        "model": {"name": "mlp", "hidden": [8]},
        "federation": {"rounds": 3, "epochs": 2, "batch_size": 16, "learning_rate": 0.05, "record": "last"},
        "defence": defences,
        "attack": attacks or [{"name": name} for name in TABLE_ATTACKS],
    }
    document["data"]["holdout"] = 0.2
    if number % 2 and attacks is None:
        document["data"] = {"name": "digits", "clients": CLIENTS, "limit": 24, "holdout": 0.2, "public": 0.1}
        document["federation"] = {"algorithm": "fedsgd", "rounds": 1}
        document["attack"] = [{"name": "inverting-gradients", "steps": 30}, {"name": "membership-loss"}]
    return make_plan(document, HERE)


def null_audit(number: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of an audit without any signal."""
    plan = plan_for(number, [{"factory": "verdicts:NoiseOnly", "label": "noise-only"}])
    with make_engine("inline", None) as workers:
        done = run_audit(plan, folder, engine=workers, power=False, resume=folder.exists())
    rows: list[dict[str, Any]] = done.document["summary"]
    return rows


def planted_audit(number: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of an audit with planted attributes (even numbers) or members (odd numbers)."""
    label, kind = (("attribute-from-model", "attributes"), ("membership-loss", "membership"))[number % 2]
    plan = plan_for(number, [{"name": "none"}], [{"name": label}])
    # All clients reveal planted attributes alike, which no swap shows: the run test decides one row from 5 runs on.
    plan = plan.with_seeds([PLANTED_SEEDS * number + index for index in range(PLANTED_SEEDS)])
    cases = [
        planted_case(seed, "none", plan.attack_of(label), client, kind)
        for seed in plan.seeds
        for client in range(CLIENTS)
    ]
    with open_store(folder, plan.digest(), resume=folder.exists()) as store:
        for seed in plan.seeds:
            run_id = next(case.run for case in cases if case.seed == seed)
            execute_run(plan, store, Run(id=run_id, defence="none", seed=seed, plant=kind))
        return summarise([_ended(plan, case, store) for case in cases])


def weak_audit(number: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of an audit whose members leak by about two margins (AUC 0.6)."""
    document = plan_for(2 * number, [{"name": "none"}], [{"name": "membership-loss"}]).to_document()
    document["federation"] |= {"epochs": 3, "learning_rate": 0.07}
    with make_engine("inline", None) as workers:
        done = run_audit(make_plan(document, HERE), folder, engine=workers, power=False, resume=folder.exists())
    rows: list[dict[str, Any]] = done.document["summary"]
    return rows


def _ended(plan: Plan, case: Case, store: Any) -> dict[str, Any]:
    execute_case(plan, store, case)
    result: dict[str, Any] = store.read_case(case.id)
    return result


def judged(
    audit: Callable[[int, Path], list[dict[str, Any]]], first: int, count: int, name: str, keep: Path | None
) -> dict[str, Any]:
    """Return how many audits have any row of each state, and the p-values of every test; prints what is wrong.

    Audits that are kept in a folder are not run again, only judged.
    """
    states: Counter[str] = Counter()
    leaks = 0
    ps: dict[str, list[float]] = {}
    before = time.perf_counter()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            rows = [
                row
                for row in audit(number, (keep or Path(folder)) / f"{name.replace(' ', '-')}-{number}")
                if row["primary"]
            ]
        states.update({row["state"] for row in rows})
        leaks += any(row["verdict"] == "leaks" for row in rows)  # also a small one
        for row in rows:
            for test, p in (("split", row["p_split"]), ("swap", row["p_swap"])):
                if p is not None and row["aware"] is not True:  # twins of noise
                    ps.setdefault(f"{row['attack']} {test}", []).append(round(p, 5))
        wrong = [row for row in rows if (row["verdict"] == "leaks") == (name == "null")]
        if name == "null" or len(wrong) == len(rows):
            for row in wrong:
                print(f"  {name} audit {number}: {row['attack']}: {row['state']}: {row['reason']}", flush=True)
    spent = (time.perf_counter() - before) / max(count, 1)
    print(f"{name}: {leaks} of {count} leaks, {spent:.1f} s per audit; {dict(states)}", flush=True)
    small = {test: round(sum(p <= 0.05 for p in values) / len(values), 4) for test, values in ps.items()}
    return {"audits": count, "leaks": leaks, "states": dict(states), "share of p at most 0.05": small}


def simulate_all(path: Path) -> int:
    """Write the tables of all simulations; wrong where an audit without a leak is called one in over 5 %."""
    import simulations

    statistics.DRAWS = 1_999  # fewer joint assignments than an audit draws: as exact, and five times as fast
    tables: dict[str, list[dict[str, Any]]] = {}
    for table in (simulations.false_leaks, simulations.found_leaks, simulations.reassured, simulations.with_auto_seeds):
        tables[table.__name__] = []
        for row in table():
            tables[table.__name__].append({key: _rounded(value) for key, value in row.items()})
            print(tables[table.__name__][-1], flush=True)
    write_whole(path, (json.dumps(tables, indent=1) + "\n").encode(), "tables")
    # The largest of many cells exceeds 5 % by chance: three standard errors are allowed.
    high = [
        row
        for row in tables["false_leaks"]
        for rows, audits in simulations.ROWS.items()
        if row[f"rows {rows}"] > MOST_FALSE + 3 * (MOST_FALSE * (1 - MOST_FALSE) / audits) ** 0.5
    ]
    safe = [row for row in tables["reassured"] if row["margins 2"] > MOST_FALSE]
    print(f"false leaks above 5 %: {high or 'none'}; false reassurance at 2 margins: {safe or 'none'}")
    return 1 if high or safe else 0


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def main() -> int:
    """Run both kinds and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nulls", type=int, default=5, help="null audits")
    parser.add_argument("--leaks", type=int, default=4, help="audits of planted leaks")
    parser.add_argument("--weak", type=int, default=2, help="audits of a leak of about two margins")
    parser.add_argument("--out", type=Path, help="also write the counts to this JSON file")
    parser.add_argument("--first", type=int, default=0, help="number of the first audit, to continue an earlier run")
    parser.add_argument("--keep", type=Path, help="keep the audits in this folder, and judge those that are there")
    parser.add_argument("--simulate", type=Path, help="write the tables of all simulations to this JSON file instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.simulate is not None:
        return simulate_all(options.simulate)
    tables = {
        "null": judged(null_audit, options.first, options.nulls, "null", options.keep),
        "planted": judged(planted_audit, 100_000 + options.first, options.leaks, "planted", options.keep),
        "two margins": judged(weak_audit, 200_000 + options.first, options.weak, "two margins", options.keep),
    }
    if options.out is not None:
        write_whole(options.out, (json.dumps(tables, indent=1) + "\n").encode(), "tables")
    false, found = (tables[name]["leaks"] for name in ("null", "planted"))
    print(f"null: {false} of {options.nulls} leaks, planted: {found} of {options.leaks} leaks")
    few = options.nulls < 100  # a single false alarm among few audits is no evidence
    wrong = false > max(MOST_FALSE * options.nulls, 1 if few else 0)
    return 1 if wrong or found < LEAST_FOUND * options.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
