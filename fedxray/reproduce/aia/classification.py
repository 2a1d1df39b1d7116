"""Section 6: on a classification task the order of model and gradient attacks is inverted."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import SWEEP, columns, income, paper, plan_of
from fedxray.reproduce.base import Difference, Reproduction, Request

RATE = 0.05


def plan(request: Request, row: str) -> dict[str, Any]:
    """Nebraska with incomes above 50,000 or not, and a network with one hidden layer or none."""
    data = {**income(request), "state": "NE"}
    network = {"name": "linear"} if row == "linear" else None
    return plan_of(data, request, SWEEP, rate=RATE, network=network)


CLASSIFICATION = Reproduction(
    name="aia-classification",
    shows="Whether a model tells more of the sensitive column than gradients do when the target is a class.",
    paper=paper(
        "Section 6",
        trend="the order is inverted: gradients tell more; of a linear model the guess is a function of the label",
    ),
    rows=("mlp", "linear"),
    columns=columns(SWEEP),
    differences=(
        Difference(left="grad", right="model", expected="above"),
        Difference(left="grad-closed", right="model", expected="above"),
        Difference(left="active-50-grad", right="active-50", expected="above"),
        Difference(left="oracle", right="model"),
    ),
    plan=plan,
    why="Nebraska stands in for Louisiana; the learning rate is ours, since the text gives none",
)
