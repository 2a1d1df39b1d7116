"""An NVFlare run of two sites, recorded and audited, beside ten simulated runs of the same recipe and records.

    python bench/nvflare_run.py OUT [--write docs/results/bench/nvflare.json] [--external]

The job runs in NVFlare's simulator and is recorded by both sites and the server; the arrays must be equal to the bit.
With `--external` every site trains in another process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SITES, ROUNDS = 2, 3
ATTACKS = """
[[attack]]
name = "attribute-from-model"
{targets}

[[attack]]
name = "membership-loss"
{targets}
"""
RECORDS = """
[data]
path = "{records}"
ready = true
use = "part"
groups = {{ smoker = [14] }}
sensitive = "smoker"
{more}

[model]
factory = "nvflare_site:Net"

[federation]
epochs = 20
batch_size = 16
learning_rate = 0.1
"""
RECORDED = """
name = "recorded"
[transcript]
path = "both-sites"
optimizer = "sgd"
examples = "any"
"""
SIMULATED = """
name = "simulated"
seeds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""


def write_records(path: Path, sites: Sequence[int]) -> None:
    """Write the synthetic visits of these clinics, with the use of each record."""
    from fedxray import load, split

    data = load("clinic", clients=SITES, records=200, seed=0)
    parts = split(data, clients=SITES, partition="as-given", holdout=0.4, seed=0)
    uses = [("public", parts.public, sites[0])]
    uses += [(word, rows[site], site) for word, rows in (("train", parts.train), ("holdout", parts.holdout))
             for site in sites]  # fmt: skip
    np.savez(
        path,
        x=np.concatenate([data.x[rows].numpy() for _, rows, _ in uses]),
        y=np.concatenate([data.y[rows].numpy() for _, rows, _ in uses]),
        part=np.concatenate([np.full(len(rows), word) for word, rows, _ in uses]),
        client=np.concatenate([np.full(len(rows), site) for _, rows, site in uses]),
    )


def federate(out: Path, external: bool) -> None:
    """Run the job in NVFlare's simulator."""
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv
    from nvflare_site import Net

    from fedxray.integrations.nvflare import record

    recipe = FedAvgRecipe(
        name="bench", model=Net(), min_clients=SITES, num_rounds=ROUNDS, train_script=str(HERE / "nvflare_site.py"),
        train_args=str(out), launch_external_process=external,
    )  # fmt: skip
    record(recipe, str(out / "both-sites"), server=str(out / "server"))
    recipe.execute(SimEnv(num_clients=SITES, workspace_root=str(out / "workspace")))


def compared(out: Path) -> int:
    """Return the number of replies that sites and server recorded; refused where a bit differs."""
    from fedxray.federation.recording.reader import read_recording

    sites, server = (
        {
            (one.node, one.round, one.sent.sha256, one.reply and one.reply.sha256)
            for one in read_recording(out / side).messages
        }
        for side in ("both-sites", "server")
    )
    if sites != server or len(server) != SITES * ROUNDS:
        sys.exit(f"sites recorded {len(sites)} replies, the server {len(server)}, {len(sites & server)} the same")
    return len(server)


def audited(out: Path, name: str, plan: str) -> list[dict[str, Any]]:
    """Audit a plan and return what its rows state."""
    (out / f"{name}.toml").write_text(plan)
    command = [sys.executable, "-m", "fedxray", "audit", str(out / f"{name}.toml"), "--out", str(out / name), "--quiet"]
    subprocess.run(
        command, check=True, cwd=out, env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
    )
    rows = json.loads((out / name / "results.json").read_text())["summary"]
    keys = ("attack", "metric", "mean", "mean_low", "mean_high", "difference", "low", "high", "state", "n")
    return [{key: row[key] for key in keys} for row in rows if row["primary"]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--write", type=Path)
    options.add_argument("--external", action="store_true")
    chosen = options.parse_args()
    out = chosen.out.absolute()
    out.mkdir(parents=True)
    for name, sites in (("site-1", [0]), ("site-2", [1]), ("everyone", [0, 1])):
        write_records(out / f"{name}.npz", sites)
    federate(out, chosen.external)
    equal = compared(out)
    print(f"{equal} replies equal to the bit on both sides", flush=True)
    recorded = RECORDED + RECORDS.format(records="site-1.npz", more='node = "site-1"')
    many = (
        RECORDS.format(records="everyone.npz", more=f'clients = {SITES}\npartition = "as-given"')
        + f"rounds = {ROUNDS}\n"
    )
    rows = {
        "recorded": audited(out, "recorded", recorded + ATTACKS.format(targets="")),
        "simulated": audited(out, "simulated", SIMULATED + many + ATTACKS.format(targets="targets = [0]")),
    }
    for name, part in rows.items():
        for row in part:
            print(name, *row.values())
    if chosen.write:
        chosen.write.write_text(json.dumps({"replies_equal": equal, **rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
