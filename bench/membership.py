"""All membership attacks on seven federations: AUC, TPR at 1 % FPR from 1,000 non-members on, CPU time.

    python bench/membership.py SETTING [--seeds 3] [--write docs/results/bench/membership.json]
    python bench/membership.py subjects [--seeds 3] [--write docs/results/bench/membership-subjects.json]
    python bench/membership.py products

Ten clients train, three of them are attacked in every run; one thread, CPU time. The mean is over clients and runs, the
standard error over runs. `--write` adds the setting to the file. `subjects` measures AUC by writer on FEMNIST, from
1, 5 and all images trained on, and from others that were not; all writers of all clients together. `products` times the
inner products of records' gradients with 1 and 10 updates, by layers and from whole gradients.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common.measure import cpu_seconds
from torch import nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose, membership_records
from fedxray.attacks import membership, record_gradients
from fedxray.attacks.base import Attack
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset, Records, Space
from fedxray.data.split import split
from fedxray.data.subjects import records_by_subject
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.records import auc, by_subject, tpr_at_fpr
from fedxray.models import build
from fedxray.params import element_count, parameters_of
from fedxray.seeds import fork

CLIENTS, ATTACKED, PUBLIC = 10, 3, 2000
RECORDS = 1024  # of which products are timed
LEAST_FOR_TPR = 1000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One federation: data, network and recipe; `members` and `others` are records of a client."""

    data: dict[str, Any]
    model: dict[str, Any]
    recipe: Recipe
    rounds: int
    members: int
    others: int
    partition: dict[str, Any] = field(default_factory=lambda: {"partition": "iid"})
    public: float = 0.1


TABLE = {"name": "mlp", "hidden": [64, 64]}
CNN = {"name": "cnn"}  # 107,154 parameters for CIFAR-10
IMAGES = Recipe(learning_rate=0.05, epochs=5, batch_size=32)
SETTINGS = {
    "adult": Setting(
        data={"name": "adult"}, model=TABLE, recipe=Recipe(learning_rate=0.1, epochs=5), rounds=20, members=200,
        others=1000,
    ),
    "adult-dirichlet": Setting(
        data={"name": "adult"}, model=TABLE, recipe=Recipe(learning_rate=0.1, epochs=5), rounds=20, members=200,
        others=1000, partition={"partition": "dirichlet", "alpha": 0.3},
    ),
    "acs-income": Setting(
        data={"name": "acs-income", "state": "CT", "scale_target": True}, model=TABLE,
        recipe=Recipe(loss="mse", learning_rate=0.02, epochs=5), rounds=20, members=200, others=1000,
    ),
    "medical": Setting(
        data={"name": "medical", "scale_target": True}, model=TABLE,
        recipe=Recipe(loss="mse", learning_rate=0.02, epochs=5), rounds=20, members=50, others=50, public=0.2,
    ),
    "fashion-mnist": Setting(
        data={"name": "fashion-mnist"}, model=CNN, recipe=IMAGES,
        rounds=12, members=100, others=100,
    ),
    "cifar10-overfitted": Setting(
        data={"name": "cifar10"}, model=CNN, recipe=Recipe(learning_rate=0.1, epochs=10, batch_size=32), rounds=12,
        members=100, others=100,
    ),
    "cifar10": Setting(data={"name": "cifar10"}, model=CNN, recipe=IMAGES, rounds=10, members=150, others=150),
}  # fmt: skip
ATTACKS: dict[str, Attack] = {
    "membership-loss": membership.MembershipLoss(),
    "membership-series": membership.MembershipSeries(),
    "membership-loss-drop": membership.MembershipLossDrop(),
    "membership-loss-drop[all]": membership.MembershipLossDrop(over="all"),
    "membership-logit-drop": membership.MembershipLogitDrop(),
    "membership-cosine": membership.MembershipCosine(),
    "membership-cosine[all]": membership.MembershipCosine(over="all"),
    "membership-cosine[last]": membership.MembershipCosine(over="last"),
    "membership-gradient-difference": membership.MembershipGradientDifference(),
    "membership-fedmia[I]": membership.MembershipFedmia(statistic="loss"),
    "membership-fedmia[II]": membership.MembershipFedmia(),
    "membership-reference": membership.MembershipReference(),
    "membership-reference[logit]": membership.MembershipReference(scale="logit"),
    "membership-reference[1]": membership.MembershipReference(references=1),
    "membership-best": membership.MembershipBest(),
}
UNDER_SUMS: dict[str, Attack] = {
    "membership-loss": membership.MembershipLoss(model=GlobalModel()),
    "membership-cosine": membership.MembershipCosine(),
    "membership-reference": membership.MembershipReference(model=GlobalModel()),
    "membership-best": membership.MembershipBest(),
}


