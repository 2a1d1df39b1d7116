"""All membership attacks on eleven federations, alone and under defences: AUC, TPR at 1 % FPR, CPU time.

    python bench/membership.py table STORE [--settings adult ...] [--defences none ...] [--seeds 5]
                                     [--write docs/results/bench/membership.json]
    python bench/membership.py products

One run of a setting under a defence with a seed is a cell: STORE keeps the scores of every attack on it, so that an
interrupted table goes on, and `--write` adds what is there after every cell. Ten clients train (FEMNIST: five); enough
of them are attacked in every run to have 1,000 non-members (FEMNIST: all). AUC is the mean of the AUCs of the clients,
the TPR that of their curves by members. Intervals are 95 % t-intervals over runs. FEMNIST is divided by
writer: a third of the images of every writer is set aside. A writer stays whole and writes all classes, so that no
choice of writers gives a client uneven ones: for Dirichlet each client draws shares of the classes, and by these the
images of its writers are drawn, as many as without. CPU time is of one thread, by record and round of the run.
`products` times the inner products of records' gradients with 1 and 10 updates, by layers and from whole gradients.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.measure import cpu_seconds
from scipy import stats
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose, membership_records
from fedxray.adversary.view import View
from fedxray.attacks import membership, record_gradients
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.attacks.presence import MembershipFromUpdates
from fedxray.audit.judge.roc import mean_tpr
from fedxray.audit.run.utility import utility_of
from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset, Records, Space
from fedxray.data.split import Split, split
from fedxray.data.subjects import records_by_subject
from fedxray.defences.base import Defence, NoDefence
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.mixup import Mixup
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.records import auc, by_subject
from fedxray.metrics.table import RATES
from fedxray.models import build
from fedxray.params import element_count, parameters_of
from fedxray.seeds import fork

CLIENTS, PUBLIC = 10, 2000
MEMBERS, OTHERS = 100, 200  # records of a client
RECORDS = 1024  # of which products are timed
RATE, LEAST_FOR_RATE = RATES["tpr_at_1pct_fpr"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One federation: data, network and recipe."""

    data: dict[str, Any]
    model: dict[str, Any]
    recipe: Recipe
    rounds: int
    clients: int = CLIENTS
    partition: dict[str, Any] = field(default_factory=lambda: {"partition": "iid"})
    public: float = 0.1


