"""Results of searches: the best trial beside the truth, and the range of trials that were nearly as good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedxray.reproduce.base import Sought, find
from fedxray.reproduce.document import document, searches_of_audit, validate
from fedxray.reproduce.pages import search_lines, sheets

REPRODUCTION = find("curious-unknown-lr")
PAST = {"command": "fedxray reproduce x", "commit": None, "seconds": 1.0}
PLAN = {"federation": {"learning_rate": 0.01}, "data": {"sizes": [4]}}


def trial(rate: float, images: int, loss: float | None, given_up: bool = False) -> dict[str, Any]:
    point = {"assumed_learning_rate": rate, "assumed_examples": images}
    return {"point": point, "loss": loss, "given_up": given_up}


def results(*trials: dict[str, Any], best: int | None = 0, attack: str = "searched") -> dict[str, Any]:
    case = {
        "attack": attack,
        "defence": "none",
        "aware": None,
        "seed": 3,
        "client": None,
        "search": {"best": best, "trials": list(trials)},
    }
    return {"cases": [case, {**case, "attack": "known", "search": None}], "plan": PLAN}


def test_a_ridge_is_wide_in_both_settings_and_narrow_in_their_quotient() -> None:
    ridge = [trial(0.011, 8, 1.0), trial(0.022, 16, 1.05), trial(0.0055, 4, 1.099)]
    off = [trial(0.1, 8, 1.11), trial(0.001, 8, None), trial(0.001, 8, 0.5, given_up=True)]
    entries = searches_of_audit(REPRODUCTION, "search-both", results(*ridge, *off))
    by = {one["quantity"]: one for one in entries}
    assert list(by) == ["assumed_learning_rate", "assumed_examples", "rate / images"]
    assert (by["assumed_examples"]["low"], by["assumed_examples"]["high"]) == (4, 16)
    ratio = by["rate / images"]
    assert ratio["found"] / ratio["true"] == pytest.approx(1.1)
    assert ratio["low"] == pytest.approx(ratio["high"]) and (ratio["nearly"], ratio["trials"]) == (3, 6)
    assert {(one["row"], one["column"], one["seed"]) for one in entries} == {("search-both", "searched", 3)}


def test_losses_of_the_chosen_trial_and_of_the_starts_are_recorded() -> None:
    trials = [trial(0.01, 8, None), trial(0.01, 9, 3.0), trial(0.02, 8, 2.0), trial(0.03, 8, 1.0)]
    searched = results(*trials, best=3)
    (one, *_) = searches_of_audit(REPRODUCTION, "search-both", searched)
    assert (one["loss"], one["loss_of_starts"]) == (1.0, None), "no trial was drawn at random first"
    searched["cases"][0]["search"]["starts"] = 3
    (one, *_) = searches_of_audit(REPRODUCTION, "search-both", searched)
    assert (one["loss"], one["loss_of_starts"]) == (1.0, 2.0)
    validate(document(REPRODUCTION, "small", [], PAST, (), [one]))


@pytest.mark.parametrize(("lowest", "near", "far"), [(-1.0, -0.91, -0.89), (0.0, 0.0, 1e-9), (1.0, 1.09, 1.11)])
def test_nearly_as_good_is_a_tenth_above_the_lowest_of_any_sign(lowest: float, near: float, far: float) -> None:
    trials = [trial(0.01, 9, near), trial(0.01, 8, lowest), trial(0.01, 16, far)]
    images = searches_of_audit(REPRODUCTION, "search-both", results(*trials, best=1))[1]
    assert (images["found"], images["low"], images["high"], images["nearly"]) == (8, 8, 9, 2)


def test_a_case_under_a_defence_that_no_column_has_is_left_out() -> None:
    searched = results(trial(0.011, 8, 1.0))
    searched["cases"][0]["defence"] = "gaussian"
    assert searches_of_audit(REPRODUCTION, "search-both", searched) == []


def test_the_table_has_the_truth_where_there_is_one() -> None:
    searched = results(trial(0.011, 8, 1.0), trial(0.022, 16, 1.05))
    content = document(REPRODUCTION, "small", [], PAST, (), searches_of_audit(REPRODUCTION, "search-both", searched))
    validate(content)
    sheet = next(one for one in sheets(content) if one.title == "Results of searches")
    assert sheet.lines[0][4:8] == ("assumed_learning_rate", "0.011", "0.01", "1.100")
    assert sheet.lines[0][8] == "1.1 to 2.2 times (2 of 2 trials)"
    blind = replace(REPRODUCTION, sought=None)
    without = document(REPRODUCTION, "small", [], PAST, (), searches_of_audit(blind, "search-both", searched))
    line = next(one for one in sheets(without) if one.title == "Results of searches").lines[1]
    assert line[4:] == ("assumed_examples", "8", "–", "–", "8 to 16 (2 of 2 trials)")


@pytest.mark.parametrize("searched", [results(best=None), results(trial(1, 1, 1.0), attack="another")])
def test_without_a_search_that_ended_there_is_no_table(searched: dict[str, Any]) -> None:
    assert searches_of_audit(REPRODUCTION, "search-both", searched) == []
    assert "searches" not in document(REPRODUCTION, "small", [], PAST)


def test_only_settings_with_a_known_truth_are_compared() -> None:
    half = replace(REPRODUCTION, sought=Sought(true=lambda _: {"assumed_learning_rate": 0.01}))
    entries = searches_of_audit(half, "search-both", results(trial(0.011, 8, 1.0)))
    assert [one["true"] for one in entries] == [0.01, None]


@pytest.mark.parametrize(("value", "said"), [(1000.0, "1000"), (999.6, "1000"), (943.78, "944"), (0.01018, "0.0102")])
def test_large_settings_have_no_exponent(value: float, said: str) -> None:
    where = {"row": "a", "column": "b", "seed": 0, "client": 4, "quantity": "q", "found": 1.0, "true": None}
    (line,) = search_lines([{**where, "low": value, "high": 12345.0, "nearly": 3, "trials": 50}])
    assert line[-1] == f"{said} to 12345 (3 of 50 trials)"
