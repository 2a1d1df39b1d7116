"""Table 9: how well the models of a client fit the records that she trains on."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Reproduction, Request
from fedxray.reproduce.lmra.setting import (
    STAND_IN,
    WHY,
    beats,
    columns,
    federation_of,
    models,
    paper,
    published,
    targets,
    together,
)
from fedxray.reproduce.lmra.table1 import GUESSES, ROWS

NAMES = ("global", "last", "heuristic", "optimum")
NUMBERS = together(
    published(
        """
adult        74.4 73.9 79.6 90.5
leaf         77.0 75.1 83.8 89.9
att-faces    74.3 75.2 87.7 88.5
adult-bn     72.1 72.7 77.6 90.1
leaf-bn      74.2 72.6 80.0 88.6
att-faces-bn 70.1 71.3 86.8 87.9
""",
        "training_accuracy",
        NAMES,
    ),
    published("flights 16.4 16.9 13.3 10.7\nflights-bn 16.2 15.9 13.9 10.3", "training_mape", NAMES),
)


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set, with or without BatchNorm."""
    data = row.removesuffix("-bn")
    attacks = models(GUESSES, targets(data, request))
    return {**federation_of(data, request, norm=row.endswith("-bn")), "attack": attacks}


TABLE9 = Reproduction(
    name="lmra-table9",
    shows="How well each guess of a client's model fits the client's own records: likeness alone can be fooled.",
    paper=paper("Table 9 (Appendix D.1)", NUMBERS),
    rows=ROWS,
    small_rows=("leaf", "adult"),
    columns=columns(GUESSES, ("training_accuracy", "training_mape", "training_loss", "zest")),
    differences=(
        *beats("heuristic", "global", "last", metrics=("training_accuracy",)),
        *beats("optimum", "heuristic", metrics=("training_accuracy",)),
    ),
    plan=plan,
    why=f"{WHY}; {STAND_IN}; the small scale has small networks and few clients' records",
)
