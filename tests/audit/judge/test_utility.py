"""What a run is worth to those who train, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedxray.audit.judge.results import utility_rows
from fedxray.audit.run.utility import guess_of, utility_of
from fedxray.data.dataset import Records
from fedxray.federation.transcript import MemoryShelf, Message, Parts, Transcript
from fedxray.federation.truth import Truth
from tests.adversary.clinics import federation


def ended_with(truth: Truth, **params: torch.Tensor) -> Transcript:
    """A transcript whose last outcome holds these parameters, and an earlier one that holds others."""
    shelf = MemoryShelf()
    shelf.put("global/1", Parts({name: value + 7 for name, value in params.items()}))
    shelf.put("global/3", Parts(params))
    messages = tuple(Message(what="outcome", round=round, client=None, parts=f"global/{round + 1}") for round in (0, 2))
    return Transcript(messages=messages, shelf=shelf, model=truth.model, space=truth.space, loss="mse", clients=2)


def held(x: list[float], y: list[float]) -> Records:
    return Records(torch.tensor([[value, 0.0, 0.0] for value in x]), torch.tensor(y))


def test_loss_and_percentage_error_over_all_held_out_records() -> None:
    truth = federation().truth(seed=0)
    truth = replace(truth, holdout=(held([1.0], [2.0]), held([2.0, 4.0], [5.0, 10.0])))
    final = ended_with(truth, weight=torch.tensor([[2.0, 0.0, 0.0]]), bias=torch.zeros(1))
    found = utility_of(final, truth)  # predictions 2, 4, 8
    assert found == pytest.approx({"loss": (0 + 1 + 4) / 3, "mape": (0 + 0.2 + 0.2) / 3})


def test_percentages_are_of_targets_as_they_were_given() -> None:
    """Standardised targets are of either sign and near 0; a share of those would mean nothing."""
    truth = federation().truth(seed=0)
    space = replace(truth.space, target_mean=100.0, target_std=10.0)
    truth = replace(truth, space=space, holdout=(held([1.0, 2.0], [-5.0, 10.0]),))
    final = ended_with(truth, weight=torch.tensor([[2.0, 0.0, 0.0]]), bias=torch.zeros(1))
    found = utility_of(final, truth)  # predictions 2 and 4 are 120 and 140, truths 50 and 200
    assert found == pytest.approx({"loss": (49 + 36) / 2, "mape": (70 / 50 + 60 / 200) / 2})
    truth = replace(truth, space=replace(space, target_mean=-100.0), holdout=(held([1.0], [2.0]),))
    assert list(utility_of(final, truth)) == ["loss"]


def test_no_percentages_of_targets_that_may_be_zero() -> None:
    truth = federation().truth(seed=0)
    truth = replace(truth, holdout=(held([1.0, 2.0], [0.0, 4.0]),))
    final = ended_with(truth, weight=torch.tensor([[2.0, 0.0, 0.0]]), bias=torch.zeros(1))
    assert utility_of(final, truth) == pytest.approx({"loss": 2.0})


def test_accuracy_of_classes() -> None:
    truth = federation("classification").truth(seed=0)
    held_out = Records(torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0, 0, 1.0]]), torch.tensor([0, 1, 2, 0]))
    truth = replace(truth, holdout=(held_out,), model=nn.Linear(3, 3))
    found = utility_of(ended_with(truth, weight=torch.eye(3) * 50, bias=torch.zeros(3)), truth)
    assert found["accuracy"] == 0.75 and found["loss"] == pytest.approx(50 / 4, rel=1e-4) and len(found) == 2


def test_a_constant_guess_of_numbers_is_their_mean_and_of_classes_the_commonest() -> None:
    truth = federation().truth(seed=0)
    truth = replace(truth, holdout=(held([1.0], [2.0]), held([2.0, 4.0], [5.0, 8.0])))  # mean 5
    wanted = {"loss_guess": (9 + 0 + 9) / 3, "mape_guess": (3 / 2 + 0 + 3 / 8) / 3}
    assert guess_of(truth) == pytest.approx(wanted)
    classes = Records(torch.zeros(4, 3), torch.tensor([0, 2, 2, 2]))
    truth = replace(federation("classification").truth(seed=0), holdout=(classes,))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert guess_of(truth) == pytest.approx({"loss_guess": entropy, "accuracy_guess": 0.75})


def test_a_row_has_the_mean_of_its_guesses() -> None:
    scores = {("none", seed): {"accuracy": 0.5, "accuracy_guess": 0.2 + 0.1 * seed} for seed in (0, 1)}
    (row,) = utility_rows(["none"], [0, 1], scores)
    assert row["metric"] == "accuracy" and row["guess"] == pytest.approx(0.25)
    (older,) = utility_rows(["none"], [0, 1], {("none", 0): {"accuracy": 0.5}})
    assert "guess" not in older


def test_nothing_held_out_nothing_known() -> None:
    truth = replace(federation().truth(seed=0), holdout=(Records(torch.zeros(0, 3), torch.zeros(0)),))
    assert guess_of(truth) == {}
    assert utility_of(ended_with(truth, weight=torch.zeros(1, 3), bias=torch.zeros(1)), truth) == {}


def test_rows_over_seeds_leave_out_lost_runs() -> None:
    found = {
        ("none", 0): {"loss": 1.0, "accuracy": 0.5},
        ("none", 1): {"loss": 3.0, "accuracy": 0.7},
        ("dp", 0): {"loss": 5.0},
    }
    rows = utility_rows(["none", "dp", "lost"], [0, 1], found)
    reported = [(row["defence"], row["metric"], row["value"], row["n"]) for row in rows]
    assert reported == [("none", "loss", 2.0, 2), ("none", "accuracy", pytest.approx(0.6), 2), ("dp", "loss", 5.0, 1)]
    assert rows[0]["low"] < 2.0 < rows[0]["high"] and rows[2]["low"] is None


def test_a_loss_that_was_not_finite_is_a_row_without_a_value() -> None:
    rows = utility_rows(["none"], [0, 1], {("none", 0): {"loss": None}, ("none", 1): {"loss": None}})
    assert [(row["metric"], row["value"], row["low"], row["n"]) for row in rows] == [("loss", None, None, 0)]
    [row] = utility_rows(["none"], [0, 1], {("none", 0): {"loss": None}, ("none", 1): {"loss": 2.0}})
    assert (row["value"], row["n"]) == (2.0, 1)
