"""Intervals and p-values of audits: the unit is one client in one run, and runs are what was repeated.

Clients of one run share the global model, the public rows and the floors built from them, so their scores
move together. What is independent is called a block here: a run (one seed) where there are two or more, and
a client where there is only one run. An interval over one run speaks of the clients of that run alone.

- Under 10 blocks: t-interval with the cluster-robust standard error and (blocks - 1) degrees of freedom. For
  equally large runs of normal scores it is exact whatever the correlation inside a run. A bootstrap of so few
  blocks is not (three runs have ten distinct resamples, and its intervals are too narrow), and neither is a
  t-interval that treats all clients as independent: with 10 clients in each of 3 runs that correlate by 0.2
  it covers the truth in 76 % of the cases instead of 95 %. The price is width: two or three runs rarely decide
  anything, five do, so an audit spends its time better on more seeds than on more clients.
- From 10 blocks on: studentised bootstrap of whole blocks, which keeps its coverage where scores are skewed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedxray.errors import BadInput
from fedxray.seeds import derive_seed

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
BOOTSTRAP_FROM = 10
RESAMPLES = 9999
SEEN = 0.8  # the power at which the smallest detectable leak is stated
# A resample that happens to repeat one value has no spread; without a bound its t-value would be infinite.
LEAST_SPREAD = 1 / 3
# Differences that agree to this share of their size are equal, and their spread is rounding.
ROUNDING = 1e-12
EQUAL_SIGN = 0.5  # the chance that one more difference has the sign of the others where there is no leak


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over units with its 95 % interval and the one-sided p of "the mean is above zero"."""

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None
    error: float | None = field(default=None, compare=False)  # standard error of the mean
    freedom: int | None = field(default=None, compare=False)  # its degrees of freedom


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """Sums and sizes of the independent blocks, whatever the order of the units."""

    sums: Floats  # [blocks]
    sizes: Floats  # [blocks]


def interval(values: Sequence[float], seeds: Sequence[Hashable], *, resamples: int = RESAMPLES) -> Interval:
    """Return mean, 95 % interval and one-sided p of units that were measured in the runs named by seeds.

    `values` and `seeds` have one entry per unit (client-run); equal seeds form a block.
    """
    _check(values, seeds)
    units = np.sort(np.asarray(values, dtype=np.float64))
    mean, n = float(np.mean(units)), len(units)
    if n == 1:
        return Interval(mean=mean, low=None, high=None, n=1, p=None)
    if float(units[-1] - units[0]) <= ROUNDING * float(np.max(np.abs(units))):
        # Nothing varies, so no t-value exists; n equal signs are what a fair coin gives in one of 2^n cases.
        p = EQUAL_SIGN**n if mean > 0 else 1.0
        return Interval(mean=mean, low=mean, high=mean, n=n, p=p, error=0.0, freedom=n - 1)
    blocks = _blocks(values, seeds)
    error = float(_standard_errors(blocks.sums[None], blocks.sizes[None])[0])
    if error <= ROUNDING * float(np.max(np.abs(units))):
        # Coarse scores can give runs of equal means by chance: then only the clients show how scores vary.
        blocks = _blocks(values, [0] * n)
        error = float(_standard_errors(blocks.sums[None], blocks.sizes[None])[0])
    if len(blocks.sums) < BOOTSTRAP_FROM:
        return by_t(mean, error, n=n, freedom=len(blocks.sums) - 1)
    return _by_bootstrap(mean, error, blocks, n=n, resamples=resamples)


