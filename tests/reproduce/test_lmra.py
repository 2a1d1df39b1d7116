"""The tables on local model reconstruction: numbers as printed, the same local steps at both scales, roles."""

from __future__ import annotations

import itertools

import pytest

from fedxray.reproduce import lmra, lmra_regime, measurements
from fedxray.reproduce.base import Request, published
from fedxray.reproduce.lmra import (
    LBFGS_RATES,
    MODELS,
    PRESET_READINGS,
    PRESETS,
    TABLE1,
    TABLE1_NUMBERS,
    TABLE9_NUMBERS as FITS,
    federation_of,
    percent,
    targets,
    together,
)

SMALL, PAPER = Request(), Request(scale="paper")


def test_numbers_are_those_of_the_table() -> None:
    """Corners of the printed tables, and how many numbers each has."""
    assert TABLE1_NUMBERS["flights"]["global"] == {"zest": pytest.approx(0.714)}
    assert TABLE1_NUMBERS["att-faces-bn"]["sia-heuristic"] == {"accuracy": pytest.approx(0.616)}
    assert TABLE1_NUMBERS["leaf"]["aia-gradients"] == {"accuracy": pytest.approx(0.663)}
    assert TABLE1_NUMBERS["att-faces"]["sra-gradients"] == {"ssim": pytest.approx(0.261)}
    assert TABLE1_NUMBERS["att-faces"]["sra-heuristic"] == {"class_ssim": pytest.approx(0.343)}
    assert sum(len(columns) for columns in TABLE1_NUMBERS.values()) == 8 * 3 + 6 * 4 + 2 * 4 + 8 * 3
    assert FITS["flights"]["optimum"] == {"training_mape": pytest.approx(0.107)}
    assert FITS["leaf-bn"]["last"] == {"training_accuracy": pytest.approx(0.726)}
    assert sum(len(columns) for columns in FITS.values()) == 8 * 4


def test_printed_lines_are_read() -> None:
    numbers = published("a 10 - 30", ("x", "y", "z"), percent("zest"))
    assert numbers == {"a": {"x": {"zest": 0.1}, "z": {"zest": 0.3}}}
    both = together(numbers, published("a 50", ("x",), percent("ssim")))
    assert both["a"]["x"] == {"zest": 0.1, "ssim": 0.5}


@pytest.mark.parametrize(("data", "examples"), [("leaf", (200, 2000)), ("adult", (240, 1650))])
def test_a_client_takes_as_many_local_steps_at_both_scales(data: str, examples: tuple[int, int]) -> None:
    steps = []
    for request, count in zip((SMALL, PAPER), examples, strict=True):
        recipe = federation_of(data, request)["federation"]
        assert (recipe["rounds"], recipe["record"], recipe["learning_rate"]) == (1000, "every-10", 0.01)
        steps.append(-(-count // recipe["batch_size"]))
    assert steps == [4, 4]


def test_models_have_the_role_that_they_need() -> None:
    for part in TABLE1.plan(SMALL, "leaf")["attack"]:  # type: ignore[misc]
        inner = part.get("model", part)["name"]
        active = inner in ("local-model-active", "local-model-send-back")
        assert part.get("role", "server") == ("active-server" if active else "server")


def test_settings_are_the_same_for_all_clients_and_data_sets() -> None:
    seen: dict[str, object] = {}
    for row in TABLE1.rows:
        for part in TABLE1.plan(PAPER, row)["attack"]:  # type: ignore[misc]
            inner = part.get("model")
            if inner is not None:
                assert inner == MODELS[part["label"].partition("-")[2]]
            settings = {key: value for key, value in part.items() if key not in ("targets", "steps")}
            if part["label"] in PRESET_READINGS:  # these are the paper's own, which differ by data set
                assert part.items() >= PRESETS[row.removesuffix("-bn")].items()
                continue
            if part["label"] == "aia-gradients-lbfgs":
                assert settings.pop("learning_rates") == [LBFGS_RATES[row.removesuffix("-bn")]]
            assert seen.setdefault(part["label"], settings) == settings


@pytest.mark.parametrize(
    ("reproduction", "row", "key", "small", "paper"),
    [
        (lmra.BATCH_SIZE, "leaf-2000", ("federation", "batch_size"), 250, 2000),
        (lmra.BATCH_SIZE, "att-faces-64", ("federation", "batch_size"), 64, 64),
        (lmra.EPOCHS, "adult-5", ("federation", "epochs"), 5, 5),
        (lmra.CLIENTS, "att-faces-20", ("data", "clients"), 20, 20),
        (lmra.DATASET_SIZE, "leaf-1024", ("data", "limit"), 128, 1024),
        (lmra.DATASET_SIZE, "leaf-64", ("federation", "batch_size"), 8, 64),
    ],
)
def test_a_row_changes_what_it_is_named_after(
    reproduction: lmra.Reproduction, row: str, key: tuple[str, str], small: int, paper: int
) -> None:
    assert reproduction.plan is not None
    for request, value in ((SMALL, small), (PAPER, paper)):
        assert reproduction.plan(request, row)[key[0]][key[1]] == value


def test_fewer_clients_are_among_more() -> None:
    chosen = [targets("adult", Request(clients=count)) for count in range(1, 11)]
    assert all(set(few) < set(more) for few, more in itertools.pairwise(chosen))
    assert chosen[-1] == list(range(10)) and chosen[2] == [0, 3, 5]
    assert targets("flights", PAPER) == list(range(6)) and targets("flights", Request(clients=2)) == [0, 5]


def test_every_client_of_the_regime_is_attacked_and_holds_a_part_of_the_data() -> None:
    for row in lmra_regime.REGIME.rows:
        plan = lmra_regime.plan(SMALL, row)
        assert plan["data"]["clients"] == len(plan["attack"][0]["targets"]) == 6 and plan["seeds"] == list(range(5))
        assert {key: plan["federation"][key] for key in lmra.RECIPE} == lmra.RECIPE


def test_distances_of_doctorates_are_those_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distance 5 between the first three and the rest, 2 among the rest, 100 among the first three."""
    kinds = [client < 3 for client in range(10)]
    far = [[0.0 if i == j else {2: 100.0, 1: 5.0, 0: 2.0}[kinds[i] + kinds[j]] for j in range(10)] for i in range(10)]
    monkeypatch.setattr(measurements, "optimum_distances", lambda plan, seed: far)
    cells = {cell.column: cell for cell in lmra.measure_distances(Request(seeds=2), "adult")}
    assert [unit.value for unit in cells["doctorates-to-others"].units] == [5.0, 5.0]
    assert [(unit.seed, unit.value) for unit in cells["others-to-others"].units] == [(0, 2.0), (1, 2.0)]


def test_distances_are_relative_to_the_second_model() -> None:
    plan = federation_of("leaf", SMALL, clients=2, examples=8) | {"seeds": [0]}
    first, second = measurements.optimum_distances(plan, 0)
    assert first[0] == second[1] == 0.0 and first[1] > 0 and second[0] > 0 and first[1] != second[0]
