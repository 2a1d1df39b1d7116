"""Label counts against a count of wrong labels."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedxray.errors import BadInput
from fedxray.metrics.records import label_accuracy, label_error, label_scores

counts = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(st.data())
def test_label_error_counts_wrong_labels(data: st.DataObject) -> None:
    truth = data.draw(counts)
    labels = [label for label, count in enumerate(truth) for _ in range(count)]
    guessed = [data.draw(st.integers(0, len(truth) - 1)) for _ in labels]
    guess = [guessed.count(label) for label in range(len(truth))]
    right = sum(
        min(a, b) for a, b in zip(guess, truth, strict=True)
    )  # best pairing of two multisets of one size
    assert label_error(torch.tensor(guess), torch.tensor(truth)) == len(labels) - right
    if labels:
        wanted = right / len(labels)
        assert label_accuracy(torch.tensor(guess), torch.tensor(truth)) == pytest.approx(wanted)


def test_labels_at_the_edges() -> None:
    truth = torch.tensor([3, 0, 1])
    assert label_scores(truth, truth).means == {"label_error": 0.0, "label_accuracy": 1.0}
    assert label_scores(torch.tensor([0.5, 0.0, 1.0]), truth).means["label_error"] == 1.25
    assert label_scores(torch.tensor([math.nan, 0, 1]), truth).means == {
        "label_error": 4.0,
        "label_accuracy": 0.0,
    }
    assert label_scores(0 * truth, 0 * truth).means == {"label_error": 0.0}
    assert label_accuracy(torch.tensor([30, 0, 1]), truth) < 0
    with pytest.raises(BadInput, match="per class"):
        label_error(torch.tensor([1, 2]), truth)