def paired(values: Sequence[float], others: Sequence[float], *, down: bool) -> list[float]:
    """Return differences unit by unit, signed so that larger means more leak (`down`: smaller values leak more)."""
    return [(other - value) if down else (value - other) for value, other in zip(values, others, strict=True)]


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return Holm's adjusted p-values, in the given order; a missing p stays missing and is not counted.

    The smallest of m p-values is multiplied by m, the next by m - 1, and so on; the running maximum keeps their order.
    Holm needs no independence between the rows, which share runs and floors.
    """
    known = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        adjusted[index] = largest
    return adjusted


def smallest_seen(difference: Interval, *, margin: float, level: float, comparisons: int) -> float | None:
    """Return the least difference that audits of this spread would call a leak with a power of 80 %; None if unknown.

    Its interval must lie above the margin, and its p-value must stay below `level` after the strictest of Holm's
    adjustments, a factor of `comparisons`.
    """
    from scipy.special import nctdtrinc, stdtrit

    error, freedom = difference.error, difference.freedom
    if error is None or freedom is None:
        return None
    if error == 0.0 and EQUAL_SIGN ** (freedom + 1) * max(comparisons, 1) > level:
        return None  # so few equal differences would not be called a leak, however large
    above, rare = (
        # A difference of d errors has a noncentral t-value: the d that passes the limit with the wanted power.
        float(nctdtrinc(freedom, 1 - SEEN, float(stdtrit(freedom, limit)))) * error
        for limit in (0.5 + CONFIDENCE / 2, 1 - level / max(comparisons, 1))
    )
    return max(margin + above, rare)


def _check(values: Sequence[float], seeds: Sequence[Hashable]) -> None:
    """Refuse values that are empty, not finite, or of another length than the seeds."""
    if len(values) == 0 or len(values) != len(seeds):
        expected = "at least one value, and one seed for each"
        remedy = "Give each unit's value together with the seed of its run."
        raise BadInput("values", expected=expected, got=f"{len(values)} values and {len(seeds)} seeds", remedy=remedy)
    if not all(math.isfinite(value) for value in values):
        remedy = "Leave out units without a score and state how many they are."
        raise BadInput("values", expected="finite numbers", got="NaN or infinity", remedy=remedy)


def _blocks(values: Sequence[float], seeds: Sequence[Hashable]) -> _Blocks:
    """Group units by run; with a single run every unit is a block of its own. Sorted, so that order does not matter."""
    if len(set(seeds)) == 1:
        alone = np.sort(np.asarray(values, dtype=np.float64))
        return _Blocks(sums=alone, sizes=np.ones_like(alone))
    runs: dict[Hashable, list[float]] = {}
    for value, seed in zip(values, seeds, strict=True):
        runs.setdefault(seed, []).append(float(value))
    pairs = sorted((math.fsum(run), float(len(run))) for run in runs.values())
    return _Blocks(sums=np.array([s for s, _ in pairs]), sizes=np.array([size for _, size in pairs]))


def _standard_errors(sums: Floats, sizes: Floats) -> Floats:
    """Return cluster-robust errors of the mean over units; sums and sizes [resamples, blocks] -> [resamples].

    A block's residual is its sum minus what the overall mean would give for its size; blocks / (blocks - 1) corrects
    for the mean having been estimated from the same blocks.
    """
    count, total = sums.shape[1], sizes.sum(axis=1)
    residuals = sums - sizes * (sums.sum(axis=1) / total)[:, None]
    scale = count / (count - 1)
    errors: Floats = np.sqrt(scale * (residuals**2).sum(axis=1)) / total
    return errors


def by_t(mean: float, error: float, *, n: int, freedom: int) -> Interval:
    """Return Student's interval and the one-sided p."""
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    p = float(stdtr(freedom, -mean / error))
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n, p=p, error=error, freedom=freedom)


def _by_bootstrap(mean: float, error: float, blocks: _Blocks, *, n: int, resamples: int) -> Interval:
    """Return the interval of a studentised bootstrap of blocks: the quantiles of t come from the resamples.

    The upper quantile of t gives the lower end of the interval and the lower one the upper end.
    """
    from scipy.special import stdtr

    ts = _resampled_t(mean, error, blocks, resamples)
    tail = (1 - CONFIDENCE) / 2
    below, above = (float(q) for q in np.quantile(ts, [tail, 1 - tail], method="weibull"))
    beyond = int(np.count_nonzero(ts >= mean / error))
    p = (1 + beyond) / (resamples + 1)
    if beyond == 0:
        # 9,999 resamples cannot resolve p below 1e-4, which matters after Holm; beyond, the t tail is used.
        p = min(p, float(stdtr(len(blocks.sums) - 1, -mean / error)))
    # The mean belongs to its interval, also where a heavily skewed sample puts both quantiles on one side.
    return Interval(
        mean=mean,
        low=min(mean, mean - above * error),
        high=max(mean, mean - below * error),
        n=n,
        p=p,
        error=error,
        freedom=len(blocks.sums) - 1,
    )


def _resampled_t(mean: float, error: float, blocks: _Blocks, resamples: int) -> Floats:
    """Return studentised means of resampled blocks [resamples]; the draw depends on the data alone.

    Resamples are drawn in parts of about a million entries, which bounds the memory.
    """
    count = len(blocks.sums)
    seed = derive_seed(0, "bootstrap", resamples, blocks.sums.tolist(), blocks.sizes.tolist())
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, 1_000_000 // count)
    parts = []
    for start in range(0, resamples, rows):
        picks = generator.integers(0, count, size=(min(rows, resamples - start), count))
        sums, sizes = blocks.sums[picks], blocks.sizes[picks]
        errors = np.maximum(_standard_errors(sums, sizes), error * LEAST_SPREAD)
        parts.append((sums.sum(axis=1) / sizes.sum(axis=1) - mean) / errors)
    return np.concatenate(parts)


# Permutations of a run's clients: whose messages are read in place of whose

MOST_PERMUTED = 4  # clients up to which all permutations are used
DRAWN = 3  # permutations of a run beyond, beside the identity


def drawn_permutations(run_seed: int, clients: Sequence[int]) -> list[dict[int, int]]:
    """Return by client whose messages are read instead: all permutations of up to four clients, else three drawn ones.

    The identity is left out. The draw depends on the run and its clients alone, so that all attacks share it.
    """
    known = sorted(clients)
    if len(known) <= MOST_PERMUTED:
        orders = list(itertools.permutations(known))[1:]  # the first is the identity
    else:
        generator = np.random.Generator(np.random.PCG64(derive_seed(0, "permutations", run_seed, known)))
        orders = [tuple(known[place] for place in generator.permutation(len(known))) for _ in range(DRAWN)]
    return [dict(zip(known, order, strict=True)) for order in orders]
