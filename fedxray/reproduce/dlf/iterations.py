"""Quality per step: the paper's attack cut short, and epochs that begin together."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import NO_TABLE, Difference, Reproduction, Request, columns_of
from fedxray.reproduce.dlf.setting import METRICS, STAND_IN, attack, federation_of, paper

# column -> what it is, share of the steps, share of those in which all epochs hold the same images
WAYS = {
    "dlf": ("all steps", 1.0, 0.0),
    "dlf-half": ("half of the steps", 0.5, 0.0),
    "dlf-quarter": ("a quarter of the steps", 0.25, 0.0),
    "together-half": ("half of the steps, epochs begin together", 0.5, 0.5),
    "together-quarter": ("a quarter of the steps, epochs begin together", 0.25, 0.5),
}
ROWS = ("femnist-5x5", "femnist-10x10", "femnist-10x5")


def plan(request: Request, row: str) -> dict[str, Any]:
    """The same federation as the row of table 1, attacked with fewer and fewer steps."""
    attacks = []
    for label, (_, share, together) in WAYS.items():
        whole = attack("dlf", row, request, label=label, together=together)
        attacks.append(whole | {"steps": round(whole["steps"] * share)})
    return {**federation_of(row, request), "attack": attacks}


ITERATIONS = Reproduction(
    name="dlf-iterations",
    shows="What fewer steps cost, and that epochs which begin together need fewer of them.",
    paper=paper(NO_TABLE, trend="400 steps, always"),
    rows=ROWS,
    small_rows=ROWS[:1],
    columns=columns_of({name: words for name, (words, _, _) in WAYS.items()}, METRICS),
    differences=(
        Difference(left="together-half", right="dlf"),
        Difference(left="together-quarter", right="dlf"),
        Difference(left="together-half", right="dlf-half"),
        Difference(left="dlf", right="dlf-half"),
    ),
    plan=plan,
    why=f"the paper has no such table; {STAND_IN}",
)
