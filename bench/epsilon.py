"""Epsilon measured by canaries against the accountant of dp-sgd, with a false claim and without any defence.

    python bench/epsilon.py [--runs 10] [--kind gradients] [--batch 32] [--write docs/results/bench/epsilon.json]

Ten clients of Adult with 200 records each train an MLP of 11,266 parameters for 10 rounds of one epoch, batch 32 by
Poisson sampling, clipping norm 1: 70 steps; with `--batch all` 10 steps of all records, without sampling.
Each client has 100 canaries. `false` claims epsilon 1 with a tenth of its noise.
Bounds are given for single runs (mean, smallest and largest) and for all runs together. One thread, CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedxray.audit.judge.claims import canary_rows
from fedxray.audit.plan.read import make_plan
from fedxray.audit.plan.schema import CanariesPart
from fedxray.audit.run.canaries import Canaries, measure_canaries, put_canaries
from fedxray.audit.run.power import random_targets
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.utility import promised, utility_of
from fedxray.defences.base import Defence, NoDefence
from fedxray.defences.dp_sgd import DpSgd
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation

PLAN: dict[str, Any] = {
    "data": {"name": "adult", "clients": 10, "limit": 200, "public": 0.05},
    "model": {"name": "mlp", "hidden": [64, 64]},
    "federation": {"rounds": 10, "batch_size": 32, "learning_rate": 0.1},
    "attack": [{"name": "membership-best"}],
}
CANARIES = 100  # of each client
LEVELS = ("1", "4", "10", "30", "none", "false")


def defence_of(level: str, federation: Federation) -> Defence:
    """The defence of a level; `false` has a tenth of the noise of epsilon 1."""
    if level == "none":
        return NoDefence()
    claimed = DpSgd(epsilon=1.0 if level == "false" else float(level), delta=1e-5, clip=1.0)
    if level != "false":
        return claimed
    return DpSgd(noise_multiplier=claimed.noise_for(federation.work(0)) / 10, delta=1e-5, clip=1.0)


def measured(level: str, kind: str, batch: int | str, seed: int) -> dict[str, Any]:
    """What the canaries of one run show, its accountant's epsilon, accuracy and CPU seconds."""
    start = time.process_time()
    plan = PLAN | {"federation": PLAN["federation"] | {"batch_size": batch}}
    plain = prepare(make_plan(plan, Path.cwd()), "none", seed).federation
    plain = replace(plain, defence=defence_of(level, plain))
    part = CanariesPart.model_validate({"records": CANARIES, "kind": kind})
    federation = put_canaries(plain, part, seed, random_targets)
    transcript, truth = simulate(federation, seed=seed)
    assert isinstance(federation.planted, Canaries)
    promise = promised(federation, 0, federation.rounds)
    return {
        "found": measure_canaries(federation.planted, federation, transcript, truth),
        "accounted": None if promise is None else promise["epsilon"],
        "accuracy": utility_of(transcript, truth)["accuracy"],
        "seconds": time.process_time() - start,
    }


def table(level: str, kind: str, batch: int | str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per method: bounds of single runs, and of all runs together."""
    single = [canary_rows({level: [run["found"]]}) for run in runs]
    pooled = {row["method"]: row for row in canary_rows({level: [run["found"] for run in runs]})}
    rows = []
    for method, together in pooled.items():
        own = [next(row for row in rows_of_run if row["method"] == method) for rows_of_run in single]
        lows, estimates = [row["low"] for row in own], [row["estimate"] for row in own]
        accounted = runs[0]["accounted"]
        rows.append(
            {
                "level": level,
                "canaries": kind,
                "batch": batch,
                "method": method,
                "runs": len(runs),
                "accounted": accounted,
                "estimate": None if estimates[0] is None else statistics.mean(estimates),
                "low": statistics.mean(lows),
                "low_least": min(lows),
                "low_most": max(lows),
                "ceiling": statistics.mean(row["ceiling"] for row in own),
                "above_accounted": None if accounted is None else sum(low > accounted for low in lows),
                "above_claim": sum(low > 1.0 for low in lows) if level == "false" else None,
                "low_together": together["low"],
                "ceiling_together": together["ceiling"],
                "accuracy": statistics.mean(run["accuracy"] for run in runs),
                "cpu_seconds": statistics.mean(run["seconds"] for run in runs),
            }
        )
    return rows


def main() -> None:
    """Print a row per level and method, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kind", default="gradients", choices=["gradients", "records", "random-targets"])
    parser.add_argument("--levels", nargs="+", default=list(LEVELS), choices=LEVELS)
    parser.add_argument("--batch", default="32")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kind, batch = arguments.kind, "all" if arguments.batch == "all" else int(arguments.batch)
    for level in arguments.levels:
        rows = table(level, kind, batch, [measured(level, kind, batch, seed) for seed in range(arguments.runs)])
        for row in rows:
            shown = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
            print(shown, flush=True)
        if arguments.write is not None:
            known = json.loads(arguments.write.read_text()) if arguments.write.is_file() else []
            others = [row for row in known if (row["level"], row["canaries"], row["batch"]) != (level, kind, batch)]
            arguments.write.write_text(json.dumps(others + rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
