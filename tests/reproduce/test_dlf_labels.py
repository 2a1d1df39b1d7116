"""Table 2 of Dimitrov et al. 2022 (DLF): its plans and the printed numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.grid import expand
from fedxray.errors import BadInput
from fedxray.reproduce.base import Request
from fedxray.reproduce.dlf import TABLE2, TABLE2_ATTACKS, TABLE2_ROWS, plan_table2, table2_data


@pytest.mark.parametrize("row", TABLE2_ROWS)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_is_a_plan(row: str, scale: str) -> None:
    checked = make_plan(plan_table2(Request(scale=scale), row), Path.cwd())  # type: ignore[arg-type]
    attacked = {case.client for case in expand(checked)[1]}
    assert len(attacked) == (min(24, checked.data.clients) if scale == "small" else checked.data.clients)
    assert len(expand(checked)[1]) == len(TABLE2_ATTACKS) * len(attacked)


def test_a_row_has_the_recipe_of_its_name() -> None:
    content = plan_table2(Request(), "cifar100-10x1")
    assert (content["federation"]["epochs"], content["federation"]["batch_size"]) == (10, 1)
    assert content["model"]["name"] == "cnn-cifar" and content["data"]["clients"] == 22


def test_clients_are_as_many_as_asked_for_of_all_that_train() -> None:
    few = plan_table2(Request(clients=3), "mnist-1x5")
    assert few["data"] == table2_data("mnist") and few["data"]["clients"] == 200
    assert {tuple(attack["targets"]) for attack in few["attack"]} == {(0, 1, 2)}
    with pytest.raises(BadInput, match="--clients"):
        plan_table2(Request(clients=23), "cifar100-1x5")


def test_the_small_scale_has_fewer_dummies() -> None:
    for scale, draws in (("small", 300), ("paper", 3000)):
        attacks = plan_table2(Request(scale=scale), "mnist-1x5")["attack"]  # type: ignore[arg-type]
        assert {attack["samples"] for attack in attacks if "samples" in attack} == {draws}


def test_printed_numbers_are_in_their_columns() -> None:
    numbers = TABLE2.paper.numbers
    assert set(numbers) == {row for row in TABLE2_ROWS if not row.startswith("mnist")}
    assert numbers["femnist-10x5"]["labels-geng-start"]["label_error"] == (9.2, 4.35)
    assert numbers["cifar100-10x1"]["labels-geng-end"]["label_error"] == (15.7, 3.48)
    assert numbers["cifar100-1x5"]["labels-dlf"]["label_error"] == (4.2, 1.41)
    assert all("labels-ilrg" not in columns for columns in numbers.values())
