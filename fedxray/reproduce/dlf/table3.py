"""Table 3: the same attacks end to end, with label counts that are estimated first."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Reproduction, Request
from fedxray.reproduce.dlf.setting import (
    ATTACKS,
    ORDER,
    ROWS,
    STAND_IN,
    attack,
    columns,
    federation_of,
    paper,
    published,
)

NUMBERS = published("""
femnist-1x5    37.2/19.3 37.2/19.3 37.2/19.3 35.7/19.2 35.7/19.2
femnist-5x5    51.9/20.3 47.5/20.1 40.8/19.5 47.0/19.8 12.5/17.3
femnist-10x10  55.0/20.5 50.0/20.2 45.7/19.7 50.0/19.9 10.6/17.0
femnist-10x5   48.5/20.2 43.0/19.8 43.6/19.3 45.8/19.1  7.2/16.6
femnist-10x1   21.4/18.3 14.5/16.9  7.5/15.2  1.1/3.6   4.7/16.5
cifar100-1x5    5.0/15.7  5.0/15.7  5.0/15.7  4.8/15.7  4.8/15.7
cifar100-5x5   46.7/18.5 45.0/18.3  7.0/15.8  7.7/15.8  0.8/14.1
cifar100-10x10 54.3/19.4 52.0/19.1 15.1/16.5 18.8/16.7  0.5/13.7
cifar100-10x5  46.0/18.5 43.2/18.2  8.7/15.7  8.1/14.9  0.6/13.1
cifar100-10x1   6.7/14.7  5.7/14.6  0.4/11.9  0.1/9.0   1.4/12.7
""")
ESTIMATED: dict[str, Any] = {"grants": ("recipe", "examples"), "labels": {"name": "labels-dlf"}}


def plan(request: Request, row: str) -> dict[str, Any]:
    """One row; every attack starts from the counts of labels-dlf, class by class as the authors' code has them."""
    attacks = [attack(name, row, request, **ESTIMATED) for name in ATTACKS]
    return {**federation_of(row, request), "attack": attacks}


TABLE3 = Reproduction(
    name="dlf-table3",
    shows="How many images each attack rebuilds when it has to find the label counts first.",
    paper=paper("Table 3", NUMBERS),
    rows=ROWS,
    small_rows=("femnist-1x5", "femnist-5x5"),
    columns=columns(),
    differences=ORDER,
    plan=plan,
    why=STAND_IN,
)
