"""Rows against the truth: tolerance, codes, the best matching, missing and broken guesses."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from fedxray.data.dataset import Column
from fedxray.errors import BadInput
from fedxray.metrics.records import row_scores, values_told

AGE = Column(name="age", kind="continuous", positions=(0,), low=0.0, high=10.0)  # tolerance 1
REGION = Column(
    name="region",
    kind="categorical",
    positions=(1, 2),
    categories=("a", "b", "c"),
    codes=((-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)),
)
COLUMNS = (AGE, REGION)


def random_rows(count: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    codes = torch.tensor(REGION.codes)[torch.randint(3, (count,), generator=draw)]
    return torch.cat([torch.randint(11, (count, 1), generator=draw).float(), codes], 1)


def test_values_by_hand() -> None:
    truth = torch.tensor([[5.0, 1.0, -1.0]])
    guess = torch.tensor([[6.0, 0.4, -0.2], [6.1, 0.4, -0.2], [5.0, -0.9, 0.3], [float("nan"), 1.0, -1.0]])
    assert values_told(guess, truth, COLUMNS)[:, 0].tolist() == [
        [True, True],
        [False, True],
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(("guesses", "truths"), [(4, 4), (2, 4), (5, 3)])
def test_the_matching_tells_most_values(guesses: int, truths: int) -> None:
    for seed in range(10):
        guess, truth = random_rows(guesses, seed), random_rows(truths, seed + 100)
        told = values_told(guess, truth, COLUMNS).sum(-1)
        few = min(guesses, truths)
        ways = [
            sum(int(told[g, t]) for g, t in zip(chosen, places, strict=True))
            for chosen in itertools.permutations(range(guesses), few)
            for places in itertools.combinations(range(truths), few)
        ]
        found = row_scores(guess, truth, COLUMNS)
        assert found.records["values_recovered"].shape == (truths,)
        assert found.means["values_recovered"] == pytest.approx(max(ways) / (2 * truths))


def test_the_same_rows_in_another_order_are_all_told() -> None:
    truth = random_rows(7, 3)
    assert row_scores(truth.flip(0), truth, COLUMNS).means == {"values_recovered": 1.0}


def test_a_guess_that_is_not_finite_tells_nothing() -> None:
    truth = random_rows(3, 3)
    assert row_scores(truth * float("nan"), truth, COLUMNS).means == {"values_recovered": 0.0}


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(BadInput, match="rows of 3 numbers"):
        row_scores(torch.zeros(2, 4), torch.zeros(2, 3), COLUMNS)
