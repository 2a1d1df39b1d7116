from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray.attacks.labels.last_layer import evidence_of, rounded_counts

RAW = st.lists(st.floats(-40, 80), min_size=2, max_size=12)


def slow_rounding(raw: Tensor, examples: int) -> list[int]:
    """The authors' rounding, one count at a time."""
    whole = [max(int(torch.floor(value)), 0) for value in raw]
    left = [float(value) - count for value, count in zip(raw, whole, strict=True)]
    order = sorted(range(len(whole)), key=lambda place: -left[place])
    while sum(whole) < examples:
        for place in order[: examples - sum(whole)]:
            whole[place] += 1
    above = [place for place in reversed(order) if whole[place] > 0]
    for place in above[: max(0, sum(whole) - examples)]:
        whole[place] -= 1
    while sum(whole) > examples:
        whole[whole.index(max(whole))] -= 1
    return whole


def test_rounding_by_hand() -> None:
    # Floors are 1, 0, 2: one is missing and goes to the remainder of 0.7.
    assert rounded_counts(torch.tensor([1.2, 0.7, 2.1]), 4).tolist() == [1, 1, 2]
    # Floors are 3, 0, 2, one too many: class 2 has the smallest remainder among those above 0.
    assert rounded_counts(torch.tensor([3.4, -1.5, 2.1]), 4).tolist() == [3, 0, 1]
    # Two taken off the remainders of 6, 3, and then the largest is cut.
    assert rounded_counts(torch.tensor([6.1, 3.2, -5.0]), 4).tolist() == [2, 2, 0]


@given(raw=RAW, examples=st.integers(0, 60))
@settings(max_examples=100)
def test_counts_are_whole_not_negative_and_sum_up(raw: list[float], examples: int) -> None:
    found = rounded_counts(torch.tensor(raw, dtype=torch.float64), examples)
    assert found.dtype == torch.int64 and int(found.min()) >= 0 and int(found.sum()) == examples


@given(raw=st.lists(st.floats(-4, 9), min_size=2, max_size=8), examples=st.integers(1, 40))
@settings(max_examples=100)
def test_rounding_is_that_of_the_authors(raw: list[float], examples: int) -> None:
    values = torch.tensor(raw, dtype=torch.float64).clamp(-examples, 2 * examples)
    remainders = (values - values.floor()).tolist()
    if len(set(remainders)) < len(remainders):
        return  # the order of two equal remainders is arbitrary
    found, slow = rounded_counts(values, examples), slow_rounding(values, examples)
    assert sorted(found.tolist()) == sorted(slow)
    if int(values.floor().clamp(min=0).sum()) - examples <= int((values >= 1).sum()):
        assert found.tolist() == slow


def test_whole_counts_stay() -> None:
    assert rounded_counts(torch.tensor([3.0, 0.0, 7.0]), 10).tolist() == [3, 0, 7]


@pytest.mark.parametrize("size", [1e12, float("inf")])
def test_counts_that_explode_still_sum_up(size: float) -> None:
    found = rounded_counts(torch.tensor([size, -size, size, 0.3]), 9)
    assert sorted(found.tolist()) == [0, 0, 4, 5]


def test_without_numbers_the_guess_is_even_and_undetermined() -> None:
    evidence = evidence_of(torch.tensor([1.0, float("nan"), 2.0]), 7, {"round": 3})
    assert evidence.status == "undetermined" and "not finite" in evidence.reason
    assert evidence.tensors["counts"].tolist() == [3, 2, 2] and evidence.facts == {"round": 3}
    doubtful = evidence_of(torch.tensor([1.0, 2.0]), 3, {}, "no light")
    assert (doubtful.status, doubtful.reason) == ("undetermined", "no light")
    assert evidence_of(torch.tensor([1.0, 2.0]), 3, {}).status == "ok"
