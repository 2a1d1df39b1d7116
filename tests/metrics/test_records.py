"""Scores of attributes, label counts, membership and rows against slow loops and scikit-learn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.metrics import balanced_accuracy_score, roc_auc_score, roc_curve
from torch import Tensor

from fedxray.data.dataset import Column
from fedxray.errors import BadInput
from fedxray.metrics.records import (
    auc,
    category_scores,
    continuous_scores,
    label_accuracy,
    label_error,
    label_scores,
    membership_scores,
    recovered_values,
    row_scores,
    tpr_at_fpr,
)
from fedxray.seeds import fork

# Attributes


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


# Label counts

counts = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(st.data())
def test_label_error_counts_wrong_labels(data: st.DataObject) -> None:
    truth = data.draw(counts)
    labels = [label for label, count in enumerate(truth) for _ in range(count)]
    guessed = [data.draw(st.integers(0, len(truth) - 1)) for _ in labels]
    guess = [guessed.count(label) for label in range(len(truth))]
    right = sum(min(a, b) for a, b in zip(guess, truth, strict=True))  # best pairing of two multisets of one size
    assert label_error(torch.tensor(guess), torch.tensor(truth)) == len(labels) - right
    if labels:
        wanted = right / len(labels)
        assert label_accuracy(torch.tensor(guess), torch.tensor(truth)) == pytest.approx(wanted)


def test_labels_at_the_edges() -> None:
    truth = torch.tensor([3, 0, 1])
    assert label_scores(truth, truth).means == {"label_error": 0.0, "label_accuracy": 1.0}
    assert label_scores(torch.tensor([0.5, 0.0, 1.0]), truth).means["label_error"] == 1.25
    assert label_scores(torch.tensor([math.nan, 0, 1]), truth).means == {"label_error": 4.0, "label_accuracy": 0.0}
    assert label_scores(0 * truth, 0 * truth).means == {"label_error": 0.0}
    assert label_accuracy(torch.tensor([30, 0, 1]), truth) < 0
    with pytest.raises(BadInput, match="per class"):
        label_error(torch.tensor([1, 2]), truth)


# Membership


def slow_auc(score: list[float], member: list[bool]) -> float:
    pairs = [
        (a, b) for a, m in zip(score, member, strict=True) if m for b, k in zip(score, member, strict=True) if not k
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
def test_rate_of_members_is_the_mean_over_all_orders_of_ties(items: list[tuple[int, bool]], fpr: float) -> None:
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


@pytest.mark.parametrize(
    ("others", "names"),
    [
        (999, {"auc"}),
        (1_000, {"auc", "tpr_at_1pct_fpr"}),
        (9_999, {"auc", "tpr_at_1pct_fpr"}),
        (10_000, {"auc", "tpr_at_1pct_fpr", "tpr_at_0p1pct_fpr"}),
    ],
)
def test_a_low_false_positive_rate_needs_enough_non_members(others: int, names: set[str]) -> None:
    """At least ten false positives are allowed; before, a rate of 1 % was given for four non-members."""
    member = torch.arange(others + 5) < 5
    assert set(membership_scores(torch.arange(others + 5).flip(0).float(), member).means) == names


def test_membership_at_the_edges() -> None:
    member = torch.tensor([True, True, False, False])
    perfect = torch.tensor([2.0, 3.0, 0.0, 1.0])
    assert membership_scores(perfect, member).means == {"auc": 1.0}
    assert membership_scores(-perfect, member).means == {"auc": 0.0}
    assert membership_scores(torch.ones(4), member).means == {"auc": 0.5}
    assert membership_scores(torch.full((4,), math.nan), member).means == {"auc": 0.0}
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


# Rows

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
    assert recovered_values(guess, truth, COLUMNS)[:, 0].tolist() == [
        [True, True],
        [False, True],
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(("guesses", "truths"), [(4, 4), (2, 4), (5, 3)])
def test_the_matching_recovers_most_values(guesses: int, truths: int) -> None:
    for seed in range(10):
        guess, truth = random_rows(guesses, seed), random_rows(truths, seed + 100)
        recovered = recovered_values(guess, truth, COLUMNS).sum(-1)
        few = min(guesses, truths)
        ways = [
            sum(int(recovered[g, t]) for g, t in zip(chosen, places, strict=True))
            for chosen in itertools.permutations(range(guesses), few)
            for places in itertools.combinations(range(truths), few)
        ]
        found = row_scores(guess, truth, COLUMNS)
        assert found.records["values_recovered"].shape == (truths,)
        assert found.means["values_recovered"] == pytest.approx(max(ways) / (2 * truths))


def test_the_same_rows_in_another_order_are_all_recovered() -> None:
    truth = random_rows(7, 3)
    assert row_scores(truth.flip(0), truth, COLUMNS).means == {"values_recovered": 1.0}
    assert row_scores(truth.flip(0), truth, COLUMNS).matched.tolist() == list(range(len(truth)))[::-1]


def test_a_guess_that_is_not_finite_recovers_nothing() -> None:
    truth = random_rows(3, 3)
    assert row_scores(truth * float("nan"), truth, COLUMNS).means == {"values_recovered": 0.0}


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(BadInput, match="rows of 3 numbers"):
        row_scores(torch.zeros(2, 4), torch.zeros(2, 3), COLUMNS)
