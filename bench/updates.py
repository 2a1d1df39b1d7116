"""attribute-from-updates against other attacks and the floor, its controls, and what weakens it.

    python bench/updates.py [ROW ...] [--seeds 3] [--first 21] [--clients 4] [--write docs/results/bench/updates.json]

A row is a data set (`medical`), a change of one (`adult epochs=5`), or `tables` or `sweeps` for all of these. Printed
are accuracies in percent, means over clients and runs: of the floor, from a model, from gradients, from updates; then
from updates on held-out records mixed into the question, of the floor there, of the training records in that same
answer, and with the next client's messages; last updates - gradients, with its 95 % interval over runs. Changes have
floor, updates and updates - floor alone. The attack was developed on seed 0 and checked on 11 to 13, so that
measurements begin at 21. `--write` adds to the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, attribute_order, attribute_rows, disclose
from fedxray.adversary.view import PublicAttributes, View
from fedxray.attacks.attributes.from_updates import AttributeFromUpdates
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit import catalog
from fedxray.audit.judge.statistics import interval
from fedxray.audit.plan import make_plan
from fedxray.audit.run.comparisons import declared_grants
from fedxray.audit.run.prepare import prepare
from fedxray.federation.round_loop import simulate
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.seeds import fork, permutation

DOLLARS = {"rounds": 100, "batch_size": 32, "record": "every-10"}
CLASSES = {"rounds": 50, "batch_size": 32, "learning_rate": 0.05, "record": "every-5"}
INCOME = {"name": "acs-income", "partition": "income-correlation", "heterogeneity": 0.4, "limit": 300, "holdout": 0.02,
          "public": 0.05}  # fmt: skip
DATA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # [data] and [federation]
    "diabetes": ({"name": "diabetes", "sensitive": "sex"}, {**CLASSES, "batch_size": 16, "learning_rate": 0.02}),
    "adult": ({"name": "adult", "sensitive": "sex", "limit": 300, "holdout": 0.01, "public": 0.02}, CLASSES),
    "medical": ({"name": "medical", "sensitive": "smoker"}, {**DOLLARS, "learning_rate": 2e-6}),
    "ct": ({**INCOME, "state": "CT"}, {**DOLLARS, "learning_rate": 5e-7}),
    "ne": ({**INCOME, "state": "NE", "partition": "iid"}, CLASSES),
}
WIDE = ("medical", "ct")  # 128 units instead of 64, as their paper has it
SWEEPS = [
    *(f"adult epsilon={value}" for value in (1, 8)), "adult clip=1", "adult clip=0.1",
    *(f"adult batch_size={value}" for value in (8, 128, "all")), *(f"adult epochs={value}" for value in (5, 10)),
    *(f"adult known={value}" for value in (0.5, 0.8)), *(f"adult limit={value}" for value in (50, 100, 1000, 2000)),
]  # fmt: skip


def plan_of(row: str, clients: int) -> tuple[dict[str, Any], float]:
    """Return the plan of a row, and the share of the client's training records among those asked about."""
    name, *changes = row.split()
    data, federation = map(dict, DATA[name])
    defence, known = {"name": "none"}, 1.0
    for change in changes:
        key, text = change.split("=")
        value = text if text == "all" else float(text) if "." in text else int(text)
        if key == "known":
            known = float(value)
        elif key in ("epsilon", "clip"):  # clipping alone is DP-SGD with next to no noise
            defence = {"name": "dp-sgd", "clip": 1.0, "delta": 1e-5, key: value}
            defence |= {"noise_multiplier": 1e-4} if key == "clip" else {}
        else:
            (data if key == "limit" else federation)[key] = value
    if name == "medical":
        clients = 2  # as in the paper
    if data["name"] == "acs-income" and data["state"] == "NE":
        del data["heterogeneity"]
    document = {
        "data": {"clients": clients, **data}, "model": {"name": "mlp", "hidden": [128 if name in WIDE else 64]},
        "federation": federation, "defence": [defence], "attack": [{"name": "attribute-from-updates"}],
    }  # fmt: skip
    return document, known


def view_of(run: tuple[Transcript, Truth], attack: Attack, client: int, rows: Rows, messages_of: int) -> View:
    """Return the view of a server that knows the defence, if any."""
    names = {*declared_grants(attack), "public-records", "defence", "examples"}
    return roles.server(run[0], client=messages_of, grants=disclose(run[1], sorted(names), client=client, rows=rows))


