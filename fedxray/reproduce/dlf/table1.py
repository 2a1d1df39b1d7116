"""Table 1: five attacks on FedAvg updates when the counts of the labels are known."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request
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
femnist-1x5    42.3/19.7 42.3/19.7 42.3/19.7 37.7/19.5 37.7/19.5
femnist-5x5    63.1/21.2 56.2/20.7 59.0/20.6 56.1/20.4 13.7/17.4
femnist-10x10  63.8/21.3 58.5/20.9 62.0/20.7 60.2/20.6 11.8/17.2
femnist-10x5   65.5/21.5 50.6/20.3 59.9/20.3 56.0/19.6  8.3/16.7
femnist-10x1   49.5/20.1 21.5/16.7 14.9/16.1  1.6/4.5   5.2/16.6
cifar100-1x5    9.1/16.2  9.1/16.2  9.1/16.2  7.7/16.1  7.7/16.1
cifar100-5x5   55.2/19.2 53.0/19.1 10.8/16.4 10.9/16.3  1.2/14.2
cifar100-10x10 62.7/20.3 60.1/20.0 23.8/17.2 26.2/17.4  0.6/13.8
cifar100-10x5  58.8/19.8 56.4/19.6 15.7/16.4  8.5/15.0  0.4/13.2
cifar100-10x1  12.2/15.4 11.0/15.2  0.4/12.5  0.0/8.9   1.3/12.8
""")


def plan(request: Request, row: str) -> dict[str, Any]:
    """One row: local epochs x batch size on one data set."""
    return {**federation_of(row, request), "attack": [attack(name, row, request) for name in ATTACKS]}


TABLE1 = Reproduction(
    name="dlf-table1",
    shows="How many images of a client each attack rebuilds from one FedAvg update when label counts are known.",
    paper=paper("Table 1", NUMBERS),
    rows=ROWS,
    small_rows=("femnist-1x5", "femnist-5x5", "cifar100-1x5"),
    columns=columns(),
    differences=(
        *ORDER,
        *(
            Difference(
                left="fedsgd-inversion",
                right="fedsgd-inversion",
                rows=(f"{data}-1x5", f"{data}-{other}"),
                expected="above",
            )
            for data in ("femnist", "cifar100")
            for other in ("5x5", "10x10", "10x5")
        ),
    ),
    plan=plan,
    why=STAND_IN,
)
