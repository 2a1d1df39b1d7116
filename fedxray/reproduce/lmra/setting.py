"""What the tables of "Local Model Reconstruction Attacks" (paper 000) share: data, networks, recipe, attacks.

Ten clients train for 1,000 rounds at a step size of 0.01 and every tenth round is read, at both scales. The small scale
shrinks data and networks, and the batches with them, so that a client takes as many local steps as in the paper.
BatchNorm statistics are shared here: the paper keeps them local and does not say with which ones it judges models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.reproduce.base import Column, Difference, Paper, Published, Request

TITLE = "Driouich, Xu, Neglia, Giroire, Thomas: Local Model Reconstruction Attacks in Federated Learning and their Uses"
THEIR_CLIENTS = 10
DATA = ("flights", "adult", "leaf", "att-faces")
ROUNDS = 1000
STEP = {"learning_rate": 0.01, "rounds": ROUNDS, "record": "every-10", "weighting": "uniform"}
# Clients in the order in which they are attacked: the first ones of Adult are unlike the others.
ORDER = (0, 5, 3, 8, 1, 6, 4, 9, 2, 7)
# How the regressor of the heuristic is fitted: of a few settings the one of least own loss on Leaf, seed 0.
FIT = {"name": "local-model-heuristic", "fit_steps": 400, "fit_lr": 3e-3}
FOLLOW = {**FIT, "reading": "follow-update", "lr": 0.1, "steps": 300}
# The models of a client and how each is made; `heuristic` is the paper's algorithm as it is written.
MODELS: dict[str, dict[str, Any]] = {
    "global": {"name": "global-model"},
    "last": {"name": "last-returned"},
    "heuristic": {**FIT, "steps": 400},
    "heuristic-span": {**FIT, "steps": 400, "restrict": "span"},
    "heuristic-follow": FOLLOW,
    "heuristic-follow-span": {**FOLLOW, "restrict": "span"},
    "extrapolate-5": {"name": "local-model-extrapolate", "multiple": 5.0},
    "extrapolate-100": {"name": "local-model-extrapolate", "multiple": 100.0},
    "send-back": {"name": "local-model-send-back"},
    "active": {"name": "local-model-active"},
    "optimum": {"name": "local-model-oracle", "steps": 600},
}
CALLED = {"global": "Global", "last": "Last-returned", "heuristic": "Ours", "optimum": "Optimal"}
ACTIVE = ("send-back", "active")
LEAF_COLUMNS, FACES = {"small": 20, "paper": 100}, {"small": [40, 35], "paper": [80, 70]}
WHY = (
    "the paper does not say how its optimal local models were trained; their accuracies of 88 to 91 % say that they "
    "do not minimise the training loss, as ours nearly do, so ours are further from every model of the federation"
)
STAND_IN = (
    "Indian flights of six airlines stand in for the private prices, with the class for the journey type"
)


def paper(place: str, numbers: Published | None = None, trend: str = "") -> Paper:
    """A table or figure of the paper."""
    return Paper(title=TITLE, place=place, clients=THEIR_CLIENTS, numbers=numbers or {}, trend=trend)


def federation_of(
    data: str,
    request: Request,
    *,
    norm: bool = False,
    clients: int | None = None,
    examples: int | None = None,
    **recipe: Any,
) -> dict[str, Any]:
    """Everything of a plan but its attacks; `examples` caps those of a client, `recipe` changes the federation."""
    hidden = [32] * 3 if data == "att-faces" else [16 if request.is_small else 256] * 3
    held = dict(_data(data, request))
    held |= {"clients": clients} if clients is not None else {}
    held |= {"limit": examples} if examples is not None else {}
    return {
        "seeds": request.pick_seeds(),
        "data": held,
        "model": {"name": "mlp", "hidden": hidden, "norm": "batch" if norm else "none"},
        "federation": {**STEP, "batch_size": batch_size(data, request), **recipe},
    }


def batch_size(data: str, request: Request) -> int:
    """The paper's batches, or at the small scale as small a share of a client's examples."""
    if data == "att-faces":
        return 32
    return 64 if request.is_small else 512


def _data(data: str, request: Request) -> Mapping[str, Any]:
    """A data set and its division; a tenth is held out for controls, and a tenth is public."""
    small = request.is_small
    if data == "leaf":  # so that about 200 or 2,000 examples are left for training
        dims, samples = LEAF_COLUMNS[request.scale], 250 if small else 2500
        named = {"name": "leaf-synthetic", "dims": dims, "samples": samples, "partition": "as-given"}
    elif data == "adult":
        named = {"name": "adult", "partition": "adult-doctorate", "total": 2400 if small else 12_300}
    elif data == "flights":
        named = {"name": "flights", "rows": 2000 if small else 100_000, "partition": "as-given"}
    else:
        named = {"name": "att-faces", "size": FACES[request.scale], "partition": "att-faces"}
    return {**named, "clients": 6 if data == "flights" else THEIR_CLIENTS, "holdout": 0.1, "public": 0.1}


def targets(data: str, request: Request, *, small: int = 3) -> list[int]:
    """The clients that are attacked; fewer of them are always among more."""
    most = 6 if data == "flights" else THEIR_CLIENTS
    count = request.pick_clients(small=small, paper=THEIR_CLIENTS, most=most)
    return sorted([client for client in ORDER if client < most][:count])


def models(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """The attacks that give a model of the client; their floor is enough, controls would repeat them."""
    return [{**MODELS[one], "label": one, "targets": clients, "controls": [], **_role(one)} for one in labels]


def attributes(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """Attribute inference on these models, by the squared distance of the prediction as in Eq. 3."""
    named = {"name": "attribute-from-model", "criterion": "squared", "controls": ["held-out", "global-model"]}
    return [{**_on(one, "aia", clients), **named} for one in labels]


def sources(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """Source inference on these models; every case needs the models of all clients."""
    cheap = {"name": "source-from-model", "controls": ["held-out"]}
    return [
        {**_on(one, "sia", clients), **(cheap if one == "last" else {"name": "source-from-model"})}
        for one in labels
    ]


def class_images(labels: Sequence[str], clients: list[int]) -> list[dict[str, Any]]:
    """One image per class out of these models (Eq. 5)."""
    named = {"name": "model-inversion", "controls": ["held-out"]}
    return [{**_on(one, "sra", clients), **named} for one in labels]


def gradient_attributes(clients: list[int]) -> dict[str, Any]:
    """The rival of attribute inference that works on updates (Eq. 2), in closed form."""
    return {"name": "attribute-from-gradients", "label": "aia-gradients", "targets": clients, "controls": []}


def majority_sources(clients: list[int]) -> dict[str, Any]:
    """The rival of source inference: a vote over all rounds."""
    return {"name": "source-majority", "label": "sia-majority", "targets": clients, "controls": ["held-out"]}


def gradient_images(clients: list[int], request: Request) -> dict[str, Any]:
    """The rival of sample reconstruction that works on updates (Eq. 4)."""
    steps = 200 if request.is_small else 2400
    named = {"name": "inverting-gradients", "label": "sra-gradients", "steps": steps, "at": "last"}
    return {**named, "targets": clients, "controls": []}


def _on(label: str, prefix: str, clients: list[int]) -> dict[str, Any]:
    held = {"model": MODELS[label], "label": f"{prefix}-{label}", "targets": clients, "controls": []}
    return {**held, **_role(label)}


def _role(label: str) -> dict[str, str]:
    return {"role": "active-server"} if label in ACTIVE else {}


def columns(labels: Sequence[str], metrics: Sequence[str], prefix: str = "") -> tuple[Column, ...]:
    """Columns for models, or for attacks on them with a prefix, each with the paper's name."""
    return tuple(
        Column(attack=f"{prefix}{label}", metric=metric, called=CALLED.get(label, ""))
        for label in labels
        for metric in metrics
    )


def beats(left: str, *rights: str, metrics: tuple[str, ...] = ()) -> tuple[Difference, ...]:
    """The paper's finding that one column is above others."""
    return tuple(Difference(left=left, right=right, metrics=metrics, expected="above") for right in rights)


def published(text: str, metric: str, names: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Lines of a row's name and one number in percent for each of these columns, - where there is none."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        pairs = zip(names, cells, strict=True)
        found[row] = {name: {metric: float(cell) / 100} for name, cell in pairs if cell != "-"}
    return found


def together(*parts: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    """The numbers of several parts of a table, by row and column."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for row, held in part.items():
            for name, numbers in held.items():
                found.setdefault(row, {}).setdefault(name, {}).update(numbers)
    return found
