"""Guessed values and rebuilt rows beside the records: in the client's own order, few, and marked as private."""

from __future__ import annotations

import pytest
import torch

from fedxray.adversary.disclose import attribute_rows
from fedxray.attacks.evidence import of_attributes, of_membership, of_rows
from fedxray.audit.run.evaluate import MOST_RECORDS, NO_GUESS, examples_of, spoken
from fedxray.audit.search import thinned
from fedxray.data.dataset import Column, Dataset
from fedxray.federation.truth import Truth
from tests.adversary.clinics import federation

RANGE = Column(name="age", kind="continuous", positions=(0,), low=-1.0, high=3.0)
CHOICE = Column(name="smoker", kind="categorical", positions=(1,), categories=("no", "yes"), codes=((0.0,), (1.0,)))


@pytest.fixture
def truth() -> Truth:
    return federation().truth(seed=0)


def dataset(truth: Truth, private: bool = True) -> Dataset:
    return Dataset(name="own", x=truth.train[0].x, y=truth.train[0].y, space=truth.space, private=private)


def test_values_are_named_and_numbers_are_shares_of_their_range() -> None:
    row = torch.tensor([1.0, 0.7])
    assert (spoken(RANGE, row), spoken(CHOICE, row)) == ("50 % of the range", "yes")
    assert spoken(RANGE, torch.tensor([float("nan"), 0.0])) == NO_GUESS


def test_guessed_attributes_stand_at_the_records_own_places(truth: Truth) -> None:
    column = truth.space.column(truth.space.sensitive or "")
    asked = attribute_rows(truth, 0).x[:, list(column.positions)]
    found = examples_of(of_attributes(asked), truth, 0, dataset(truth))
    assert found is not None and found["private"] is True
    own = truth.train[0].x
    assert [one["record"] for one in found["records"]] == list(range(min(len(own), MOST_RECORDS)))
    for one in found["records"]:
        ((name, original, guess, right),) = one["values"]
        assert name == column.name and original == guess == spoken(column, own[one["record"]]) and right
    wrong = examples_of(of_attributes(torch.full_like(asked, float("nan"))), truth, 0, dataset(truth))
    assert wrong is not None and all(one["values"][0][2:] == [NO_GUESS, False] for one in wrong["records"])
    assert examples_of(of_attributes(asked[:1]), truth, 0, dataset(truth)) is None


def test_rebuilt_rows_stand_beside_the_record_that_they_fit(truth: Truth) -> None:
    own = truth.train[0].x
    found = examples_of(of_rows(own.flip(0)), truth, 0, dataset(truth, private=False))
    assert found is not None and found["private"] is False
    for one in found["records"]:
        assert all(right and original == guess for _, original, guess, right in one["values"])
    alone = examples_of(of_rows(own[:1]), truth, 0, dataset(truth))
    assert alone is not None
    assert [all(right for *_, right in one["values"]) for one in alone["records"]].count(True) >= 1
    assert any(guess == NO_GUESS for one in alone["records"] for _, _, guess, _ in one["values"])


def test_an_attack_on_membership_guesses_no_record(truth: Truth) -> None:
    assert examples_of(of_membership(torch.zeros(2)), truth, 0, dataset(truth)) is None


def test_a_long_curve_keeps_its_ends() -> None:
    found = thinned([float(value) for value in range(1001)], most=5)
    assert found == {"steps": [0, 250, 500, 750, 1000], "losses": [0.0, 250.0, 500.0, 750.0, 1000.0]}
    assert thinned([3.0, float("inf")]) == {"steps": [0, 1], "losses": [3.0, None]}
    assert thinned([2.5]) == {"steps": [0], "losses": [2.5]}
