"""Made-up results of an audit with several attacks, seats and defences, and a gallery to go with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedxray.audit.catalog import attack_facts, make_attack
from fedxray.audit.judge.results import document, write

SEEDS = (0, 1, 2, 3, 4)
CLIENTS = (0, 1)


@dataclass(frozen=True)
class Story:
    """What one attack finds: per metric its mean under each defence, its floors and its controls."""

    attack: str
    role: str
    means: dict[str, dict[str, float]]  # metric -> defence -> mean
    floors: dict[str, dict[str, float]]  # floor -> metric -> mean
    controls: dict[str, dict[str, float]]  # control -> metric -> mean where nothing is defended
    noise: dict[str, float]
    oracle: bool = False


STORIES = (
    Story(
        "inverting-gradients",
        "server",
        {
            "psnr": {"none": 24.1, "gaussian-noise": 12.2, "dp-sgd": 10.4},
            "ssim": {"none": 0.83, "gaussian-noise": 0.31, "dp-sgd": 0.12},
            "mse": {"none": 0.004, "gaussian-noise": 0.06, "dp-sgd": 0.09},
        },
        {
            "mean-image": {"psnr": 11.0, "ssim": 0.18, "mse": 0.08},
            "nearest-public-image": {"psnr": 11.9, "ssim": 0.33, "mse": 0.065},
        },
        {"other-client": {"psnr": 10.2, "ssim": 0.11, "mse": 0.095}},
        {"psnr": 0.9, "ssim": 0.03, "mse": 0.0008},
    ),
    Story(
        "attribute-from-model",
        "eavesdropper",
        {"accuracy": {"none": 0.958, "gaussian-noise": 0.91, "dp-sgd": 0.79}},
        {"majority": {"accuracy": 0.79}, "imputation": {"accuracy": 0.872}},
        {"held-out": {"accuracy": 0.957}, "other-client": {"accuracy": 0.90}},
        {"accuracy": 0.006},
    ),
    Story(
        "membership-loss",
        "server",
        {
            "auc": {"none": 0.64, "gaussian-noise": 0.57, "dp-sgd": 0.502},
            "tpr_at_1pct_fpr": {"none": 0.08, "gaussian-noise": 0.02, "dp-sgd": 0.011},
        },
        {"chance": {"auc": 0.5, "tpr_at_1pct_fpr": 0.01}},
        {"global-model": {"auc": 0.56, "tpr_at_1pct_fpr": 0.03}},
        {"auc": 0.012, "tpr_at_1pct_fpr": 0.009},
    ),
    Story(
        "local-model-oracle",
        "server",
        {"accuracy": {"none": 0.97}},
        {"majority": {"accuracy": 0.79}},
        {},
        {"accuracy": 0.004},
        oracle=True,
    ),
)


def make_cases(
    stories: Sequence[Story] = STORIES, seeds: Sequence[int] = SEEDS, clients: Sequence[int] = CLIENTS
) -> list[dict[str, Any]]:
    """Cases in plan order; the aware attacker does a little better than the unaware one."""
    draw = np.random.default_rng(11)
    cases = []
    for story in stories:
        for defence in next(iter(story.means.values())):
            for aware in (None,) if defence == "none" else (False, True):
                for seed in seeds:
                    shift = draw.normal()
                    for client in clients:
                        wave = 0.4 * shift + 0.9 * draw.normal()
                        cases.append(_case(story, defence, aware, seed, client, wave, draw))
    for index in (len(cases) // 3, len(cases) // 3 + 1):
        lost = {"status": "diverged", "reason": "the attacker's own loss grew without bound", "scores": {}}
        cases[index] |= lost
    return cases


def _case(
    story: Story, defence: str, aware: bool | None, seed: int, client: int, wave: float, draw: np.random.Generator
) -> dict[str, Any]:
    metrics = list(story.means)

    def near(metric: str, mean: float, much: float) -> float:
        return float(mean + much * story.noise[metric] * draw.normal())

    scores = {m: float(story.means[m][defence] + story.noise[m] * (wave + (0.5 if aware else 0.0))) for m in metrics}
    floors = {name: {m: near(m, values[m], 0.6) for m in metrics} for name, values in story.floors.items()}
    undefended = {m: story.means[m]["none"] - story.means[m][defence] for m in metrics}
    controls = {
        name: {m: near(m, values[m] - 0.05 * undefended[m], 0.8) for m in metrics}
        for name, values in story.controls.items()
    }
    grants = ["examples", "labels", "recipe"] + (["defence"] if aware else [])
    grants += ["oracle-records"] if story.oracle else []
    sees = {
        "server": "every model sent, every reply, who took part, example counts",
        "eavesdropper": "every model sent and every reply on the links, and whose link it is",
    }
    ledger = {
        "role": story.role,
        "sees": sees[story.role],
        "rounds_seen": list(range(20)),
        "single_replies": 20,
        "sums": 0,
        "global_models": 21,
        "grants": grants,
        "oracle": story.oracle,
        "public_records": 134,
        "common_knowledge": "network, loss, space of inputs with federation-wide scaling constants",
        "active": False,
        "sensitive": "smoker",
        "target_column": "bill",
    }
    spelled = {None: "", True: "-aware", False: "-unaware"}[aware]
    return {
        "id": f"{story.attack}-{story.role}-{defence}{spelled}-s{seed}-c{client}",
        "seed": seed,
        "defence": defence,
        "attack": story.attack,
        "role": story.role,
        "client": client,
        "aware": aware,
        "oracle": story.oracle,
        "ledger": ledger,
        "status": "ok",
        "reason": None,
        "scores": scores,
        "floors": floors,
        "controls": controls,
        "rounds_spent": 0,
        "seconds": 3.5,
        **_course(story, wave),
        **_luck(story, defence, client, scores),
        "worst_record": {m: {"record": int(draw.integers(0, 100)), "value": scores[m]} for m in metrics},
        "exposed": {m: [{"record": 7 * client + seed, "value": scores[m]}] for m in metrics},
        "by_class": {
            m: {"three": {"mean": scores[m], "n": 4, "floors": {name: one[m] for name, one in floors.items()}}}
            for m in metrics
        },
    }


def _luck(story: Story, defence: str, client: int, scores: dict[str, float]) -> dict[str, Any]:
    """What the exact tests read: ranks of trained and held-out records, or the scores with other clients' messages."""
    if story.attack == "attribute-from-model":
        others = {other: 0.9 if defence == "none" else scores["accuracy"] for other in range(6) if other != client}
        return {"swaps": {str(other): {"accuracy": value} for other, value in others.items()}}
    if story.oracle:
        return {}
    u = 2400 * scores["auc"] if "auc" in scores else 2160 if defence == "none" else 1200
    return {"split": {"u": u, "n1": 80, "n0": 30, "ties": [], "variance": 111 / (12 * 2400)}}


