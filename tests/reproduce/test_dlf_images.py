"""Tables 1, 3, 4, 6, 7 and 8 of Dimitrov et al. 2022 (DLF): printed numbers, recipes and attacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedxray.reproduce import dlf
from fedxray.reproduce.base import Request, find

PAPER = Request(scale="paper")
COUNTS = ["recipe", "examples", "label-counts"]
TABLES = ("table1", "table3", "table4", "trained", "order", "averaging", "defences")
FAMILY = ["dlf", "dlf-no-prior", "shared-simulation", "fedsgd-epoch", "fedsgd-inversion"]


def plans(request: Request = PAPER) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield table, row and plan of every row."""
    for table in TABLES:
        reproduction = find(f"dlf-{table}")
        assert reproduction.plan is not None
        for row in reproduction.rows:
            yield table, row, reproduction.plan(request, row)


def test_every_row_has_the_recipe_of_its_name_and_the_network_of_its_data() -> None:
    seen = set()
    for table, row, plan in plans():
        data, recipe = row.split("-")[:2]
        epochs, batch = (int(part) for part in recipe.split("x"))
        recipe = plan["federation"]
        assert (recipe["epochs"], recipe["batch_size"], recipe["learning_rate"]) == (epochs, batch, 0.004), row
        assert recipe["record"] == [recipe["rounds"] - 1] and (recipe["rounds"] == 1 or table == "trained"), row
        assert plan["model"] == dlf.network(data)
        assert plan["model"]["name"] == ("cnn-cifar" if data == "cifar100" else "cnn-femnist")
        assert plan["data"]["name"] in (("cifar100",) if data == "cifar100" else ("femnist", "femnist-like"))
        assert plan["data"]["limit"] == 50 and plan["seeds"] == [0]
        seen.add((data, epochs, batch))
    assert seen == {(data, *recipe) for data in ("femnist", "cifar100") for recipe in
                    ((1, 5), (5, 5), (10, 10), (10, 5), (10, 1))}  # fmt: skip


def test_every_attack_takes_the_steps_of_the_paper_with_the_numbers_of_its_data() -> None:
    for _, row, plan in plans():
        for attack in plan["attack"]:
            ours = attack.get("label") == "dlf-together"
            redrawn = attack["name"] == "dlf-redrawn"  # takes its own number of steps
            assert attack.get("steps") == (None if redrawn else 100 if ours else 400), (row, attack)
            assert attack["preset"] == row.split("-")[0], (row, attack)
            assert attack.get("together") == ((0.5 if ours else 0.0) if attack["name"] == "dlf" else None)
            assert attack["controls"] == ["held-out"] and len(attack["targets"]) >= 10
    small = {row: {a["steps"] for a in plan["attack"] if "steps" in a} for _, row, plan in plans(Request())}
    assert small["femnist-1x5"] == {100} and small["femnist-5x5"] == small["cifar100-10x1"] == {40}


def test_counts_are_known_except_in_table_3_and_end_to_end() -> None:
    for table, row, plan in plans():
        grants = {attack.get("label", attack["name"]): attack["grants"] for attack in plan["attack"]}
        labels = [attack.get("labels") for attack in plan["attack"]]
        if table == "table3" or row.endswith("-end-to-end"):
            assert set(map(tuple, grants.values())) == {("recipe", "examples")}, row
            assert labels == [{"name": "labels-dlf"}] * len(labels), row
        else:
            more = {label: names for label, names in grants.items() if names != COUNTS}
            batches = {"batches-known", "shared-batches-known"} if table == "order" else set()
            assert set(more) == batches and all(names == [*COUNTS, "batch-labels"] for names in more.values())
            assert labels == [None] * len(labels), row


def test_the_five_attacks_are_in_the_order_of_the_printed_columns() -> None:
    for plan, row in (
        (dlf.plan_table1, "femnist-5x5"),
        (dlf.plan_table3, "cifar100-10x1"),
        (dlf.plan_trained, "femnist-10x5-after-5"),
    ):
        labels = [attack.get("label", attack["name"]) for attack in plan(PAPER, row)["attack"]]
        assert labels == [*FAMILY, *(dlf.OURS if plan is dlf.plan_table1 else ())]
    assert list(dlf.ATTACKS) == FAMILY


@pytest.mark.parametrize(
    ("table", "row", "column", "rec", "psnr"),
    [
        ("table1", "femnist-5x5", "dlf", 0.631, 21.2),
        ("table1", "femnist-10x10", "dlf-no-prior", 0.585, 20.9),
        ("table1", "femnist-10x1", "fedsgd-epoch", 0.016, 4.5),
        ("table1", "cifar100-10x5", "shared-simulation", 0.157, 16.4),
        ("table1", "cifar100-1x5", "fedsgd-inversion", 0.077, 16.1),
        ("table3", "femnist-5x5", "dlf", 0.519, 20.3),
        ("table3", "femnist-10x5", "fedsgd-inversion", 0.072, 16.6),
        ("table3", "cifar100-10x10", "dlf-no-prior", 0.520, 19.1),
        ("table4", "femnist-10x5", "l2-mean", 0.655, 21.5),
        ("table4", "femnist-10x5", "l1-max", 0.368, 19.2),
        ("table4", "cifar100-10x5", "l2-max-conv", 0.588, 19.8),
        ("table4", "cifar100-10x5", "l1-mean-conv", 0.560, 19.6),
    ],
)
def test_printed_numbers_are_in_their_cells(table: str, row: str, column: str, rec: float, psnr: float) -> None:
    cell = find(f"dlf-{table}").paper.numbers[row][column]
    assert cell == {"rec": pytest.approx(rec, abs=1e-9), "psnr": psnr}


