"""Imputation from public records: the fair choice between two models, for both kinds of accuracy."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score
from torch import Tensor

from fedxray.attacks import floors
from fedxray.attacks.floors import impute_category, impute_value
from fedxray.seeds import fork


def rare(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """One record in ten is of category 1, a little to the right of the others."""
    draw = fork(seed, "rare")
    wanted = (torch.rand(count, generator=draw) < 0.1).long()
    return torch.randn(count, 2, generator=draw) + wanted[:, None] * 1.2, wanted


def test_one_category_needs_no_model() -> None:
    found = impute_category(torch.randn(7, 2), torch.full((7,), 3), torch.randn(4, 2))
    assert found.tolist() == [3] * 4 and found.dtype == torch.int64


def test_the_balanced_guess_is_better_where_every_category_counts_the_same() -> None:
    learn, wanted = rare(200, seed=1)
    asked, truth = rare(300, seed=2)
    plain, balanced = (impute_category(learn, wanted, asked, balanced=choice) for choice in (False, True))
    assert (plain == truth).double().mean() > (balanced == truth).double().mean()
    scores = [balanced_accuracy_score(truth, guess) for guess in (plain, balanced)]
    assert scores[1] > scores[0] + 0.1


def test_values_of_a_straight_line_are_told() -> None:
    draw = fork(3, "line")
    learn, asked = torch.randn(60, 2, generator=draw), torch.randn(10, 2, generator=draw)
    found = impute_value(learn, (2 * learn[:, :1] - learn[:, 1:] + 5), asked)
    assert found.shape == (10, 1) and found.dtype == learn.dtype
    assert torch.allclose(found, 2 * asked[:, :1] - asked[:, 1:] + 5, atol=0.1)


def test_the_better_model_is_chosen() -> None:
    """Which side of a ring a record lies on is nothing for a linear model."""
    draw = fork(4, "ring")
    learn, asked = torch.randn(300, 2, generator=draw), torch.randn(200, 2, generator=draw)
    found = impute_category(learn, (learn.norm(dim=1) > 1.2).long(), asked)
    assert ((found == (asked.norm(dim=1) > 1.2)).double().mean()) > 0.85


def test_the_same_question_has_the_same_answer_and_is_fitted_once() -> None:
    learn, wanted = rare(60, seed=5)
    asked, _ = rare(20, seed=6)
    floors._fitted.clear()
    first = impute_category(learn, wanted, asked)
    assert len(floors._fitted) == 1
    kept = next(iter(floors._fitted.values()))
    assert torch.equal(impute_category(learn, wanted, asked), first)
    assert next(iter(floors._fitted.values())) is kept
    floors._fitted.clear()
    assert torch.equal(impute_category(learn, wanted, asked), first)
    impute_category(learn, wanted, asked, balanced=True)
    assert len(floors._fitted) == 2


def test_only_a_few_fits_are_kept() -> None:
    floors._fitted.clear()
    for seed in range(floors.MOST_FITTED + 2):
        draw = fork(seed, "few")
        impute_value(torch.randn(4, 1, generator=draw), torch.randn(4, 1, generator=draw), torch.zeros(1, 1))
    assert len(floors._fitted) == floors.MOST_FITTED


@pytest.mark.parametrize("records", [2, 3, 9])
def test_a_handful_of_public_records_is_enough_to_guess(records: int) -> None:
    draw = fork(records, "handful")
    learn = torch.randn(records, 2, generator=draw)
    found = impute_category(learn, torch.arange(records) % 2, torch.randn(5, 2, generator=draw))
    assert set(found.tolist()) <= {0, 1}
    assert impute_value(learn, learn[:, :1], torch.zeros(5, 2)).shape == (5, 1)
