"""Class counts of single clients from the metrics that they report under secure aggregation (`labels-from-metrics`).

    python bench/metrics.py STORE [--write docs/results/bench/metrics.json]

Six clients of 200 records with classes divided by Dirichlet(0.5), ten rounds, ten runs; the server sees sums alone, and
the loss and accuracy of each model that it sends. Without metrics the attack is refused: the floor is what is left.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit

DATA: dict[str, dict[str, Any]] = {"adult": {"public": 0.05}, "fashion-mnist": {"public": 0.02}}
EPOCHS = {"adult": 2, "fashion-mnist": 1}
SHOWN = ("metric", "mean", "floor", "difference", "low", "high", "state", "n")


def main() -> None:
    """Run both audits, print and store their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    table = {}
    for name, more in DATA.items():
        recipe = {"rounds": 10, "epochs": EPOCHS[name], "batch_size": 32, "learning_rate": 0.1}
        plan = {
            "data": {"name": name, "clients": 6, "limit": 200, "partition": "dirichlet", "alpha": 0.5, **more},
            "model": {"name": "mlp", "hidden": [64]},
            "federation": {**recipe, "secure_aggregation": True},
            "attack": [{"name": "labels-from-metrics", "role": "secure-aggregation"}],
            "seeds": list(range(10)),
        }
        folder = options.store / name
        document = run_audit(make_plan(plan, Path.cwd()), folder, resume=folder.exists(), power=False).document
        table[name] = [{key: row[key] for key in SHOWN} for row in document["summary"]]
        print(name, *table[name], sep="\n", flush=True)
    if options.write is not None:
        options.write.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
