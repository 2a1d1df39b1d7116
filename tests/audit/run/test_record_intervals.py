"""Intervals over the records of one run, against scipy and against slow sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from fedxray.audit.run.evaluate import _interval
from fedxray.metrics.records import auc, placements
from fedxray.seeds import fork


def draws(count: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(count, generator=fork(seed, "within"), dtype=torch.float64) + shift


def test_paired_differences_are_a_t_test() -> None:
    mine, other = draws(30, 0, 0.5), draws(30, 1)
    found = _interval([(mine - other,)])
    wanted = stats.ttest_rel(mine.numpy(), other.numpy(), alternative="greater")
    two_sided = stats.ttest_rel(mine.numpy(), other.numpy()).confidence_interval(0.95)
    assert (found.mean, found.p) == pytest.approx((float((mine - other).mean()), wanted.pvalue))
    assert (found.low, found.high) == pytest.approx(tuple(two_sided))
    assert found.n == 30


def test_other_records_are_an_independent_sample() -> None:
    """Welch's standard error, with the degrees of freedom of the smaller sample: never narrower than Welch's."""
    mine, other = draws(40, 0, 1.0), draws(12, 1)
    found = _interval([(mine,), (-other,)])
    welch = stats.ttest_ind(mine.numpy(), other.numpy(), equal_var=False).confidence_interval(0.95)
    assert found.mean == pytest.approx(float(mine.mean() - other.mean()))
    assert found.low <= welch.low and found.high >= welch.high
    error = np.sqrt(mine.var().item() / 40 + other.var().item() / 12)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 11) * error)


def test_placements_have_the_auc_as_their_mean() -> None:
    score = torch.cat([draws(9, 0, 0.8), draws(7, 1)]).round(decimals=1)
    member = torch.arange(16) < 9
    inside, outside = placements(score, member)
    slow_in = [np.mean([(a > b) + 0.5 * (a == b) for b in score[9:].tolist()]) for a in score[:9].tolist()]
    slow_out = [np.mean([(a > b) + 0.5 * (a == b) for a in score[:9].tolist()]) for b in score[9:].tolist()]
    assert inside.tolist() == pytest.approx(slow_in)
    assert outside.tolist() == pytest.approx(slow_out)
    assert float(inside.mean()) == pytest.approx(auc(score, member))
    assert float(outside.mean()) == pytest.approx(auc(score, member))


def test_the_interval_of_an_auc_covers_it() -> None:
    """Members N(1, 1), others N(0, 1): the true auc lies in the interval about 19 times of 20."""
    truth = float(stats.norm.cdf(1 / np.sqrt(2)))
    member, hits = torch.arange(60) < 30, 0
    for seed in range(200):
        found = _interval([placements(torch.cat([draws(30, seed, 1.0), draws(30, 1000 + seed)]), member)])
        assert found.low is not None and found.high is not None
        hits += found.low <= truth <= found.high
    assert 183 <= hits <= 200


def test_nothing_that_varies_and_too_little_of_it() -> None:
    same = _interval([(torch.full((8,), 0.25, dtype=torch.float64),)])
    assert (same.mean, same.low, same.high, same.p) == (0.25, 0.25, 0.25, None)
    one = _interval([(torch.tensor([1.0, float("nan")], dtype=torch.float64),)])
    assert (one.mean, one.low, one.n) == (1.0, None, 1)
