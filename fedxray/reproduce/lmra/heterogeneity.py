"""Figure 5 and Table 2: how far apart the clients' own models are from each other and from the global one.

The distance to the global model is that of the attack `global`; the next client's own model is its floor.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Reproduction, Request
from fedxray.reproduce.lmra.setting import DATA, STAND_IN, WHY, columns, federation_of, models, paper, targets

DISSIMILARITY = (23, 8, 4, 21, 8, 4, 25, 8, 5, 6)  # percent, Table 2
GUESSES = ("global", "last", "optimum")


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set."""
    attacks = models(GUESSES, targets(row, request, small=6))
    return {**federation_of(row, request), "attack": attacks}


MEAN = sum(DISSIMILARITY) / len(DISSIMILARITY) / 100
LMRA_HETEROGENEITY = Reproduction(
    name="lmra-heterogeneity",
    shows="How far a client's own model is from the global one, and (the floor) from the next client's own.",
    paper=paper(
        "Table 2 and Figure 5 (Appendix C.1)",
        {"flights": {"global": {"parameter_distance": MEAN}}},
        trend="clients' own models differ from the global one by 4 to 25 % of their norm on Flight Prices",
    ),
    rows=DATA,
    small_rows=("leaf", "adult", "flights"),
    columns=columns(GUESSES, ("parameter_distance", "zest")),
    plan=plan,
    why=f"{WHY}; {STAND_IN}; distances of 4 to 25 % suggest own models trained little, or from the global one",
)
