"""Figure 13: the learning rate with which the attacker descends."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import METRICS, STAND_IN, attack, data, federation, network, paper

RATES = (0.02, 0.05, 0.1, 0.2, 0.5)
USUAL = 0.1
COUNTS = (2, 4, 8)
ROWS = tuple(f"{clients}-clients" for clients in COUNTS)


def plan(request: Request, row: str) -> dict[str, Any]:
    """So many clients (of 8 images at the small scale) that learn at 0.03, attacked at every rate."""
    clients = int(row.partition("-")[0])
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, clients, (8 if request.is_small else 16,)),
        "model": network("lenet", request),
        "federation": federation(learning_rate=0.03),
        "attack": [attack(request, f"{rate:g}", learning_rate=rate) for rate in RATES],
    }


INVERSION_RATE = Reproduction(
    name="curious-inversion-lr",
    shows="How little it matters at which learning rate the attacker descends.",
    paper=paper(
        "Figure 13", "minor differences between the rates; the best one varies a little with the clients"
    ),
    rows=ROWS,
    small_rows=ROWS[:1],
    columns=columns_of({f"{rate:g}": "" for rate in RATES}, METRICS),
    differences=tuple(Difference(left=f"{rate:g}", right=f"{USUAL:g}") for rate in RATES if rate != USUAL),
    plan=plan,
    why=f"{STAND_IN}; at the small scale 8 images of each client",
)
