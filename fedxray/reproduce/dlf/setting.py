"""What the tables of "Data Leakage in Federated Averaging" share: data, network, recipe, attacks.

One federation holds many clients of 50 images and one network, drawn once; as many clients are attacked as were asked
for, so asking for more later adds cases and changes none. The other clients cost little and give `retrieval` its
candidates. The control other-client would repeat every attack, so it is left out; held-out costs nothing.
"""

from __future__ import annotations

import re
from typing import Any

from fedxray.reproduce.base import Column, Difference, Paper, Published, Request, columns_of

TITLE = "Dimitrov, Balunović, Konstantinov, Vechev: Data Leakage in Federated Averaging (TMLR 2022)"
THEIR_CLIENTS = 100
IMAGES = 50  # of every client
KNOWN_COUNTS = ("recipe", "examples", "label-counts")
METRICS = ("rec", "psnr", "retrieval")
ATTACKS = {
    "dlf": "Ours (prior)",
    "dlf-no-prior": "Ours (no prior)",
    "shared-simulation": "Shared",
    "fedsgd-epoch": "FedSGD-Epoch",
    "fedsgd-inversion": "FedSGD",
}
RECIPES = ("1x5", "5x5", "10x10", "10x5", "10x1")  # local epochs x batch size
ROWS = tuple(f"{data}-{recipe}" for data in ("femnist", "cifar100") for recipe in RECIPES)
STAND_IN = (
    "where FEMNIST itself is not at hand, femnist-like stands in: 62 characters once each by 55 writers, drawn from "
    "their pen strokes, so no client holds a label twice; CIFAR-100 is a part of it; numbers hang on the one network "
    "that a seed draws, since the match is weighed against the other terms by its size (squared length of the update "
    "410 to 860 in seven draws); every client shuffles by itself, the authors' clients all alike"
)
ORDER = (
    Difference(left="dlf", right="dlf-no-prior", expected="above"),
    Difference(left="dlf", right="fedsgd-inversion", expected="above"),
    Difference(left="dlf-no-prior", right="fedsgd-inversion", expected="above"),
    Difference(left="dlf", right="shared-simulation", expected="above"),
    Difference(left="dlf", right="fedsgd-epoch", expected="above"),
)


def columns() -> tuple[Column, ...]:
    """The five attacks with share recognised, likeness and retrieval."""
    return columns_of(ATTACKS, METRICS)


def paper(place: str, numbers: Published | None = None, trend: str = "") -> Paper:
    """A table of the paper."""
    return Paper(title=TITLE, place=place, clients=THEIR_CLIENTS, numbers=numbers or {}, trend=trend)


def published(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Lines of a row's name and `rec/psnr` for each of the five attacks, rec in percent as printed."""
    found = {}
    for line in text.strip().splitlines():
        row, *cells = line.split()
        pairs = [tuple(map(float, cell.split("/"))) for cell in cells]
        named = zip(ATTACKS, pairs, strict=True)
        found[row] = {attack: {"rec": rec / 100, "psnr": psnr} for attack, (rec, psnr) in named}
    return found


def federation_of(row: str, request: Request, *, rounds: int = 1, **changes: Any) -> dict[str, Any]:
    """Everything of a row's plan but its attacks; the row is named data-EPOCHSxBATCH, perhaps with more behind."""
    data, epochs, batch = _parts(row)
    federation = {
        "rounds": rounds,
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": 0.004,
        "record": [rounds - 1],
    }
    return {
        "seeds": request.pick_seeds(),
        "data": cifar100() if data == "cifar100" else handwriting(),
        "model": {"name": "cnn-cifar" if data == "cifar100" else "cnn-femnist"},
        "federation": federation | changes,
    }


def attack(
    name: str, row: str, request: Request, *, grants: tuple[str, ...] = KNOWN_COUNTS, **settings: Any
) -> dict[str, Any]:
    """One attack of a row with the authors' numbers for its data set; few steps at the small scale."""
    data, epochs, batch = _parts(row)
    few = 100 if epochs * IMAGES // batch <= 10 else 40
    return {
        "name": name,
        "preset": data,
        "steps": few if request.is_small else 400,
        "grants": list(grants),
        "controls": ["held-out"],
        "targets": attacked(data, request),
        **settings,
    }


def attacked(data: str, request: Request) -> int:
    """How many clients are attacked."""
    most = int((cifar100() if data == "cifar100" else handwriting())["clients"])
    return request.pick_clients(small=2, paper=THEIR_CLIENTS, most=most)


def handwriting() -> dict[str, Any]:
    """FEMNIST where the user has it, else its stand-in; a client is a writer."""
    whose = {"partition": "as-given", "minimum": 53, "limit": IMAGES, "holdout": 0.05, "public": 0.05}
    if _has_femnist():
        return {"name": "femnist", "clients": THEIR_CLIENTS, "owners": "random", **whose}
    return {"name": "femnist-like", "clients": 50, **whose}


def cifar100() -> dict[str, Any]:
    """Random batches of CIFAR-100 as clients: 20 of 50 images are what its bundled part gives."""
    return {"name": "cifar100", "clients": 20, "limit": IMAGES, "holdout": 0.05, "public": 0.05}


def _has_femnist() -> bool:
    from fedxray.data.femnist import is_there

    return is_there()


def _parts(row: str) -> tuple[str, int, int]:
    found = re.match(r"(femnist|cifar100)-(\d+)x(\d+)", row)
    assert found is not None, row
    return found[1], int(found[2]), int(found[3])
