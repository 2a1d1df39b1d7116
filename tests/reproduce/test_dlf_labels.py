"""Table 2 of "Data Leakage in Federated Averaging": its plans and the numbers that were printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedxray.audit.cases import expand
from fedxray.audit.plan import make_plan
from fedxray.errors import BadInput
from fedxray.reproduce.base import Request
from fedxray.reproduce.dlf.table2 import ATTACKS, ROWS, TABLE2, data_of, plan


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_is_a_plan(row: str, scale: str) -> None:
    made = make_plan(plan(Request(scale=scale), row), Path.cwd())  # type: ignore[arg-type]
    attacked = {case.client for case in expand(made)[1]}
    assert len(attacked) == (made.data.clients if scale == "paper" or row[0] != "c" else 4)
    assert len(expand(made)[1]) == len(ATTACKS) * len(attacked)


def test_a_row_says_its_recipe() -> None:
    made = plan(Request(), "cifar100-10x1")
    assert (made["federation"]["epochs"], made["federation"]["batch_size"]) == (10, 1)
    assert made["model"]["name"] == "cnn-cifar" and made["data"]["clients"] == 22


def test_clients_are_as_many_as_asked_for_but_never_one_alone() -> None:
    few, many = Request(scale="paper", clients=3), Request(scale="small", clients=33)
    assert data_of("mnist", few)["clients"] == 200 and plan(few, "mnist-1x5")["attack"][0]["targets"] == 3
    assert data_of("mnist", many)["clients"] == 33 == plan(many, "mnist-1x5")["attack"][0]["targets"]
    assert data_of("mnist", Request(clients=1))["clients"] >= 2
    with pytest.raises(BadInput, match="--clients"):
        plan(Request(clients=23), "cifar100-1x5")


def test_printed_numbers_stand_in_their_columns() -> None:
    numbers = TABLE2.paper.numbers
    assert set(numbers) == {row for row in ROWS if not row.startswith("mnist")}
    assert numbers["femnist-10x5"]["labels-geng-start"]["label_error"] == (9.2, 4.35)
    assert numbers["cifar100-10x1"]["labels-geng-end"]["label_error"] == (15.7, 3.48)
    assert numbers["cifar100-1x5"]["labels-dlf"]["label_error"] == (4.2, 1.41)
    assert all("labels-ilrg" not in columns for columns in numbers.values())
