"""Attacks alone, floors alone, and both combined (prior = "floor"): means, and the gain of the combination.

    python bench/prior.py [SETTING ...] [--seeds 6] [--first 10] [--write docs/results/bench/prior.json]

Three clients, all attacked in every run; the strongest floor. `difference` is the combination minus the better of
attack and floor (by their means over all runs), with its 95 % interval over runs. Seeds 0 to 2 were used to choose how
weights are fitted, so that measurements begin at 10. `--write` adds to the file. The last line holds, for all rows and
separated by `;`, `SETTING ATTACK: attack, floor, combination, difference (interval)`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.attacks.base import Attack
from fedxray.audit import catalog
from fedxray.audit.judge.statistics import interval
from fedxray.audit.run.comparisons import declared_grants
from fedxray.data.catalog import load
from fedxray.data.dataset import Records
from fedxray.data.split import split
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.scoring import score
from fedxray.models import build
from fedxray.seeds import fork

CLIENTS, PUBLIC = 3, 300
METRIC = {"attributes": "accuracy", "labels": "label_accuracy"}
WAYS = ("attack", "floor", "combination")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One federation and the attacks on it; `limit` is the number of records of a client."""

    data: dict[str, Any]
    recipe: Recipe
    attacks: tuple[str, ...]
    rounds: int = 20
    limit: int = 200
    partition: dict[str, Any] = field(default_factory=lambda: {"partition": "iid"})


VALUES = ("attribute-from-model", "attribute-from-gradients")
COUNTS = ("labels-dlf", "labels-geng-start", "labels-idlg", "labels-ilrg")
TABLE = Recipe(learning_rate=0.05, epochs=2, batch_size=32)
UNEVEN = {"partition": "dirichlet", "alpha": 0.5}
SETTINGS = {
    "adult": Setting(data={"name": "adult", "sensitive": "sex"}, recipe=TABLE, attacks=VALUES),
    "medical": Setting(
        data={"name": "medical", "sensitive": "smoker", "scale_target": True},
        recipe=replace(TABLE, loss="mse"),
        attacks=VALUES,
    ),
    "diabetes": Setting(
        data={"name": "diabetes", "sensitive": "sex"}, recipe=replace(TABLE, loss="mse"), attacks=VALUES
    ),
    "digits": Setting(data={"name": "digits"}, recipe=TABLE, attacks=COUNTS, rounds=1),
    "digits-uneven": Setting(data={"name": "digits"}, recipe=TABLE, attacks=COUNTS, rounds=1, partition=UNEVEN),
}


def run_of(setting: Setting, seed: int) -> tuple[Transcript, Truth]:
    """Return one run of a setting."""
    options = dict(setting.data)
    dataset = load(options.pop("name"), **options)
    parts = split(
        dataset, clients=CLIENTS, seed=seed, limit=setting.limit, holdout=0.1, public=0.1, **setting.partition
    )
    hidden = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[32])

    def records(index: torch.Tensor) -> Records:
        return Records(dataset.x[index], dataset.y[index])

    federation = Federation(
        space=dataset.space, clients=tuple(map(records, parts.train)), holdout=tuple(map(records, parts.holdout)),
        public=records(parts.public[:PUBLIC]), model=hidden, recipe=setting.recipe, rounds=setting.rounds,
    )  # fmt: skip
    return simulate(federation, seed=seed)


def measured(transcript: Transcript, truth: Truth, attack: Attack, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the scores of an attack alone, its floors alone and both combined, by client."""
    both: Any = replace(attack, prior="floor")  # type: ignore[call-arg]

    def value(made: Attack, client: int) -> float:
        given = disclose(truth, sorted(declared_grants(made)), client=client)
        view = roles.server(transcript, client=client, grants=given)
        return score(made.run(view, generator=fork(0)), truth, client=client).means[METRIC[attack.kind]]

    for client in range(CLIENTS):
        floors = {name: value(catalog.floor_for(name, attack.kind), client) for name in attack.floors}
        yield {
            "seed": seed,
            "client": client,
            "attack": value(attack, client),
            "floors": floors,
            "combination": value(both, client),
        }


def summary(setting: str, name: str, cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means, and the difference of the combination and the better of both others, with its interval."""
    means = {floor: statistics.fmean(case["floors"][floor] for case in cases) for floor in cases[0]["floors"]}
    strongest = max(means, key=means.__getitem__)
    units = [{"seed": case["seed"], "floor": case["floors"][strongest], **case} for case in cases]
    row: dict[str, Any] = {way: statistics.fmean(unit[way] for unit in units) for way in WAYS}
    better = max("attack", "floor", key=row.__getitem__)
    found = interval([unit["combination"] - unit[better] for unit in units], [unit["seed"] for unit in units])
    return {"setting": setting, "name": name, "over": strongest, **row, "difference": found.mean, "low": found.low,
            "high": found.high, "runs": len({unit["seed"] for unit in units}), "clients": CLIENTS}  # fmt: skip


def words(row: dict[str, Any]) -> str:
    """Return one row as text."""
    values = ", ".join(f"{row[way]:.3f}" for way in WAYS)
    spread = "" if row["low"] is None else f" ({row['low']:+.3f} to {row['high']:+.3f})"
    return f"{row['setting']} {row['name']}: {values}, {row['difference']:+.3f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=", ".join(SETTINGS))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if unknown := set(options.settings) - set(SETTINGS):
        parser.error(f"no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    torch.set_num_threads(1)
    rows = []
    for name in options.settings or SETTINGS:
        begin, seeds = time.process_time(), range(options.first, options.first + options.seeds)
        runs = {seed: run_of(SETTINGS[name], seed) for seed in seeds}
        for attack in SETTINGS[name].attacks:
            made = catalog.make_attack(attack, {})
            cases = [case for seed, run in runs.items() for case in measured(*run, made, seed)]
            rows.append(summary(name, attack, cases))
            print(f"{words(rows[-1])}; {time.process_time() - begin:.0f} s so far", flush=True)
    if options.write is not None:
        stored = json.loads(options.write.read_text(encoding="utf-8")) if options.write.is_file() else []
        new = {(row["setting"], row["name"]) for row in rows}
        kept = [row for row in stored if (row["setting"], row["name"]) not in new]
        options.write.write_text(json.dumps([*kept, *rows], indent=1) + "\n", encoding="utf-8")
    print("; ".join(map(words, rows)))


if __name__ == "__main__":
    main()
