"""What the stock filters of NVFlare and Flower leave to see at their defaults, on a table and on images.

    python bench/filters.py [--out fedxray-out/filters] [--write docs/results/bench/filters.json]

Table: three clients of Adult with 150 records, ten rounds of five epochs; is the sensitive column named
(`attribute-from-updates`), are members found (`membership-best`)? Images: one step of two pictures of clothes from
each of three shops (`inverting-gradients`). Three seeds. Of an aware and an unaware attacker the stronger one is shown.
Epsilon as configured and as accounted for all rounds is that of `fedxray claim`. Flower's mods have no defaults: its
documentation's values are used. The audits lie in --out and are continued where they were stopped.
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
}
ROUNDS = 10
PLANS: dict[str, dict[str, Any]] = {
    "table": {
        "data": {"name": "adult", "sensitive": "sex", "clients": 3, "limit": 150, "holdout": 0.3},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": ROUNDS, "epochs": 5, "learning_rate": 0.1},
        "attack": [{"name": "attribute-from-updates"}, {"name": "membership-best"}],
    },
    "images": {
        "data": {"name": "fashion-mnist", "clients": 3, "limit": 2, "holdout": 0.5},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": 1, "epochs": 1, "batch_size": "all", "learning_rate": 0.1},
        "attack": [{"name": "inverting-gradients", "steps": 400}],
    },
}


def plan_of(name: str) -> Plan:
    """The plan of all filters on one data set."""
    defences = [{"name": label, **settings} for label, settings in FILTERS.items()]
    return make_plan(PLANS[name] | {"seeds": [0, 1, 2], "defence": defences}, Path.cwd())


def audited(name: str, out: Path) -> dict[str, Any]:
    """The results of one audit of all filters."""
    run_audit(plan_of(name), out / name, resume=(out / name).exists())
    document: dict[str, Any] = json.loads((out / name / "results.json").read_text(encoding="utf-8"))
    return document


def strongest(document: dict[str, Any], attack: str, defence: str) -> dict[str, Any]:
    """The primary row of the attacker that gains most."""
    rows = [
        row for row in document["summary"] if row["primary"] and (row["attack"], row["defence"]) == (attack, defence)
    ]
    best = max(rows, key=lambda row: row["difference"] if row["difference"] is not None else -1e9)
    return {key: best[key] for key in ("metric", "mean", "floor", "difference", "low", "high", "state", "aware")}


def epsilons(defence: str, numbers: int) -> dict[str, float | None]:
    """Epsilon as configured and as accounted for all rounds, where the filter states one."""
    settings = {
        "flower-local-dp": [f"{key}={value}" for key, value in FILTERS["flower-local-dp"].items()],
        "nvflare-svt": [f"numbers={numbers}"],
    }
    if defence not in settings:
        return {"configured": None, "accounted": None}
    claim = work_out(defence, [*settings[defence], f"rounds={ROUNDS}"])[-1]
    return {"configured": claim.configured, "accounted": claim.accounted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("fedxray-out/filters"))
    parser.add_argument("--write", type=Path, help="also write the table to this JSON file")
    options = parser.parse_args()
    documents = {name: audited(name, options.out) for name in PLANS}
    numbers = sum(value.numel() for value in prepare_first(plan_of("table")).federation.model.parameters())
    table = []
    for defence in FILTERS:
        row: dict[str, Any] = {"defence": defence, **epsilons(defence, numbers)}
        for name, document in documents.items():
            for attack in PLANS[name]["attack"]:
                row[attack["name"]] = strongest(document, attack["name"], defence)
            row[f"utility of {name}"] = [one for one in document["utility"] if one["defence"] == defence]
        table.append(row)
        shown = "  ".join(
            f"{key} {value['mean']:.3f} over {value['floor']:.3f} ({value['state']})"
            for key, value in row.items()
            if isinstance(value, dict)
        )
        print(f"{defence}: {shown}", flush=True)
    if options.write is not None:
        options.write.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
