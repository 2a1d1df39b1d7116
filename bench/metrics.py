"""Class counts of single clients from the metrics that they report under secure aggregation (`labels-from-metrics`).

    python bench/metrics.py STORE [--write docs/results/bench/metrics.json]

Six clients of 200 records with classes divided by Dirichlet(0.5), ten rounds, ten runs; the server sees sums alone, and
the loss and accuracy of each model that it sends, or of the model that each client returns ("after"), which the attack
does not expect. Without metrics the attack is refused: the floor is what is left. The attack was chosen on seeds 0 and
1 of Adult and Fashion-MNIST, so these seeds are left out, and the other data sets were not used before.

"counts" has other attacks on the sums of the same clients of Adult, where the server knows who took part with how many
examples, and where it does not.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.func import functional_call

from fedxray.adversary import disclose, roles
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.errors import Refused
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.losses import example_loss
from fedxray.params import add

DATA: dict[str, dict[str, Any]] = {
    "adult": {"public": 0.05},
    "fashion-mnist": {"public": 0.02},
    "mnist": {"public": 0.02},
    "cifar10": {"public": 0.02},
}
SEEDS = list(range(2, 12))
METRICS = {"name": "labels-from-metrics"}
COUNTS: tuple[dict[str, Any], ...] = (
    {"name": "membership-cosine"},
    {"name": "membership-best"},
    {"name": "attribute-from-model", "model": "global-model"},
    {"name": "labels-geng-end", "grants": ["recipe"]},
)
SHOWN = ("attack", "metric", "mean", "floor", "difference", "low", "high", "state", "n")


def after_training(truth: Truth, client: int, transcript: Transcript) -> dict[int, dict[str, float]]:
    """Return by round the loss and accuracy of the model that the client returned, on its training records."""
    records, reported = truth.train[client], {}
    for message in transcript.messages:
        if message.what == "reply" and message.client == client:
            sent = transcript.shelf.get(transcript.sent_to(client)[message.round])
            params = add(sent.params, transcript.shelf.get(message.parts).params)
            with torch.no_grad():
                output = functional_call(truth.model, {**params, **sent.buffers}, (records.x,))
            loss = float(example_loss(truth.recipe.loss)(output, records.y).mean())
            reported[message.round] = {"loss": loss, "accuracy": float((output.argmax(1) == records.y).double().mean())}
    return reported


def audited(name: str, folder: Path, *attacks: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of one audit of these attacks."""
    recipe = {"rounds": 10, "epochs": 2 if name == "adult" else 1, "batch_size": 32, "learning_rate": 0.1}
    plan = {
        "data": {"name": name, "clients": 6, "limit": 200, "partition": "dirichlet", "alpha": 0.5, **DATA[name]},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {**recipe, "secure_aggregation": True},
        "attack": [{"role": "secure-aggregation", **attack} for attack in attacks],
        "seeds": SEEDS,
    }
    document = run_audit(make_plan(plan, Path.cwd()), folder, resume=folder.exists(), power=False).document
    return [{key: row[key] for key in SHOWN} for row in document["summary"]]


def main() -> None:
    """Run all audits with metrics of both kinds, print and store their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    table: dict[str, Any] = {"seeds": SEEDS}
    for name in DATA:
        table[name] = {"before": audited(name, options.store / name, METRICS)}
        with mock.patch.object(disclose, "_metrics", after_training):
            table[name]["after"] = audited(name, options.store / f"{name}-after", METRICS)
        print(name, *table[name].values(), sep="\n", flush=True)
    table["counts"] = {"with": audited("adult", options.store / "counts", *COUNTS)}
    with mock.patch.object(roles, "_in_the_clear", lambda transcript: {}):
        table["counts"]["without"] = audited("adult", options.store / "no-counts", *COUNTS[:-1])
        try:
            audited("adult", options.store / "labels", COUNTS[-1])
        except Refused as refusal:
            table["counts"]["without"].append({"attack": COUNTS[-1]["name"], "refused": str(refusal)})
    print(*table["counts"]["with"], "without", *table["counts"]["without"], sep="\n")
    if options.write is not None:
        options.write.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