TABLE = {"name": "mlp", "hidden": [64, 64]}
CNN = {"name": "cnn"}  # 107,154 parameters for CIFAR-10
IMAGES = Recipe(learning_rate=0.05, epochs=5, batch_size=32)
ONE_EPOCH = replace(IMAGES, epochs=1)
UNEVEN = {"partition": "dirichlet", "alpha": 0.3}
ADULT = Setting(data={"name": "adult"}, model=TABLE, recipe=Recipe(learning_rate=0.1, epochs=5), rounds=20)
INCOME = Setting(
    data={"name": "acs-income", "state": "CT", "scale_target": True}, model=TABLE,
    recipe=Recipe(loss="mse", learning_rate=0.02, epochs=5), rounds=20,
)  # fmt: skip
CIFAR = Setting(data={"name": "cifar10"}, model=CNN, recipe=IMAGES, rounds=10)
FEMNIST = Setting(data={"name": "femnist", "subject": "writer"}, model=CNN, recipe=IMAGES, rounds=12, clients=5)
REPORTED = {
    "adult": ADULT,
    "adult-dirichlet": replace(ADULT, partition=UNEVEN),
    "acs-income": INCOME,
    "acs-income-dirichlet": replace(INCOME, partition=UNEVEN),
    "cifar10-1": replace(CIFAR, recipe=ONE_EPOCH, rounds=20),
    "cifar10-1-dirichlet": replace(CIFAR, recipe=ONE_EPOCH, rounds=20, partition=UNEVEN),
    "cifar10-5": CIFAR,
    "cifar10-5-dirichlet": replace(CIFAR, partition=UNEVEN),
    "femnist": FEMNIST,
    "femnist-dirichlet": replace(FEMNIST, partition=UNEVEN),
}
# On which the parts of membership-best were chosen, and nothing is reported
CHOSEN_ON = {
    "medical": replace(INCOME, data={"name": "medical", "scale_target": True}, public=0.2),
    "diabetes": replace(INCOME, data={"name": "diabetes"}, public=0.2, clients=4),
    "mnist": replace(CIFAR, data={"name": "mnist"}, recipe=ONE_EPOCH, rounds=20),
    "fashion-mnist": replace(CIFAR, data={"name": "fashion-mnist"}, partition=UNEVEN),
    "cifar100": replace(CIFAR, data={"name": "cifar100"}, clients=5),
}
# As Zhu et al. 2025, in small: CIFAR-100 among ten clients, for forty rounds of one epoch
AS_FEDMIA = {
    "cifar100-long": replace(
        CIFAR, data={"name": "cifar100"}, recipe=Recipe(learning_rate=0.05, epochs=1, batch_size=10), rounds=40
    )
}
SETTINGS = REPORTED | CHOSEN_ON | AS_FEDMIA
DEFENCES: dict[str, Defence] = {
    "none": NoDefence(),
    "dp-sgd-8": DpSgd(epsilon=8.0, delta=1e-5, clip=1.0),
    "dp-sgd-1": DpSgd(epsilon=1.0, delta=1e-5, clip=1.0),
    "mixup": Mixup(),
}
ATTACKS: dict[str, Attack] = {
    "loss": membership.MembershipLoss(),
    "series": membership.MembershipSeries(),
    "loss-drop": membership.MembershipLossDrop(),
    "logit-drop": membership.MembershipLogitDrop(),
    "cosine": membership.MembershipCosine(),
    "cosine, all rounds": membership.MembershipCosine(over="all"),
    "cosine, last round": membership.MembershipCosine(over="last"),
    "gradient-difference": membership.MembershipGradientDifference(),
    "fedmia I": membership.MembershipFedmia(statistic="loss"),
    "fedmia II": membership.MembershipFedmia(),
    "reference": membership.MembershipReference(),
    "reference, logit": membership.MembershipReference(scale="logit"),
    "from-updates": MembershipFromUpdates(),
    "best": membership.MembershipBest(),
}
UNDER_SUMS: dict[str, Attack] = {
    "loss, sums": membership.MembershipLoss(model=GlobalModel()),
    "cosine, sums": membership.MembershipCosine(),
    "reference, sums": membership.MembershipReference(model=GlobalModel()),
    "best, sums": membership.MembershipBest(),
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


IMAGES_EACH = 45  # of a writer


def some_images(dataset: Dataset, shares: dict[int, Tensor]) -> Dataset:
    """Return the data set with some images of every writer: the first, or drawn by its shares of the classes.

    Of images with exponential waiting times at the rates of their classes, the first are such a draw.
    """
    assert dataset.subject is not None
    index = []
    for writer, rows in enumerate(records_by_subject(dataset.subject)):
        if writer in shares:
            rates = shares[writer][dataset.y[rows]].clamp(min=1e-12)
            waiting = torch.empty_like(rates).exponential_(generator=fork(0, "images of a writer", writer)) / rates
            rows = rows[waiting.argsort()]
        index.append(rows[:IMAGES_EACH])
    records = dataset.records(torch.cat(index))
    return replace(dataset, x=records.x, y=records.y, subject=records.subject, owner=None)


def class_shares(dataset: Dataset, parts: Split, alpha: float, seed: int) -> dict[int, Tensor]:
    """Return the shares of the classes that the client of a writer draws, by writer; none for public writers."""
    assert dataset.subject is not None
    draws = np.random.default_rng(seed)
    shares = {}
    for sides in zip(parts.train, parts.holdout, strict=True):
        drawn = torch.from_numpy(draws.dirichlet(np.full(dataset.space.outputs, alpha)))
        shares |= dict.fromkeys(dataset.subject[torch.cat(sides)].unique().tolist(), drawn)
    return shares


def run_of(setting: Setting, defence: Defence, seed: int) -> tuple[Transcript, Truth]:
    """Return one run of a setting."""
    options = dict(setting.data)
    dataset = load(options.pop("name"), **options)
    people = dataset.subject is not None
    divided = partial(
        split, clients=setting.clients, seed=seed, holdout=0.5, public=setting.public,
        subject_holdout=1 / 3 if people else 0.0, **({} if people else setting.partition),
    )  # fmt: skip
    if people:
        uneven = "alpha" in setting.partition
        shares = class_shares(dataset, divided(dataset), setting.partition["alpha"], seed) if uneven else {}
        dataset = some_images(dataset, shares)  # which leaves the writers of every client the same
    parts = divided(dataset)

    def records(index: Tensor, most: int) -> Records:
        return dataset.records(index if people else index[:most])

    public = parts.public[torch.randperm(len(parts.public), generator=fork(seed, "public"))]
    federation = Federation(
        space=dataset.space,
        clients=tuple(records(part, MEMBERS) for part in parts.train),
        holdout=tuple(records(part, OTHERS) for part in parts.holdout),
        others=tuple(map(dataset.records, parts.others)),
        public=dataset.records(public[:PUBLIC]),
        model=network_of(setting, dataset.space, seed),
        recipe=setting.recipe,
        rounds=setting.rounds,
        defence=defence,
    )
    return simulate(federation, seed=seed)


# Scores of one cell


class Answers:
    """Runs attacks on one view, each once, with its CPU time: that of parts computed before counts again."""

    def __init__(self, view: View) -> None:
        """Hold no answer yet."""
        self.view, self.saved = view, 0.0
        self.kept: dict[str, tuple[Evidence, float]] = {}

    def memo(self, attack: Attack, view: View, run: Callable[[], Evidence]) -> Evidence:
        """Return the answer of an attack."""
        if view is not self.view:  # it asks about other records
            return run()
        name = attack.identity()
        if name in self.kept:
            self.saved += self.kept[name][1]
        else:
            before, saved = time.process_time(), self.saved
            evidence = run()
            self.kept[name] = evidence, time.process_time() - before + self.saved - saved
        return self.kept[name][0]

    def of(self, attack: Attack) -> tuple[Evidence, float]:
        """Return the answer of an attack and its CPU seconds."""
        self.memo(attack, self.view, lambda: attack.run(self.view, generator=fork(0), memo=self.memo))
        return self.kept[attack.identity()]


def attacked(truth: Truth) -> range:
    """Return the clients that are attacked: the first ones that have enough non-members together, or all."""
    count, clients = 0, 0
    while clients < len(truth.train) and (count < LEAST_FOR_RATE or truth.others):
        count += len(truth.holdout[clients])
        clients += 1
    return range(clients)


Scores = dict[str, np.ndarray]  # by attack, client and side


def scores_of(transcript: Transcript, truth: Truth, known: Scores) -> Scores:
    """Return the scores of every attack that is not known, with members, people and CPU time."""
    grants, found = ["target-records", "recipe", "public-records", "examples"], {}
    for client in attacked(truth):
        for side in ("train", "others") if truth.others else ("train",):
            given = disclose(truth, grants, client=client, rows=side)
            records, member = membership_records(truth, client, (), side)
            place = f"{side}/{client}"
            found[f"member/{place}"] = member.numpy()
            if records.subject is not None:
                found[f"subject/{place}"] = records.subject.numpy()
            views = (
                (roles.server(transcript, client=client, grants=given), ATTACKS),
                (roles.secure_aggregation(transcript, grants=given), UNDER_SUMS),
            )
            for view, attacks in views:
                answers = Answers(view)
                for name, attack in attacks.items():
                    if f"score/{name}/{place}" in known:
                        continue
                    try:
                        evidence, spent = answers.of(attack)
                    except Refused:
                        continue
                    found[f"score/{name}/{place}"] = evidence.tensors["scores"].numpy()
                    found[f"cost/{name}/{place}"] = np.array(1000 * spent / len(member) / len(view.of_target()))
    return found


def cell_of(store: Path, name: str, defence: str, seed: int) -> Path:
    """Return the file of one cell, complete: what is missing is computed."""
    path = store / f"{name}-{defence}-{seed}.npz"
    known = dict(np.load(path)) if path.is_file() else {}
    wanted = {part.split("/")[1] for part in known if part.startswith("score/")}
    if known and set(ATTACKS) | set(UNDER_SUMS) <= wanted | set(known["refused"].tolist()):
        return path
    transcript, truth = run_of(SETTINGS[name], DEFENCES[defence], seed)
    known |= scores_of(transcript, truth, known)
    answered = {part.split("/")[1] for part in known if part.startswith("score/")}
    known["refused"] = np.array(sorted((set(ATTACKS) | set(UNDER_SUMS)) - answered))
    known |= {f"utility/{metric}": np.array(value) for metric, value in utility_of(transcript, truth).items()}
    store.mkdir(parents=True, exist_ok=True)
    partial_file = path.with_suffix(".part.npz")
    np.savez(partial_file, **known)
    partial_file.replace(path)
    return path


# The table


def clients_of(cell: Scores, attack: str, side: str) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield scores, members and people of every attacked client."""
    for place in sorted(name.split("/", 2)[2] for name in cell if name.startswith(f"score/{attack}/{side}/")):
        subject = cell.get(f"subject/{place}")
        yield (
            torch.from_numpy(cell[f"score/{attack}/{place}"]),
            torch.from_numpy(cell[f"member/{place}"]),
            None if subject is None else torch.from_numpy(subject),
        )


def values_of(cell: Scores, attack: str) -> dict[str, float]:
    """Return the metrics of an attack on one cell."""
    answers = list(clients_of(cell, attack, "train"))
    costs = [float(value) for name, value in cell.items() if name.startswith(f"cost/{attack}/train")]
    values = {
        "auc": statistics.fmean(auc(scores, inside) for scores, inside, _ in answers),
        "cpu_ms_per_record_and_round": statistics.fmean(costs),
    }
    sides = [(scores[inside].double().numpy(), scores[~inside].double().numpy()) for scores, inside, _ in answers]
    if sum(len(outside) for _, outside in sides) >= LEAST_FOR_RATE:
        values["tpr_at_1pct_fpr"] = float(mean_tpr(sides, np.array([RATE]))[0])
    if answers[0][2] is not None:
        values |= {f"auc_subject_from_{most}": people_auc(answers, most) for most in (1, 5)}
        values["auc_subject"] = people_auc(answers)
        values["auc_subject_other"] = people_auc(list(clients_of(cell, attack, "others")))
    return values


def people_auc(answers: Sequence[tuple[Tensor, Tensor, Tensor | None]], most: int = 1000) -> float:
    """Return the AUC by person, from at most `most` records of each; people of all clients together."""
    people = []
    for scores, member, subject in answers:
        assert subject is not None
        few = (subject[:, None] == subject[None]).tril(-1).sum(1) < most
        people.append(by_subject(scores[few], member[few], subject[few])[:2])
    return auc(*(torch.cat(part) for part in zip(*people, strict=True)))


def interval(values: Sequence[float]) -> list[float]:
    """Return the mean of runs with its 95 % t-interval."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return [round(mean, 4)]
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return [round(mean, 4), round(mean - half, 4), round(mean + half, 4)]


def summary(paths: Sequence[Path]) -> dict[str, Any]:
    """Return mean and interval over runs of every metric by attack, and of the accuracy."""
    cells = [dict(np.load(path)) for path in paths]
    attacks = [name for name in (*ATTACKS, *UNDER_SUMS) if name not in cells[0]["refused"].tolist()]
    table = {}
    for name in attacks:
        runs = [values_of(cell, name) for cell in cells]
        metrics = [metric for metric in runs[0] if all(metric in run for run in runs)]
        table[name] = {metric: interval([run[metric] for run in runs]) for metric in metrics}
    quality = [metric for metric in cells[0] if metric.startswith("utility/")]
    return {
        "runs": len(cells),
        "utility": {metric[8:]: interval([float(cell[metric]) for cell in cells]) for metric in quality},
        "attacks": table,
    }


def make_table(arguments: argparse.Namespace) -> None:
    """Compute the cells in turns of a seed for all, and write the table after each."""
    done: dict[tuple[str, str], list[Path]] = {}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for defence in arguments.defences:
            for name in arguments.settings:
                before = time.process_time()
                done.setdefault((name, defence), []).append(cell_of(arguments.store, name, defence, seed))
                part = summary(done[name, defence])
                best = {attack: values["auc"][0] for attack, values in part["attacks"].items()}
                print(name, defence, seed, f"{time.process_time() - before:.0f} s", best, flush=True)
                if arguments.write:
                    stored = json.loads(arguments.write.read_text()) if arguments.write.is_file() else {}
                    stored.setdefault(name, {})[defence] = part
                    arguments.write.write_text(json.dumps(stored, indent=1) + "\n")


def time_products() -> None:
    """Print the CPU time per record of the two ways to compute products of gradients."""
    spaces = {name: load(SETTINGS[name].data["name"]).space for name in ("adult", "cifar10-1")}
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
    """Compute a table, or time products."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("products")
    table = commands.add_parser("table")
    table.add_argument("store", type=Path)
    table.add_argument("--settings", nargs="+", default=list(REPORTED), choices=SETTINGS)
    table.add_argument("--defences", nargs="+", default=["none"], choices=DEFENCES)
    table.add_argument("--seeds", type=int, default=5)
    table.add_argument("--first", type=int, default=0)
    table.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "products":
        time_products()
    else:
        make_table(arguments)


if __name__ == "__main__":
    main()
