"""Two small reproductions for tests: one of audits, one measured directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedxray.reproduce.base import Difference, Measured, Paper, Reproduction, Request, TableColumn, Unit

OF_GLOBAL = 7  # a grid that has no effect on this column and identifies the attack among its controls


def plan(request: Request, row: str) -> dict[str, Any]:
    """Return a clinic of four clients, attacked in the number that was asked for."""
    targets = list(range(request.pick_clients(small=2, paper=4, most=4)))
    return {
        "seeds": request.pick_seeds(small=1, paper=3),
        "data": {"name": "clinic", "clients": 4, "partition": "as-given", "records": 80, "sensitive": "smoker"},
        "model": {"name": "mlp", "hidden": [4]},
        "federation": {"rounds": int(row.removeprefix("rounds-")), "learning_rate": 0.05},
        "attack": [
            {"name": "attribute-from-model", "label": "last", "targets": targets},
            {"name": "attribute-from-model", "label": "global", "model": "global-model", "targets": targets}
            | {"grid": OF_GLOBAL},
        ],
    }


AUDITED = Reproduction(
    name="fake-audited",
    shows="That a small table can be made.",
    paper=Paper(
        title="A paper",
        place="Table 9",
        clients=100,
        numbers={"rounds-1": {"last": {"accuracy": 0.9}, "global": {"accuracy": (0.8, 0.1)}}},
    ),
    rows=("rounds-1", "rounds-2"),
    small_rows=("rounds-1",),
    columns=(
        TableColumn(attack="last", metric="accuracy", called="Ours"),
        TableColumn(attack="global", metric="accuracy"),
        TableColumn(attack="last", metric="balanced_accuracy"),
    ),
    differences=(
        Difference(left="last", right="global", expected="above"),
        Difference(left="last", right="last", rows=("rounds-1", "rounds-2")),
    ),
    plan=plan,
    why="The clinic is invented.",
)


def measure(request: Request, row: str) -> list[Measured]:
    """Return the seeds themselves, with an offset for one of the columns."""
    units = [(seed, 10.0 * (row == "far") + seed) for seed in request.pick_seeds(small=3, paper=5)]
    return [
        Measured(
            column=name,
            metric="psnr",
            units=tuple(Unit(seed=seed, client=None, value=value + more) for seed, value in units),
            floors={"chance": 0.5},
        )
        for name, more in (("first", 0.0), ("second", 1.0))
    ]


MEASURED = Reproduction(
    name="fake-measured",
    shows="That rows can be measured directly.",
    paper=Paper(title="A paper", place="Figure 7", trend="the second is above the first"),
    rows=("near", "far"),
    columns=(TableColumn(attack="first", metric="psnr"), TableColumn(attack="second", metric="psnr")),
    differences=(Difference(left="second", right="first", expected="above"),),
    measure=measure,
)


def plan_without_data(request: Request, row: str) -> dict[str, Any]:
    """Return a plan on a file that is not there."""
    return {**plan(request, row), "data": {"path": "absent.csv", "target": "x", "sensitive": "y"}}


ABSENT = replace(AUDITED, name="fake-broken", plan=plan_without_data)


def plan_of_missing_data(request: Request, row: str) -> dict[str, Any]:
    """The second row's data set is in the catalogue, and not here."""
    missing = {"data": {"name": "adult", "clients": 2}}
    return plan(request, row) | ({} if row == "rounds-1" else missing)


MISSING = replace(AUDITED, name="fake-missing", small_rows=(), plan=plan_of_missing_data)
