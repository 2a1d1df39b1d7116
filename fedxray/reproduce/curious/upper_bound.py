"""Figure 14: the attack beside an upper bound that simulates every client, against local steps and clients."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import (
    METRICS,
    STAND_IN,
    attack,
    better,
    data,
    federation,
    network,
    oracle,
    paper,
)

CLIENTS = (2, 4, 6, 8)
LOCAL_STEPS = (1, 3, 5, 8)
ROWS = tuple(f"{clients}-clients-steps-{steps}" for clients in CLIENTS for steps in LOCAL_STEPS)


def plan(request: Request, row: str) -> dict[str, Any]:
    """So many clients and local steps; everyone's images, so that both attacks seek the same ones."""
    clients, _, _, steps = row.split("-")
    seat: dict[str, Any] = {"role": "secure-aggregation"} | ({"steps": 60} if request.is_small else {})
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, int(clients), (4 if request.is_small else 16,)),
        "model": network("lenet", request),
        "federation": federation(epochs=int(steps)),
        "attack": [attack(request, "one-client", **seat), oracle(request, "upper-bound", **seat)],
    }


UPPER_BOUND = Reproduction(
    name="curious-upper-bound",
    shows="What it costs the attacker to take all clients for one.",
    paper=paper(
        "Figure 14",
        "the upper bound does not mind local steps; the gap to it widens with local steps and with clients",
    ),
    rows=ROWS,
    small_rows=tuple(f"{clients}-clients-steps-{steps}" for clients in (2, 4) for steps in (1, 3, 8)),
    columns=columns_of({"one-client": "Ours", "upper-bound": "Upper bound"}, METRICS),
    differences=better("upper-bound", "one-client"),
    plan=plan,
    why=f"{STAND_IN}; at the small scale 4 images of each client and 60 iterations",
)
