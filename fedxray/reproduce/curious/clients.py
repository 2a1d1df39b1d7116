"""Figure 5: quality against the number of clients, for three networks, 16 images each and three local steps."""

from __future__ import annotations

import itertools
from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import (
    METRICS,
    STAND_IN,
    attack,
    better,
    data,
    federation,
    network,
    paper,
)

NETWORKS = ("lenet", "resnet9", "resnet18")
CLIENTS = (2, 4, 8, 16, 32)
ROWS = tuple(f"{model}-{clients}" for model in NETWORKS for clients in CLIENTS)
AT_128 = "lenet-2-128px"
ITERATIONS = 200  # at both scales


def plan(request: Request, row: str) -> dict[str, Any]:
    """So many clients; of the photos of 128 pixels there are only 64, so half of them are public."""
    model, clients, *more = row.split("-")
    photos = data(request, int(clients))
    if more:
        photos |= {"size": 128, "public": 0.5}
    attacks = [attack(request, "curious-client", steps=ITERATIONS, **({"latent": 4} if more else {}))]
    return {
        "seeds": request.pick_seeds(paper=3),
        "data": photos,
        "model": network(model, request),
        "federation": federation(),
        "attack": attacks,
    }


def _doublings(model: str) -> list[Difference]:
    column = "curious-client"
    pairs = [(f"{model}-{few}", f"{model}-{many}") for few, many in itertools.pairwise(CLIENTS)]
    return [one for rows in pairs for one in better(column, column, rows=rows)]


CLIENT_COUNT = Reproduction(
    name="curious-clients",
    shows="How many clients it takes to hide a client's images from another client.",
    paper=paper(
        "Figures 4 and 5",
        "quality falls gradually with the number of clients and with larger networks; up to 8 clients images stay "
        "recognisable, beyond that only some of them",
    ),
    rows=(*ROWS, AT_128),
    small_rows=("lenet-2", "lenet-4", "lenet-8", "resnet9-2", "resnet18-2"),
    columns=columns_of({"curious-client": "Ours"}, METRICS),
    differences=tuple(one for model in NETWORKS for one in _doublings(model)),
    plan=plan,
    why=f"{STAND_IN}; 200 iterations at both scales (the paper: 100); at the small scale residual networks have a "
    "quarter of the channels",
)
