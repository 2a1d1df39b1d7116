"""Beyond the paper: what columns that tell nothing do to an attack on the client's own model."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import RATES, WHY, columns, income, paper, plan_of
from fedxray.reproduce.base import Difference, Reproduction, Request

LABELS = ("model", "active-10", "active-50", "active-50-tuned-oracle", "oracle")


def plan(request: Request, row: str) -> dict[str, Any]:
    """Connecticut, which has no occupations, with so many drawn at random."""
    data = {**income(request), "state": "CT", "drawn_occupations": int(row)}
    return plan_of(data, request, LABELS, rate=RATES["income"])


WIDTH = Reproduction(
    name="aia-regression-width",
    shows="Whether an active attack overfits a client in few rounds only because her table is wide.",
    paper=paper(
        "Table 1",
        trend="548 columns, most of them occupations: 75.3 % listening, 82.0 % after 10 active rounds, 94.3 % after "
        "50, and 94.3 % for the optimal local model",
    ),
    rows=("0", "100", "500"),
    small_rows=("0", "500"),
    columns=columns(LABELS),
    differences=(
        Difference(left="active-50", right="model", expected="above"),
        Difference(left="active-50", right="active-10", expected="above"),
        Difference(left="active-50", right="oracle"),
        Difference(left="active-50-tuned-oracle", right="active-50"),
        Difference(left="active-50", right="active-50", rows=("500", "0")),
        Difference(left="model", right="model", rows=("500", "0")),
    ),
    plan=plan,
    why=f"{WHY}; occupations drawn at random stand in for real ones, which also tell of income and sex",
)
