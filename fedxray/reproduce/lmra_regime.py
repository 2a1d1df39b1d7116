"""Data on which a client's optimal model reveals more than public records do, beyond the tables of Driouich et al.

On Adult the optimum infers attributes worse than imputation, on Leaf hardly better, so a reconstruction of it has
little to gain. These data sets, all that were tried, were chosen by the optimum and the floor alone, on seeds 100 and
101 and no other attack: a numeric target that depends on the attribute, and few records. Recipe and network are those
of the other tables.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce import base
from fedxray.reproduce.lmra import (
    RECIPE,
    WHY,
    attributes,
    batch_size,
    beats,
    columns,
    gradient_attributes,
    models,
    paper,
    sources,
)

DATA: dict[str, dict[str, Any]] = {
    "clinic": {"name": "clinic", "records": 200, "partition": "as-given"},
    "income": {
        "name": "acs-income",
        "state": "CT",
        "drawn_occupations": 500,
        "scale_target": True,
        "partition": "income-correlation",
        "heterogeneity": 0.4,
        "limit": 150,
    },
    "medical": {"name": "medical", "sensitive": "smoker", "scale_target": True, "partition": "iid"},
}
CLIENTS = 6
USED = ("global", "last", "heuristic", "extrapolate-5", "extrapolate-100", "send-back", "active", "optimum")
TRACED = USED[1:]  # one model for all cannot distinguish clients


def plan(request: base.Request, row: str) -> dict[str, Any]:
    """Return the plan of one data set, divided among as many clients as are attacked by default."""
    chosen = list(range(request.pick_clients(small=CLIENTS, paper=CLIENTS, most=CLIENTS)))
    attacks = [gradient_attributes(chosen), *attributes(USED, chosen), *sources(TRACED)]
    return {
        "seeds": request.pick_seeds(small=5, paper=5),
        "data": {**DATA[row], "clients": CLIENTS, "holdout": 0.1, "public": 0.1},
        "model": {"name": "mlp", "hidden": [16 if request.is_small else 256] * 3},
        "federation": {**RECIPE, "batch_size": batch_size(row, request)},
        "attack": [*models(USED, chosen), *attacks],
    }


REGIME = base.Reproduction(
    name="lmra-regime",
    shows="Which models of a client reveal attributes and sources where its optimal model clearly does.",
    paper=paper(
        place=base.NO_TABLE,
        trend="attributes and sources from the reconstructed model are above those from the global model, the last "
        "returned one and gradients",
    ),
    rows=tuple(DATA),
    columns=(
        *columns(USED, ("zest", "training_loss")),
        *base.columns_of({"aia-gradients": "SOTA"}, ("accuracy",)),
        *columns(USED, ("accuracy",), "aia-"),
        *base.columns_of({"sia-majority": "SOTA"}, ("accuracy",)),
        *columns(TRACED, ("accuracy",), "sia-"),
    ),
    differences=(
        *beats("heuristic", "global", "last", metrics=("zest",)),
        *beats("aia-heuristic", "aia-gradients", "aia-global", "aia-last"),
        *beats("sia-heuristic", "sia-majority", "sia-last"),
        *base.compare(
            *(
                (f"{prefix}{label}", f"{prefix}last")
                for prefix in ("aia-", "sia-")
                for label in TRACED
                if label not in ("last", "heuristic")
            )
        ),
    ),
    plan=plan,
    why=WHY,
)