def network_of(setting: Setting, space: Space, seed: int) -> nn.Module:
    """Return the network of a setting: one of the catalogue, or two convolutions with stride 2 and two dense layers."""
    options = dict(setting.model)
    name = options.pop("name")
    if name != "cnn":
        return build(name, space, generator=fork(seed, "model"), **options)
    channels, height, width = space.shape
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 12, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(12, 24, 5, stride=2, padding=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(24 * (height // 4) * (width // 4), 64), nn.ReLU(),
        nn.Linear(64, space.outputs),
    )  # fmt: skip


def run_of(setting: Setting, seed: int) -> tuple[Transcript, Truth]:
    """Return one run of a setting."""
    options = dict(setting.data)
    dataset = load(options.pop("name"), **options)
    parts = split(dataset, clients=CLIENTS, seed=seed, limit=setting.members, holdout=0.5, public=setting.public,
                  **setting.partition)  # fmt: skip
    model = network_of(setting, dataset.space, seed)

    def records(index: torch.Tensor, most: int) -> Records:
        return Records(dataset.x[index[:most]], dataset.y[index[:most]])

    return simulate(
        Federation(
            space=dataset.space,
            clients=tuple(records(part, setting.members) for part in parts.train),
            holdout=tuple(records(part, setting.others) for part in parts.holdout),
            public=records(parts.public[torch.randperm(len(parts.public), generator=fork(seed, "public"))], PUBLIC),
            model=model,
            recipe=setting.recipe,
            rounds=setting.rounds,
        ),
        seed=seed,
    )


def measured(transcript: Transcript, truth: Truth, seed: int) -> Iterator[dict[str, Any]]:
    """Yield AUC, TPR and CPU time of every attack on every attacked client."""
    grants = ["target-records", "recipe", "public-records", "examples"]
    for client in range(ATTACKED):
        given, member = disclose(truth, grants, client=client), membership_records(truth, client)[1]
        views = {
            "server": (roles.server(transcript, client=client, grants=given), ATTACKS),
            "secure-aggregation": (roles.secure_aggregation(transcript, grants=given), UNDER_SUMS),
        }
        for role, (view, attacks) in views.items():
            for name, attack in attacks.items():
                before = time.process_time()
                try:
                    scores = attack.run(view, generator=fork(0)).tensors["scores"]
                except Refused:
                    continue
                spent = time.process_time() - before
                others = int((~member).sum())
                yield {
                    "seed": seed, "client": client, "role": role, "attack": name, "auc": auc(scores, member),
                    "tpr_at_1pct_fpr": tpr_at_fpr(scores, member) if others >= LEAST_FOR_TPR else None,
                    "cpu_ms_per_record": 1000 * spent / len(member), "scores": scores, "member": member,
                }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean of every attack over clients and runs, and its standard error over runs."""
    table = []
    for role, name in dict.fromkeys((row["role"], row["attack"]) for row in rows):
        own = [row for row in rows if (row["role"], row["attack"]) == (role, name)]
        by_run = [
            statistics.fmean(row["auc"] for row in own if row["seed"] == seed) for seed in {row["seed"] for row in own}
        ]
        rates = [row["tpr_at_1pct_fpr"] for row in own if row["tpr_at_1pct_fpr"] is not None]
        table.append({
            "role": role, "attack": name, "auc": round(statistics.fmean(by_run), 4), "n": len(own),
            "error": round(statistics.stdev(by_run) / len(by_run) ** 0.5, 4) if len(by_run) > 1 else None,
            "tpr_at_1pct_fpr": round(statistics.fmean(rates), 4) if rates else None,
            "cpu_ms_per_record": round(statistics.median(row["cpu_ms_per_record"] for row in own), 3),
        })  # fmt: skip
    return table


BY_WRITER = Setting(data={"name": "femnist"}, model=CNN, recipe=IMAGES, rounds=12, members=30, others=30)
FEW_CLIENTS = 5
IMAGES_EACH = 45
POOLED = (1, 5, 1000)  # images of a writer, at most


def first_images(dataset: Dataset, most: int) -> Dataset:
    """Return the data set with the first images of every writer."""
    assert dataset.subject is not None
    index = torch.cat([rows[:most] for rows in records_by_subject(dataset.subject)])
    records = dataset.records(index)
    return replace(dataset, x=records.x, y=records.y, subject=records.subject, owner=None)


def by_writer(seeds: int) -> dict[str, dict[str, list[float]]]:
    """Return by attack and question the AUC of every run: half of the writers train, a third of the images is aside.

    Ranks are taken client by client, the writers of all clients are compared together.
    """
    found: dict[str, dict[str, list[float]]] = {}
    attacks = ("membership-loss", "membership-cosine", "membership-fedmia[II]")
    for seed in range(seeds):
        dataset = first_images(load("femnist", subject="writer"), IMAGES_EACH)
        parts = split(dataset, clients=FEW_CLIENTS, seed=seed, holdout=0.5, public=0.1, subject_holdout=1 / 3)
        sides = {name: tuple(map(dataset.records, getattr(parts, name))) for name in ("holdout", "others")}
        federation = Federation(
            space=dataset.space, clients=tuple(map(dataset.records, parts.train)), public=dataset.records(parts.public),
            model=network_of(BY_WRITER, dataset.space, seed), recipe=IMAGES, rounds=BY_WRITER.rounds, **sides,
        )  # fmt: skip
        transcript, truth = simulate(federation, seed=seed)
        for name, rows in itertools.product(attacks, ("train", "others")):
            pooled: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for client in range(FEW_CLIENTS):
                grants = ["target-records", "recipe", "public-records", "examples"]
                view = roles.server(transcript, client=client, grants=disclose(truth, grants, client=client, rows=rows))
                scores = ATTACKS[name].run(view, generator=fork(0)).tensors["scores"]
                records, member = membership_records(truth, client, (), rows)
                assert records.subject is not None
                place = (records.subject[:, None] == records.subject[None]).tril(-1).sum(1)  # among the writer's own
                for most in POOLED:
                    few = place < most
                    people = by_subject(scores[few], member[few], records.subject[few])
                    pooled.setdefault(f"{rows}, {'all' if most > 999 else most}", []).append(people[:2])
            for question, clients in pooled.items():
                value = auc(*(torch.cat(part) for part in zip(*clients, strict=True)))
                found.setdefault(name, {}).setdefault(question, []).append(round(value, 4))
    return found


def time_products() -> None:
    """Print the CPU time per record of the two ways to compute products of gradients."""
    spaces = {name: load(SETTINGS[name].data["name"]).space for name in ("adult", "cifar10")}
    for name, space in spaces.items():
        model = network_of(SETTINGS[name], space, 0)
        params, draw = parameters_of(model), fork(0, "products")
        x, y = torch.randn((RECORDS, *space.shape), generator=draw), torch.arange(RECORDS) % space.outputs
        for count in (1, CLIENTS):
            given = params, {}, x, y, [params] * count
            ways = {
                "by layers": partial(record_gradients.record_products(model, "cross-entropy"), *given),
                "whole": partial(record_gradients._by_whole_gradients, model, "cross-entropy", *given),
            }
            for way, spent in cpu_seconds(ways, 3, of=min).items():
                print(f"{name}, {element_count(params):,} parameters, {count} updates, {way}: "
                      f"{1000 * spent / RECORDS:.4f} ms a record")  # fmt: skip


def main() -> None:
    """Run one setting and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=[*SETTINGS, "subjects", "products"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.setting == "products":
        return time_products()
    if arguments.setting == "subjects":
        people = by_writer(arguments.seeds)
        for name, questions in people.items():
            print(name, {question: round(statistics.fmean(values), 3) for question, values in questions.items()})
        if arguments.write:
            arguments.write.write_text(json.dumps(people, indent=1) + "\n")
        return None
    setting, rows, trained = SETTINGS[arguments.setting], [], 0.0
    for seed in range(arguments.seeds):
        before = time.process_time()
        transcript, truth = run_of(setting, seed)
        trained += time.process_time() - before
        rows += measured(transcript, truth, seed)
    table = summary(rows)
    print(f"{arguments.setting}: training {trained / arguments.seeds:.1f} s a run")
    for row in table:
        rate = "" if row["tpr_at_1pct_fpr"] is None else f"{row['tpr_at_1pct_fpr']:.3f}"
        error = 0.0 if row["error"] is None else row["error"]
        cost = row["cpu_ms_per_record"]
        print(f"{row['role']:20} {row['attack']:34} {row['auc']:.3f} +- {error:.3f} {rate:6} {cost:8.3f} ms")
    if arguments.write:
        stored = json.loads(arguments.write.read_text()) if arguments.write.is_file() else {}
        stored[arguments.setting] = {"rounds": setting.rounds, "clients": CLIENTS, "attacked": ATTACKED,
                                     "seeds": arguments.seeds, "members": setting.members, "rows": table}  # fmt: skip
        arguments.write.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
