"""Table 3: attribute inference when clients train with DP-SGD at epsilon 1, rounds of the active server included."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import (
    CALLED,
    RATES,
    ROUNDS,
    STAND_IN,
    WHY,
    income,
    medical,
    order,
    paper,
    plan_of,
)
from fedxray.reproduce.base import Column, Difference, Reproduction, Request

LABELS = ("grad-closed", "model", "active-50-grad", "active-50", "oracle")
ACTIVE_ROUNDS = 50
# Gradients are in dollars, so the clip is large.
BUDGETS = {"medical": {"delta": 1e-6, "clip": 5e5}, "income-l": {"delta": 1e-5, "clip": 3e6}}


def private(label: str, aware: bool = False) -> str:
    """What the column under DP-SGD is called."""
    return f"{label}, dp-sgd" + (", aware" if aware else "")


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set without a defence and with epsilon 1 over all rounds that anybody may ask for."""
    data = medical() if row == "medical" else income(request)
    rate = RATES["medical" if row == "medical" else "income"]
    budget = {"name": "dp-sgd", "epsilon": 1.0, "rounds": ROUNDS + ACTIVE_ROUNDS, **BUDGETS[row]}
    return {**plan_of(data, request, LABELS, rate=rate), "defence": [{"name": "none"}, budget]}


def _columns() -> tuple[Column, ...]:
    found = []
    for label in LABELS:
        found.append(Column(attack=label, metric="accuracy", called=CALLED[label]))
        found += [
            Column(
                attack=label,
                metric="accuracy",
                title=private(label, aware),
                called=CALLED[label],
                defence="dp-sgd",
                aware=aware,
            )
            for aware in (False, True)
        ]
    return tuple(found)


PRIVATE = Reproduction(
    name="aia-regression-dp",
    shows="Whether a model or gradients still tell the sensitive column when clients train with DP-SGD at epsilon 1.",
    paper=paper("Appendix C, Table 3", clients=None),
    rows=tuple(BUDGETS),
    columns=_columns(),
    differences=(
        *order(LABELS),
        *(
            Difference(left=label, right=private(label), expected="above")
            for label in LABELS
            if label != "oracle"
        ),
        Difference(left=private("active-50"), right=private("model")),
        Difference(left=private("active-50"), right=private("active-50-grad")),
    ),
    plan=plan,
    why=f"{WHY}; {STAND_IN}; batches are drawn by chance, and the noise is set for {ROUNDS + ACTIVE_ROUNDS} rounds",
)