def hits(evidence: Evidence, truth: Truth, client: int, rows: Rows, kept: Tensor) -> Tensor:
    """Return whether each guess is right, [kept] bool."""
    column = truth.space.column(truth.space.sensitive or "")
    real, guess = attribute_rows(truth, client, rows=rows).x[kept][:, list(column.positions)], evidence.tensors["codes"]
    codes = column.candidates(real)
    return (real[:, None] - codes).abs().sum(-1).argmin(1) == (guess[:, None] - codes).abs().sum(-1).argmin(1)


def share(right: Tensor) -> float:
    return float(right.double().mean())


def partly_known(view: View, share: float) -> tuple[View, Tensor]:
    """Return the view with a share of the records asked about, and which they are."""
    given = view.grants.public_attributes
    assert given is not None
    kept = permutation(len(given.x), fork(0, "known"))[: round(share * len(given.x))].sort().values
    asked = PublicAttributes(x=given.x[kept], y=given.y[kept])
    return replace(view, grants=replace(view.grants, public_attributes=asked)), kept


def one_client(run: tuple[Transcript, Truth], client: int, known: float, tables: bool) -> dict[str, float]:
    """Return the accuracies about one client: of floor and attack, for tables of other attacks and of controls too."""
    truth, generator = run[1], fork(run[1].seed, "bench", client)
    ours, floor = AttributeFromUpdates(messages=10), catalog.floor_for("imputation", "attributes")

    def right(attack: Attack, rows: Rows = "train", messages_of: int = client, known: float = 1.0) -> Tensor:
        view, kept = partly_known(view_of(run, attack, client, rows, messages_of), known)
        return hits(attack.run(view, generator=generator), truth, client, rows, kept)

    found = {"floor": share(right(floor, known=known)), "updates": share(right(ours, known=known))}
    if not tables:
        return found
    for name in ("model", "gradients"):
        found[name] = share(right(catalog.make_attack(f"attribute-from-{name}", {})))
    found["other-client"] = share(right(ours, messages_of=(client + 1) % len(truth.train)))
    held = attribute_order(truth, client, rows="mixed") >= len(truth.train[client])
    if bool(held.any()):
        mixed, blind = right(ours, "mixed"), right(floor, "mixed")
        found |= {"held-out": share(mixed[held]), "of these": share(mixed[~held]), "floor there": share(blind[held])}
    return found


def measured(row: str, seeds: Sequence[int], clients: int) -> dict[str, Any]:
    """Return the accuracies of a row by seed and client."""
    document, known = plan_of(row, clients)
    plan, runs = make_plan(document, Path()), {}
    for seed in seeds:
        federation = prepare(plan, plan.defences[0].title, seed).federation
        run = simulate(federation, seed=seed)
        runs[str(seed)] = [one_client(run, client, known, row in DATA) for client in range(len(federation.clients))]
    records = round(statistics.mean(len(one) for one in federation.clients))
    return {"plan": document, "known": known, "records": records, "runs": runs}


def shown(row: str, result: dict[str, Any]) -> str:
    """Return a row as a line of a table."""
    runs = list(result["runs"].values())
    names = ("floor", "model", "gradients", "updates", "held-out", "floor there", "of these", "other-client")

    def by_run(name: str) -> list[float]:
        return [100 * statistics.mean(one[name] for one in run if name in one) for run in runs]

    cells = [f"{statistics.mean(by_run(name)):.1f}" if name in runs[0][0] else "" for name in names]
    other = "gradients" if "gradients" in runs[0][0] else "floor"
    units = [(100 * (one["updates"] - one[other]), seed) for seed, run in enumerate(runs) for one in run]
    gain = interval(*zip(*units, strict=True))
    limits = "" if gain.low is None or gain.high is None else f" ({gain.low:.1f} to {gain.high:.1f})"
    cells.append(f"{gain.mean:.1f}{limits}")
    return f"| {row} ({result['records']}; {len(runs[0])} x {len(runs)}) | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=["tables"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=21)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    named = {"tables": list(DATA), "sweeps": SWEEPS}
    for row in [one for asked in options.rows for one in named.get(asked, [asked])]:
        begin = time.process_time()
        result = measured(row, range(options.first, options.first + options.seeds), options.clients)
        print(shown(row, result), f"{time.process_time() - begin:.0f} s", flush=True)
        if options.write is not None:
            stored = json.loads(options.write.read_text()) if options.write.exists() else {}
            options.write.write_text(json.dumps({**stored, row: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
