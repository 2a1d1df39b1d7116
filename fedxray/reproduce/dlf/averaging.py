"""Section 5.5: the images of single epochs against their matched average."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.dlf.setting import METRICS, STAND_IN, attack, federation_of, paper
from fedxray.reproduce.dlf.table3 import ESTIMATED

AVERAGES = {"matched": "matched and averaged", "plain": "averaged as they come", "none": "first epoch alone"}
ROWS = tuple(f"{data}-10x5{ending}" for data in ("femnist", "cifar100") for ending in ("", "-end-to-end"))


def plan(request: Request, row: str) -> dict[str, Any]:
    """The same attack with its epochs put together in three ways, counts known or estimated."""
    more = ESTIMATED if row.endswith("-end-to-end") else {}
    attacks = [attack("dlf", row, request, label=name, average=name, **more) for name in AVERAGES]
    return {**federation_of(row, request), "attack": attacks}


AVERAGED = Reproduction(
    name="dlf-averaging",
    shows="That images of single epochs become better when they are matched and averaged.",
    paper=paper(
        "Section 5.5 and Figure 3",
        trend="single epochs are noisy, and the average is significantly better than any of them",
    ),
    rows=ROWS,
    small_rows=ROWS[:1],
    columns=columns_of(AVERAGES, METRICS),
    differences=(
        Difference(left="matched", right="none", expected="above"),
        Difference(left="matched", right="plain"),
    ),
    plan=plan,
    why=STAND_IN,
)
