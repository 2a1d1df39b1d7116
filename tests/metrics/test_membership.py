"""Membership scores against slow loops and scikit-learn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from fedxray.errors import BadInput
from fedxray.metrics.records import auc, membership_scores, tpr_at_fpr
from fedxray.seeds import fork


def slow_auc(score: list[float], member: list[bool]) -> float:
    pairs = [
        (a, b)
        for a, m in zip(score, member, strict=True)
        if m
        for b, k in zip(score, member, strict=True)
        if not k
    ]
    return sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


def strict_tpr(score: list[float], member: list[bool], fpr: float) -> float:
    best = 0.0
    for threshold in [*score, math.inf]:
        named = [(s >= threshold, m) for s, m in zip(score, member, strict=True)]
        false = sum(n for n, m in named if not m) / member.count(False)
        true = sum(n for n, m in named if m) / member.count(True)
        best = max(best, true if false <= fpr else 0.0)
    return best


def slow_tpr(score: list[float], member: list[bool], fpr: float) -> float:
    """The mean of the strict version over every order of the records, ties broken by that order."""
    found = []
    for order in itertools.permutations(range(len(score))):
        ranked = sorted(order, key=lambda place: score[place])  # stable: ties keep the drawn order
        distinct = [float(ranked.index(place)) for place in range(len(score))]
        found.append(strict_tpr(distinct, member, fpr))
    return sum(found) / len(found)


records = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda items: 0 < sum(member for _, member in items) < len(items)
)


@given(records, st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]))
def test_membership_equals_slow_versions_and_scikit_learn(items: list[tuple[int, bool]], fpr: float) -> None:
    score, member = [float(s) for s, _ in items], [m for _, m in items]
    s, m = torch.tensor(score), torch.tensor(member)
    assert auc(s, m) == pytest.approx(slow_auc(score, member)) == pytest.approx(roc_auc_score(member, score))
    assert auc(s, m) + auc(s, ~m) == pytest.approx(1.0)
    assert auc(torch.exp(s), m) == auc(s, m)  # only the order counts


few_records = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=2, max_size=5).filter(
    lambda items: 0 < sum(member for _, member in items) < len(items)
)


@given(few_records, st.sampled_from([0.0, 0.01, 0.34, 0.5, 1.0]))
def test_rate_of_members_is_the_mean_over_all_orders_of_ties(
    items: list[tuple[int, bool]], fpr: float
) -> None:
    score, member = [float(s) for s, _ in items], [m for _, m in items]
    found = tpr_at_fpr(torch.tensor(score), torch.tensor(member), fpr=fpr)
    assert found == pytest.approx(slow_tpr(score, member, fpr))


def test_blind_guessing_names_its_expected_share() -> None:
    member = torch.arange(82) < 60
    drawn = [tpr_at_fpr(torch.rand(82, generator=fork(seed)), member) for seed in range(2000)]
    assert tpr_at_fpr(torch.zeros(82), member) == pytest.approx(1 / 23)
    assert sum(drawn) / len(drawn) == pytest.approx(1 / 23, abs=0.004)


def test_membership_on_many_records_equals_scikit_learn() -> None:
    member = torch.arange(6000) < 3100
    score = torch.randn(6000, generator=fork(0)) + member.float()
    false, true, _ = roc_curve(member, score, drop_intermediate=False)
    assert tpr_at_fpr(score, member) == pytest.approx(true[false <= 0.01].max())
    assert auc(score, member) == pytest.approx(roc_auc_score(member, score))
    few = torch.arange(200) < 100
    score = torch.arange(200).float().flip(0) - 100.5 * few  # members and non-members in turn, a member first
    assert tpr_at_fpr(score, few, fpr=0.29) == strict_tpr(score.tolist(), few.tolist(), 0.29) == 0.29


def test_membership_at_the_edges() -> None:
    member = torch.tensor([True, True, False, False])
    perfect = torch.tensor([2.0, 3.0, 0.0, 1.0])
    assert membership_scores(perfect, member).means == {"auc": 1.0, "tpr_at_1pct_fpr": 1.0}
    assert membership_scores(-perfect, member).means == {"auc": 0.0, "tpr_at_1pct_fpr": 0.0}
    assert membership_scores(torch.ones(4), member).means == {
        "auc": 0.5,
        "tpr_at_1pct_fpr": pytest.approx(1 / 3),
    }
    assert membership_scores(torch.full((4,), math.nan), member).means == {"auc": 0.0, "tpr_at_1pct_fpr": 0.0}
    assert auc(torch.tensor([math.nan, 3.0, 0.0, 1.0]), member) == 0.5
    assert auc(torch.tensor([2.0, 3.0, math.nan, 1.0]), member) == 0.5
    assert auc(torch.tensor([math.inf, 3.0, -math.inf, 1.0]), member) == 1.0
    assert membership_scores(perfect, member | True).means == {}
    assert membership_scores(perfect[:0], member[:0]).means == {}
    for measure in (auc, tpr_at_fpr):
        with pytest.raises(BadInput, match="held out"):
            measure(perfect, member & False)
        with pytest.raises(BadInput, match="true or false"):
            measure(perfect, member.float())
