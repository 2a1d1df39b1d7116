"""Which client does a record belong to? Attacks on sources, on records trained on and on held-out ones.

    python bench/sources.py [DATA ...] [--seeds 3] [--first 11] [--write docs/results/bench/sources.json]

Ten clients with 30 training records each, all of them asked about (chance 10 %): 200 rounds, ten of them read.
Printed are means over owners and runs in percent with 95 % intervals over runs: of training records, and of held-out
records that are mixed into the question. The oracle trains a model on each client's records. `--write` replaces the
rows of these data in the file.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge.statistics import interval
from fedxray.audit.plan import make_plan
from fedxray.audit.run.comparisons import CaseContext
from fedxray.audit.run.prepare import prepare
from fedxray.federation.round_loop import simulate

CLIENTS = 10
COMMON = {"clients": CLIENTS, "limit": 40, "holdout": 0.25, "public": 0.1}
DATA: dict[str, dict[str, Any]] = {
    "adult": {"name": "adult", "partition": "adult-doctorate", "total": 1200, **COMMON},
    "leaf": {"name": "leaf-synthetic", "dims": 20, "samples": 60, "partition": "as-given", **COMMON},
}
ATTACKS: dict[str, dict[str, Any]] = {
    "last returned": {"name": "source-from-model"},
    "extrapolate 20": {"name": "source-from-model", "model": {"name": "local-model-extrapolate", "multiple": 20.0}},
    "majority": {"name": "source-majority"},
    "from updates": {"name": "source-from-updates"},
    "oracle": {
        "name": "source-from-model",
        "model": {"name": "local-model-oracle", "steps": 600, "rates": [0.01]},
        "grants": ["source-records", "oracle-groups"],
    },
}


def measured(data: str, seed: int) -> dict[str, dict[str, float]]:
    """Return by attack the mean over owners of the share assigned correctly, of training and of held-out records."""
    labelled = [{**settings, "label": label} for label, settings in ATTACKS.items()]
    recipe = {"rounds": 200, "learning_rate": 0.05, "batch_size": 32, "record": "every-20", "weighting": "uniform"}
    model = {"name": "mlp", "hidden": [64]}
    plan = make_plan({"data": DATA[data], "model": model, "federation": recipe, "attack": labelled}, Path.cwd())
    transcript, truth = simulate(prepare(plan, "none", seed).federation, seed=seed)
    found: dict[str, dict[str, float]] = {}
    for part in plan.attacks:
        context = CaseContext(
            part=part, attack=part.make(plan.folder), transcript=transcript, truth=truth, client=None, aware=None
        )

        def answer(rows: Any, context: CaseContext = context) -> Evidence:
            return context.infer(context.attack, context.view(context.attack, rows=rows), own=True)

        start = time.process_time()
        train = context.score(answer("train")).scores.means["accuracy"]
        seconds = time.process_time() - start
        held = context.score(answer("mixed"), "mixed").scores.means["accuracy"]
        found[part.title] = {"train": train, "held_out": held, "seconds": seconds}
        print(
            f"{data} seed {seed} {part.title}: {100 * train:.1f}, held out {100 * held:.1f}, {seconds:.1f} s",
            flush=True,
        )
    return found


def summary(data: str, runs: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Return one row per attack: means and intervals over runs."""
    rows = []
    for attack in ATTACKS:
        row: dict[str, Any] = {"data": data, "attack": attack, "clients": CLIENTS, "runs": len(runs)}
        parts = {name: [run[attack][name] for run in runs] for name in ("train", "held_out")}
        parts["difference"] = [one - other for one, other in zip(*parts.values(), strict=True)]
        for name, values in parts.items():
            over = interval(values, list(range(len(values))))
            row[name] = {"mean": over.mean, "low": over.low, "high": over.high}
        rows.append({**row, "seconds": sum(run[attack]["seconds"] for run in runs) / len(runs)})
    return rows


def main() -> None:
    """Measure the data sets that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="*", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=11)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    for data in asked.data:
        rows = summary(data, [measured(data, asked.first + seed) for seed in range(asked.seeds)])
        print(json.dumps(rows))
        if asked.write is not None:
            known = json.loads(asked.write.read_text()) if asked.write.is_file() else []
            kept = [row for row in known if row["data"] != data]
            asked.write.write_text(json.dumps([*kept, *rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
