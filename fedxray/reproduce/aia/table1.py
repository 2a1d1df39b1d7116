"""Table 1: attribute inference by gradients and by models, passive and active, on three data sets."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.aia.setting import (
    CALLED,
    RATES,
    STAND_IN,
    WHY,
    columns,
    income,
    medical,
    order,
    paper,
    plan_of,
)
from fedxray.reproduce.base import Difference, Reproduction, Request

THEIR_STATES = 51
ROWS = ("medical", "income-l", "income-a")
LABELS = tuple(label for label in CALLED if label not in ("global", "active-50-tuned-oracle"))
PRINTED = """
grad                   60.36/.67 54.98/.29 87.26/.92
grad-oracle            71.44/.33 56.10/1.12 91.06/.55
model                  75.27/.32 55.75/.17 95.90/.04
active-10-grad         60.24/.60 54.98/.29 87.26/.92
active-10-grad-oracle  80.69/.55 56.10/1.12 91.06/.55
active-10              82.02/.85 63.53/.73 95.93/.07
active-50-grad         60.24/.60 53.36/.40 87.26/.92
active-50-grad-oracle  80.69/.55 56.12/.12 91.06/.55
active-50              94.31/.11 78.09/.25 96.79/.79
oracle                 94.31/.11 78.31/.07 96.79/.79
"""


def _published() -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """The printed percents as shares, by row and column."""
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = {row: {} for row in ROWS}
    for line in PRINTED.strip().splitlines():
        label, *cells = line.split()
        for row, cell in zip(("income-l", "income-a", "medical"), cells, strict=True):
            mean, spread = map(float, cell.split("/"))
            found[row][label] = {"accuracy": (mean / 100, spread / 100)}
    return found


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set."""
    if row == "medical":
        return plan_of(medical(), request, LABELS, rate=RATES["medical"])
    if row == "income-l":
        return plan_of(income(request), request, LABELS, rate=RATES["income"])
    open_form = [label for label in LABELS if not label.startswith("grad-closed")]  # too many records for it
    return plan_of(states(request), request, open_form, rate=RATES["income"])


def states(request: Request) -> dict[str, Any]:
    """A fifth of every state of which the user has a file with dollars, one client each."""
    from fedxray.data.income import states_in_dollars

    clients = len(states_in_dollars()) or THEIR_STATES  # without files it is refused when its turn comes
    made = {"name": "acs-income", "state": "all", "share": 0.2, "partition": "as-given", "clients": clients}
    return made | ({"limit": 300} if request.is_small else {})


TABLE1 = Reproduction(
    name="aia-regression-table1",
    shows="Whether a model or gradients tell the sensitive column of a client's records, listening or interfering.",
    paper=paper("Table 1", _published(), clients=None),
    rows=ROWS,
    small_rows=("medical", "income-l"),
    columns=columns(LABELS),
    differences=(
        *order(LABELS),
        Difference(left="model", right="grad-oracle", expected="above"),
        Difference(left="active-10", right="model", expected="above"),
        Difference(left="active-50", right="active-10", expected="above"),
        Difference(left="grad-oracle", right="grad", expected="above"),
    ),
    plan=plan,
    why=f"{WHY}; {STAND_IN}; income-a needs files of states made with folktables",
)
