"""Attribute scores against slow loops and scikit-learn."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from fedxray.errors import BadInput
from fedxray.metrics.records import category_scores, continuous_scores


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_category_scores_equal_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    guess, truth = (torch.tensor(values) for values in zip(*pairs, strict=True))
    scores = category_scores(guess, truth)
    assert scores.means["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    slow = []
    for category in {b for _, b in pairs}:
        own = [a == category for a, b in pairs if b == category]
        slow.append(sum(own) / len(own))
    assert scores.means["balanced_accuracy"] == pytest.approx(sum(slow) / len(slow))
    true = {b for _, b in pairs}
    if len(true) > 1 and {a for a, _ in pairs} <= true:  # scikit-learn warns of anything else
        assert scores.means["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, guess))
    assert scores.records["accuracy"].tolist() == [float(a == b) for a, b in pairs]


def test_categories_at_the_edges() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert category_scores(none, none).means == {}
    one = torch.tensor([2])
    assert category_scores(one, one).means == {"accuracy": 1.0, "balanced_accuracy": 1.0}
    assert category_scores(torch.tensor([math.nan]), one).means == {"accuracy": 0.0, "balanced_accuracy": 0.0}
    majority = category_scores(torch.zeros(10), torch.tensor([0.0] * 9 + [1.0])).means
    assert majority == pytest.approx({"accuracy": 0.9, "balanced_accuracy": 0.5})
    with pytest.raises(BadInput, match="per record"):
        category_scores(one, none)


def test_within_tolerance() -> None:
    truth = torch.tensor([1.0, 2.0, 3.0, 4.0])
    guess = torch.tensor([1.25, 2.5, math.nan, math.inf])
    scores = continuous_scores(guess, truth, tolerance=0.25)
    assert scores.records["within_tolerance"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert scores.means == {"within_tolerance": 0.25}
    assert continuous_scores(truth, truth, tolerance=0.0).means == {"within_tolerance": 1.0}
    assert continuous_scores(truth[:0], truth[:0], tolerance=1.0).means == {}
    for tolerance in (-1.0, math.nan):
        with pytest.raises(BadInput, match="tolerance"):
            continuous_scores(guess, truth, tolerance=tolerance)
