"""The tables on local model reconstruction: numbers as printed, the same local steps at both scales, seats."""

from __future__ import annotations

import itertools

import pytest

from fedxray.reproduce import lmra
from fedxray.reproduce.base import Request
from fedxray.reproduce.lmra import MODELS, TABLE1, TABLE1_NUMBERS, federation_of, published, targets, together
from fedxray.reproduce.lmra import TABLE9_NUMBERS as FITS
from fedxray.reproduce.lmra_page import choices, tables

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


def test_reading_of_printed_lines() -> None:
    found = published("a 10 - 30", "zest", ("x", "y", "z"))
    assert found == {"a": {"x": {"zest": 0.1}, "z": {"zest": 0.3}}}
    both = together(found, published("a 50", "ssim", ("x",)))
    assert both["a"]["x"] == {"zest": 0.1, "ssim": 0.5}


@pytest.mark.parametrize(("data", "examples"), [("leaf", (200, 2000)), ("adult", (240, 1650))])
def test_a_client_takes_as_many_local_steps_at_both_scales(data: str, examples: tuple[int, int]) -> None:
    steps = []
    for request, count in zip((SMALL, PAPER), examples, strict=True):
        recipe = federation_of(data, request)["federation"]
        assert (recipe["rounds"], recipe["record"], recipe["learning_rate"]) == (1000, "every-10", 0.01)
        steps.append(-(-count // recipe["batch_size"]))
    assert steps == [4, 4]


def test_models_are_asked_from_the_seat_that_they_need() -> None:
    for part in TABLE1.plan(SMALL, "leaf")["attack"]:  # type: ignore[misc]
        inner = part.get("model", part)["name"]
        active = inner in ("local-model-active", "local-model-send-back")
        assert part.get("role", "server") == ("active-server" if active else "server")


def test_one_setting_serves_all_clients_and_tables() -> None:
    seen: dict[str, object] = {}
    for row in TABLE1.rows:
        for part in TABLE1.plan(PAPER, row)["attack"]:  # type: ignore[misc]
            inner = part.get("model")
            if inner is not None:
                assert inner == MODELS[part["label"].partition("-")[2]]
            settings = {key: value for key, value in part.items() if key not in ("targets", "steps")}
            assert seen.setdefault(part["label"], settings) == settings


@pytest.mark.parametrize(
    ("made", "row", "key", "small", "paper"),
    [
        (lmra.LMRA_BATCH_SIZE, "leaf-2000", ("federation", "batch_size"), 250, 2000),
        (lmra.LMRA_BATCH_SIZE, "att-faces-64", ("federation", "batch_size"), 64, 64),
        (lmra.LMRA_EPOCHS, "adult-5", ("federation", "epochs"), 5, 5),
        (lmra.LMRA_CLIENTS, "att-faces-20", ("data", "clients"), 20, 20),
        (lmra.LMRA_DATASET_SIZE, "leaf-1024", ("data", "limit"), 128, 1024),
        (lmra.LMRA_DATASET_SIZE, "leaf-64", ("federation", "batch_size"), 8, 64),
    ],
)
def test_a_row_changes_what_it_is_named_after(
    made: lmra.Reproduction, row: str, key: tuple[str, str], small: int, paper: int
) -> None:
    assert made.plan is not None
    for request, value in ((SMALL, small), (PAPER, paper)):
        assert made.plan(request, row)[key[0]][key[1]] == value


def test_fewer_clients_are_among_more() -> None:
    chosen = [targets("adult", Request(clients=count)) for count in range(1, 11)]
    assert all(set(few) < set(more) for few, more in itertools.pairwise(chosen))
    assert chosen[-1] == list(range(10)) and chosen[2] == [0, 3, 5]
    assert targets("flights", PAPER) == list(range(6)) and targets("flights", Request(clients=2)) == [0, 5]


def document(values: dict[tuple[str, str], list[tuple[int, int, float]]]) -> dict[str, object]:
    return {
        "rows": [
            {
                "row": "leaf",
                "column": column,
                "metric": metric,
                "units": [{"seed": seed, "client": client, "value": value} for seed, client, value in units],
            }
            for (column, metric), units in values.items()
        ]
    }


def test_measured_models_by_hand() -> None:
    """Two seeds that settings were looked at on, one fresh one; differences are paired by seed and client."""
    made = document(
        {
            ("last", "zest"): [(0, 0, 0.1), (1, 0, 0.3), (7, 0, 0.5)],
            ("active", "zest"): [(0, 0, 0.2), (1, 0, 0.6), (7, 0, 0.6)],
            ("active", "training_loss"): [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 100.0)],
            ("aia-active", "accuracy"): [(0, 0, 0.9)],
            ("sia-majority", "accuracy"): [(0, 0, 0.25)],
        }
    )
    first, fresh = tables(made)
    assert first[0].endswith("seeds 0 to 4 (2 runs)") and fresh[0].endswith("fresh seeds 5 to 9 (1 run)")
    lines = {line[0]: line[1:] for line in first[2]}
    assert list(lines) == ["`last`", "`active`", "source inference by majority"]
    assert lines["`last`"][:2] == ("0.200", "")
    assert lines["`active`"][0] == "0.400" and lines["`active`"][1].startswith("+0.200 [")
    assert lines["`active`"][2:] == ("2", "", "", "0.900", "")
    assert lines["source inference by majority"] == ("", "", "", "", "", "", "0.250")
    assert [line[1:3] for line in fresh[2]] == [("0.500", ""), ("0.600", "+0.100")]


def models_of(values: dict[str, tuple[float, float, float]], seeds: range) -> dict[str, object]:
    """The same zest, loss and accuracy on every seed, but for a little that moves all models alike."""
    metrics = ("zest", "training_loss", "training_accuracy")
    return document(
        {
            (name, metric): [(seed, 0, value + 0.01 * seed) for seed in seeds]
            for name, numbers in values.items()
            for metric, value in zip(metrics, numbers, strict=True)
        }
    )


def test_what_is_chosen_fits_no_worse_and_is_most_alike() -> None:
    made = models_of(
        {
            "last": (0.3, 0.5, 0.8),
            "heuristic": (0.4, 0.5, 0.8),
            "heuristic-span": (0.35, 0.4, 0.85),
            "extrapolate-100": (0.9, 5.0, 0.4),  # alike and useless
            "heuristic-follow": (0.5, 0.4, 0.79),  # less accurate
            "send-back": (0.2, 0.1, 0.9),  # fits, and is less alike than the last returned model
            "optimum": (1.0, 0.0, 1.0),
        },
        range(10),
    )
    found = choices(made)
    assert found[0] == "Chosen by listening on Leaf Synthetic, seeds 0 to 4: `heuristic`."
    assert found[1].startswith("Leaf Synthetic, fresh seeds 5 to 9 confirms `heuristic`: zest +0.100 [")
    assert found[2].startswith("Chosen by interfering on Leaf Synthetic, seeds 0 to 4: none")
    assert len(found) == 3


def test_fresh_seeds_can_refute_what_was_chosen() -> None:
    chosen = models_of({"last": (0.3, 0.5, 0.8), "active": (0.4, 0.4, 0.9)}, range(5))
    fresh = models_of({"last": (0.3, 0.5, 0.8), "active": (0.4, 0.9, 0.9)}, range(5, 10))
    both = {"rows": [*chosen["rows"], *fresh["rows"]]}  # type: ignore[misc]
    assert [one for one in choices(both) if "does not confirm `active`" in one]
    assert not [one for one in choices(chosen) if "fresh" in one] and not choices(fresh)
