"""What the stock filters of NVFlare and Flower leave to see at their defaults, on a table and on images.

    python bench/filters.py STORE [--write docs/results/bench/filters.json] [--filters none ...] [--seeds 5]

Table: four clients of Adult with 200 training records, ten rounds of two epochs; is the sensitive column inferred
(`attribute-from-updates`), are members found among as many others (`membership-best`)? Images: one step of four
pictures of clothes from each of four shops (`inverting-gradients`). Of an aware and an unaware attacker the stronger
one is shown, with the 95 % interval of its gain over runs; without controls and power checks, which change no gain.
Epsilon for all rounds: as configured, as accounted (`fedxray claim`; of one client for the frameworks' filters, of one
record for dp-sgd), and as measured by canaries of that unit. Flower's mods have no defaults for clipping and noise:
values of its documentation. One data set under one filter is a cell: an audit in STORE that is continued where it
stopped; `--write` adds every cell that is done.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedxray.audit.accounting import work_out
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.prepare import prepare_first

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "nvflare-percentile": {},
    "nvflare-svt": {},
    "nvflare-exclude": {"names": "bias"},
    "flower-local-dp": {"clipping_norm": 1.0, "sensitivity": 1e-4, "epsilon": 10.0, "delta": 1e-5},
    "flower-fixed-clipping": {"clipping_norm": 1.0},
    "flower-adaptive-clipping": {},
    "dp-sgd": {"epsilon": 8.0, "delta": 1e-5, "clip": 1.0},  # for comparison
}
ROUNDS = 10
PLANS: dict[str, dict[str, Any]] = {
    "table": {
        "data": {"name": "adult", "sensitive": "sex", "clients": 4, "limit": 200, "holdout": 0.02, "public": 0.02},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": ROUNDS, "epochs": 2, "batch_size": 32, "learning_rate": 0.1},
        "attack": [{"name": "attribute-from-updates", "controls": []}, {"name": "membership-best", "controls": []}],
        "canaries": {"records": 50, "clients": 20},
    },
    "images": {
        "data": {"name": "fashion-mnist", "clients": 4, "limit": 4, "holdout": 0.5, "public": 0.01},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": 1, "epochs": 1, "batch_size": "all", "learning_rate": 0.1},
        "attack": [{"name": "inverting-gradients", "steps": 400, "controls": []}],
    },
}
SHOWN = ("metric", "mean", "floor", "over", "difference", "low", "high", "aware", "n")


def plan_of(name: str, defence: str, seeds: int) -> Plan:
    """The plan of one filter on one data set."""
    settings = {"seeds": list(range(seeds)), "defence": [{"name": defence, **FILTERS[defence]}]}
    return make_plan(PLANS[name] | settings, Path.cwd())


def strongest(document: dict[str, Any], attack: str) -> dict[str, Any]:
    """The primary row of the attacker that gains most."""
    rows = [row for row in document["summary"] if row["primary"] and row["attack"] == attack]
    best = max(rows, key=lambda row: row["difference"] if row["difference"] is not None else -1e9)
    return {key: best[key] for key in SHOWN}


def epsilons(defence: str, document: dict[str, Any], numbers: int) -> dict[str, Any]:
    """Epsilon as configured and accounted for all rounds, where one is stated, and as measured."""
    settings = {
        "flower-local-dp": [f"{key}={value}" for key, value in FILTERS["flower-local-dp"].items()],
        "nvflare-svt": [f"numbers={numbers}"],
    }
    unit, rows = "record" if defence == "dp-sgd" else "client", document["canaries"]
    found: dict[str, Any] = {"unit": unit, "configured": None, "accounted": None}
    if defence in settings:
        claim = work_out(defence, [*settings[defence], f"rounds={ROUNDS}"])[-1]
        found |= {"configured": claim.configured, "accounted": claim.accounted}
    elif defence == "dp-sgd":
        row = next(row for row in rows if row["unit"] == unit)
        found |= {key: row[key] for key in ("configured", "accounted")}
    own = [row for row in rows if row["unit"] == unit and row["seen"] in ("replies", None) and row["low"] is not None]
    best = max(own, key=lambda row: row["low"], default=None)
    return found | {"measured": best and {key: best[key] for key in ("low", "estimate", "ceiling", "method", "n")}}


def cell(store: Path, name: str, defence: str, seeds: int) -> dict[str, Any]:
    """What one filter leaves to see on one data set, and the utility."""
    folder, plan = store / f"{name}-{defence}", plan_of(name, defence, seeds)
    run_audit(plan, folder, resume=folder.exists(), power=False)
    document: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    row = {attack["name"]: strongest(document, attack["name"]) for attack in PLANS[name]["attack"]}
    row |= {"utility": [{key: one[key] for key in ("metric", "value", "low", "high")} for one in document["utility"]]}
    if "canaries" in PLANS[name]:
        numbers = sum(value.numel() for value in prepare_first(plan).federation.model.parameters())
        row |= {"epsilon": epsilons(defence, document, numbers)}
    return row


def main() -> None:
    """Compute, print and store the cells one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--write", type=Path, help="add every cell to this JSON file")
    parser.add_argument("--filters", nargs="+", choices=FILTERS, default=list(FILTERS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    written = options.write is not None and options.write.exists()
    table = json.loads(options.write.read_text(encoding="utf-8")) if written else {}
    for name in PLANS:
        for defence in options.filters:
            row = cell(options.store, name, defence, options.seeds)
            table.setdefault(name, {})[defence] = row
            gains = [f"{key} {row[key]['mean']:.3f} over {row[key]['floor']:.3f}" for key in row if "-" in key]
            print(name, defence, *gains, row.get("epsilon", ""), flush=True)
            if options.write is not None:
                options.write.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