def test_unprinted_cells_have_no_number() -> None:
    for table in TABLES:
        reproduction = find(f"dlf-{table}")
        assert bool(reproduction.paper.numbers) == (table in ("table1", "table3", "table4"))
        assert set(reproduction.paper.numbers) in (set(), set(reproduction.rows))


def test_with_one_epoch_the_simulating_attacks_were_printed_as_one() -> None:
    for numbers in (dlf.TABLE1_NUMBERS, dlf.TABLE3_NUMBERS):
        for row in ("femnist-1x5", "cifar100-1x5"):
            first, *_, last = cells = [numbers[row][name] for name in FAMILY]
            assert cells == [first, first, first, last, last] and first["rec"] > last["rec"]


def test_table_4_has_every_prior_by_name() -> None:
    for row in ("femnist-10x5", "cifar100-10x5"):
        attacks = dlf.plan_table4(PAPER, row)["attack"]
        assert len(attacks) == 8 and all(one["label"] == one["prior"] for one in attacks)
        assert [one["prior"] for one in attacks] == list(dlf.PRIORS) == list(dlf.TABLE4_NUMBERS[row])
        assert {one["name"] for one in attacks} == {"dlf"}


@pytest.mark.parametrize("before", [0, 5, 10])
def test_table_7_attacks_the_round_after_training(before: int) -> None:
    plan = dlf.plan_trained(PAPER, f"femnist-10x5-after-{before}")
    assert plan["federation"]["rounds"] == before + 1 and plan["federation"]["record"] == [before]
    assert [attack["rounds"] for attack in plan["attack"]] == [[before]] * 5
    assert plan["data"]["clients"] == 10, "as many train in a small run"
    assert dlf.plan_trained(Request(), f"femnist-10x5-after-{before}")["data"]["clients"] == 10


@pytest.mark.parametrize("data", ["femnist", "cifar100"])
def test_table_8_shuffles_as_its_rows_state(data: str) -> None:
    for ending, shuffle in (("random", "epoch"), ("static", "once")):
        plan = dlf.plan_order(PAPER, f"{data}-10x5-{ending}")
        assert plan["federation"]["shuffle"] == shuffle
        named = {attack["label"]: attack["name"] for attack in plan["attack"]}
        assert named == {
            "counts-known": "dlf",
            "batches-known": "dlf",
            "shared-counts-known": "shared-simulation",
            "shared-batches-known": "shared-simulation",
        }
    others = [plan for table, _, plan in plans() if table != "order"]
    assert others and all("shuffle" not in plan["federation"] for plan in others)


def test_averages_and_defences_are_settings_of_the_same_attack() -> None:
    attacks = dlf.plan_averaging(PAPER, "femnist-10x5")["attack"]
    assert [(one["name"], one["label"], one["average"]) for one in attacks] == [
        ("dlf", name, name) for name in ("matched", "plain", "none")
    ]
    plan = dlf.plan_defences(PAPER, "femnist-5x5")
    assert [attack["name"] for attack in plan["attack"]] == ["dlf", "fedsgd-inversion"]
    settings = {one["label"]: (one.get("scale", one.get("share")), one.get("at")) for one in plan["defence"]}
    assert settings.pop("none") == (None, None)
    assert all(f"-{size}" in label and at == "gradients" for label, (size, at) in settings.items())
    assert [size for size, _ in settings.values()] == [0.01, 0.03, 0.01, 0.02, 0.2, 0.5]


def test_fewer_steps_and_epochs_that_begin_together_are_settings_of_the_attack_of_table_1() -> None:
    reproduction = find("dlf-iterations")
    assert reproduction.plan is not None
    for row in reproduction.rows:
        first, plan = dlf.plan_table1(PAPER, row), dlf.plan_iterations(PAPER, row)
        assert {**plan, "attack": None} == {**first, "attack": None}, row
        full, *others = plan["attack"]
        assert {**full, "label": "dlf", "together": 0} == {**first["attack"][0], "label": "dlf", "together": 0}
        variants = [(one["label"], one["steps"], one["together"]) for one in others]
        assert variants == [
            ("dlf-half", 200, 0),
            ("dlf-quarter", 100, 0),
            ("together-half", 200, 0.5),
            ("together-quarter", 100, 0.5),
        ]


def test_other_networks_change_nothing_but_the_network(data_folder: Path) -> None:
    for recipe in ("1x5", "5x5", "10x10", "10x5"):
        theirs, drawn = (dlf.plan_networks(PAPER, f"femnist-{recipe}-{kind}") for kind in ("theirs", "drawn"))
        assert {**theirs, "model": None} == {**drawn, "model": None}
        assert theirs["model"] == {**drawn["model"], "weights": dlf.THEIR_WEIGHTS}
        assert [(one["label"], one["steps"]) for one in drawn["attack"]] == [("dlf", 400), ("together-quarter", 100)]


def test_clients_are_limited_by_the_data() -> None:
    assert dlf.attacked("cifar100", PAPER) == list(range(20)) and dlf.attacked("cifar100", Request()) == [0, 1]
    assert len(dlf.attacked("femnist", PAPER)) == dlf.handwriting()["clients"]