def _course(story: Story, wave: float) -> dict[str, Any]:
    """The loss of an attack that optimises, and a search of two settings."""
    if story.attack != "inverting-gradients":
        return {}
    losses = [float(np.exp(-step / 90 + 0.3 * wave) + 0.001) for step in range(0, 401, 20)]
    trials = [
        {"point": {"learning_rate": 10.0 ** -(k % 5), "restarts": 1 + k // 5}, "loss": 0.3 + abs(k - 6) / 10}
        for k in range(12)
    ]
    trials[3]["loss"] = None
    search = {"trials": trials, "best": 6, "reason": ""}
    return {"curve": {"steps": list(range(0, 401, 20)), "losses": losses}, "search": search}


def make_utility() -> list[dict[str, Any]]:
    """Accuracy under each defence."""
    values = {"none": (0.91, None), "gaussian-noise": (0.86, None), "dp-sgd": (0.78, 10.0)}
    return [
        {"defence": name, "metric": "accuracy", "value": value, "low": value - 0.02, "high": value + 0.015}
        | {"n": len(SEEDS), "epsilon": epsilon}
        for name, (value, epsilon) in values.items()
    ]


def make_plan() -> dict[str, Any]:
    """A plan as an audit would write it down."""
    return {
        "format": 1,
        "name": "digits-pilot",
        "seeds": list(SEEDS),
        "data": {"name": "digits", "clients": 2, "partition": "iid", "holdout": 0.1, "public": 0.1},
        "model": {"name": "mlp", "hidden": [128]},
        "federation": {"algorithm": "fedavg", "rounds": 20, "epochs": 1, "batch_size": 32, "learning_rate": 0.05},
        "defence": [
            {"name": "none"},
            {"name": "gaussian-noise", "scale": 0.01},
            {"name": "dp-sgd", "epsilon": 10.0, "delta": 1e-5, "clip": 1.0, "deployed": True},
        ],
        "attack": [{"name": story.attack, "role": story.role, "targets": "all"} for story in STORIES],
    }


PAPER = (
    "Geiping, Bauermeister, Dröge, Moeller: Inverting Gradients: How easy is it to break privacy in federated "
    "learning? NeurIPS 2020."
)
VERSIONS = {"fedxray": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6", "platform": "Linux"}


def make_document(cases: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A whole results document."""
    ceilings = {"attribute-from-model": "local-model-oracle"}
    found = make_cases() if cases is None else cases
    attacks = {story.attack: attack_facts(make_attack(story.attack, {})) for story in STORIES}
    attacks["inverting-gradients"]["paper"] = PAPER
    return document(make_plan(), VERSIONS, found, make_utility(), ceilings=ceilings, attacks=attacks)


def make_gallery() -> list[dict[str, Any]]:
    """Small pictures: a ring, and a blurred and noisy guess of it."""
    draw = np.random.default_rng(3)
    across = np.linspace(-1, 1, 28)
    pairs = []
    for index in range(6):
        radius = 0.35 + 0.07 * index
        ring = np.exp(-(((np.hypot(*np.meshgrid(across, across)) - radius) / 0.12) ** 2))
        guess = np.clip(ring + 0.12 * draw.normal(size=ring.shape), 0, 1)
        caption, quality = f"image {index}, PSNR {20 + index} dB", 20.0 + index
        pair = {"original": ring.tolist(), "guess": guess.tolist(), "caption": caption, "quality": quality}
        pairs.append(pair)
    case = "inverting-gradients-server-none-s0-c0"
    return [{"case": case, "title": "client 0, 6 images", "images": pairs}]


def make_guesses() -> list[dict[str, Any]]:
    """Guessed values of a sensitive column."""
    records = [{"record": k, "values": [["smoker", "yes", "yes" if k % 3 else "no", k % 3 > 0]]} for k in range(4)]
    case = "attribute-from-model-eavesdropper-none-s0-c0"
    return [{"case": case, "title": "client 0, 4 records", "records": records}]


def write_store(folder: Path, *, seeds: int = len(SEEDS), clients: int = len(CLIENTS)) -> dict[str, Any]:
    """A folder as an audit leaves it, with pictures of cases of the first attack and guesses of the second."""
    cases = make_cases(seeds=range(seeds), clients=range(clients))
    document = make_document(cases)
    (gallery,), (guesses,) = make_gallery(), make_guesses()
    shown = [{**gallery, "case": one["id"]} for one in cases if one["attack"] == STORIES[0].attack][::10]
    shown += [{**guesses, "case": one["id"]} for one in cases if one["attack"] == STORIES[1].attack]
    write(document, folder)
    (folder / "gallery.json").write_text(json.dumps(shown))
    return document
