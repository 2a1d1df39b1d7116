"""Epsilon measured by canaries: what one run shows of (epsilon, delta)-differential privacy, and at most can show.

Two ways, each with a 95 % lower bound and a ceiling, the bound of a perfect result:
- `one_shot` (Andrew et al. 2023): canaries are random directions, and each is compared with what is seen of the
  training. In d dimensions the cosine of a direction that was not put in has the standard deviation 1 / sqrt(d), so the
  mean cosine of those that were gives the signal-to-noise ratio mu of a Gaussian mechanism, and mu its epsilon. The
  deviation is never fitted to the canaries: at a small delta its error would outweigh that of the mean.
- `coin_bound` (Steinke, Nasr, Jagielski 2023): canaries are put in or left out by independent fair coins and guessed;
  too many correct guesses contradict an epsilon. It assumes nothing of the mechanism. `gaussian_coin_bound` (the
  recursion of Mahloujifar, Melis, Chaudhuri 2024) reads the same guesses more sharply, for Gaussian mechanisms.
The number of guesses must not depend on their outcome: the best of several, uncorrected, is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedxray.errors import BadInput, check_whole

LEVEL = 0.05  # of a lower bound: it lies above the truth in at most this share of repeats
FAR = 40.0  # standard deviations beyond which a normal tail is below any delta
MOST_MU = 1e6
LEAST_GUESSES = 100  # with fewer canaries all are guessed, with many the surest quarter


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured epsilon: its 95 % lower bound, the bound of a perfect result, and an estimate where there is one."""

    low: float
    ceiling: float
    estimate: float | None = None


# The Gaussian mechanism


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of the Gaussian mechanism whose sensitivity is `mu` standard deviations of its noise; exact.

    T such mechanisms in a row, without sampling, are one of mu sqrt(T) (Dong, Roth, Su 2022).
    """
    _check_delta(delta)
    if math.isnan(mu):
        raise BadInput("mu", expected="a number", got=mu, remedy="Give sensitivity / standard deviation of the noise.")
    from scipy.optimize import brentq
    from scipy.special import erfcx, ndtr

    if mu <= 0:
        return 0.0
    if mu > MOST_MU:
        return math.inf
    # With x = mu / 2 - epsilon / mu no term overflows: Phi(x) - exp(epsilon) Phi(x - mu) = delta.
    highest = min(mu / 2, FAR)

    def excess(x: float) -> float:
        return float(ndtr(x) - math.exp(-x * x / 2) * erfcx((mu - x) / math.sqrt(2)) / 2) - delta

    if excess(highest) <= 0:
        return 0.0
    return max(0.0, mu * (mu / 2 - float(brentq(excess, -FAR, highest, xtol=1e-12))))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the sensitivity, in standard deviations of the noise, at which the Gaussian mechanism has this epsilon."""
    if not 0 < epsilon < math.inf:
        raise BadInput("epsilon", expected="a number above 0", got=epsilon, remedy="Try 10.")
    from scipy.optimize import brentq

    return float(brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, 0.0, FAR + 2 * math.sqrt(epsilon)))


def laplace_epsilon(count: int, single: float, delta: float) -> float:
    """Return an epsilon at this delta of `count` Laplace mechanisms in a row, each of epsilon `single` (Mironov 2017).

    Their sum holds at delta 0 and is returned where Rényi differential privacy gives no less.
    """
    _check_delta(delta)
    orders = 1 + np.geomspace(1e-3, 1e4, 2000)
    first = np.log(orders / (2 * orders - 1)) + (orders - 1) * single
    second = np.log((orders - 1) / (2 * orders - 1)) - orders * single
    renyi = np.logaddexp(first, second) / (orders - 1)
    return float(min(count * single, (count * renyi + math.log(1 / delta) / (orders - 1)).min()))


# Canaries that are random directions


def one_shot(
    cosines: Sequence[float], dimension: int, delta: float, *, most: float = 1.0, level: float = LEVEL
) -> Measured:
    """Return the epsilon of a Gaussian mechanism in which canaries have these cosines with what is seen.

    `cosines` are those of the canaries that were put in. `most` is the largest mean that they could have: below 1 where
    several are compared with the same vector, which cannot be parallel to all of them.
    """
    _check_delta(delta)
    check_whole("dimension", dimension, least=1, usual=10_000)
    odd = [value for value in cosines if not -1.001 <= value <= 1.001]
    if not cosines or odd:
        got = odd[0] if odd else "none"
        raise BadInput("cosines", expected="numbers from -1 to 1", got=got, remedy="Give one cosine per canary.")
    from scipy.special import ndtri

    count = len(cosines)
    mu = math.sqrt(dimension) * math.fsum(cosines) / count
    error = -float(ndtri(level)) / math.sqrt(count)  # the deviation of a scaled cosine is 1
    return Measured(
        estimate=gaussian_epsilon(mu, delta),
        low=gaussian_epsilon(mu - error, delta),
        ceiling=gaussian_epsilon(math.sqrt(dimension) * most - error, delta),
    )


# Canaries that are in or out by coin


def guesses_for(canaries: int) -> int:
    """Return how many canaries are guessed: all of few, of many the surest quarter."""
    return max(min(canaries, LEAST_GUESSES), canaries // 4)


def correct_guesses(scores: Sequence[float], inside: Sequence[bool], guesses: int) -> int:
    """Return how many guesses are correct if the highest scores are guessed to be in and the lowest to be out.

    Half of the guesses, rounded up, are of the highest. Equal scores stay in the order given, so that the order must
    not depend on the coins.
    """
    order = np.argsort(np.asarray(scores, dtype=float), kind="stable")
    coins = np.asarray(inside, dtype=bool)[order]
    lowest = guesses // 2
    return int((~coins[:lowest]).sum() + coins[len(coins) - (guesses - lowest) :].sum())


def coin_bound(correct: int, guesses: int, canaries: int, delta: float, *, level: float = LEVEL) -> Measured:
    """Return the lower bound of epsilon by `correct` of `guesses` guesses about `canaries` fair coins."""
    _check_counts(correct, guesses, canaries)

    def bound(count: int) -> float:
        return _largest(lambda epsilon: coin_p_value(count, guesses, canaries, epsilon, delta) <= level)

    return Measured(low=bound(correct), ceiling=bound(guesses))


def coin_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest chance of at least that many correct guesses under (epsilon, delta)-DP (their Theorem 5.2)."""
    from scipy.stats import binom

    tails = binom.sf(np.arange(-1, correct), guesses, 1 / (1 + math.exp(-epsilon)))  # P[Bin >= 0, 1, ..., correct]
    if not correct or not delta:
        return float(tails[-1])
    gaps = (tails[-2::-1] - tails[-1]) / np.arange(1, correct + 1)
    return min(1.0, float(tails[-1] + 2 * canaries * delta * gaps.max()))


def gaussian_coin_bound(correct: int, guesses: int, canaries: int, delta: float, *, level: float = LEVEL) -> Measured:
    """Return the same bound for Gaussian mechanisms alone: it excludes those of too small a mu."""
    _check_counts(correct, guesses, canaries)

    def bound(count: int) -> float:
        mu = _largest(lambda mu: _contradicts_gaussian(mu, count, guesses, canaries, level))
        return gaussian_epsilon(mu, delta)

    return Measured(low=bound(correct), ceiling=bound(guesses))


def _contradicts_gaussian(mu: float, correct: int, guesses: int, canaries: int, level: float) -> bool:
    """Return whether at least that many correct guesses have a chance below `level` if the mechanism is mu-Gaussian."""
    from scipy.special import ndtr, ndtri

    share = level * guesses / canaries
    right, wrong = share * correct / guesses, share * (guesses - correct) / guesses
    for count in range(correct - 1, -1, -1):
        least = max(wrong, float(ndtr(ndtri(right) - mu)))
        right, wrong = right + count / (guesses - count) * (least - wrong), least
        if right + wrong > guesses / canaries:
            return True
    return False


def _largest(contradicted: Callable[[float], bool], most: float = 50.0) -> float:
    """Return the largest number up to which a rising hypothesis is contradicted, rounded down to 1e-4."""
    if not contradicted(0.0):
        return 0.0
    low, high = 0.0, most
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if contradicted(middle) else (low, middle)
    return low


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise BadInput("delta", expected="a number above 0 and below 1", got=delta, remedy="Try 1e-5.")


def _check_counts(correct: int, guesses: int, canaries: int) -> None:
    if not 0 <= correct <= guesses <= canaries or guesses < 1:
        expected = "correct guesses up to the guesses, and those up to the canaries"
        got = f"{correct}, {guesses}, {canaries}"
        raise BadInput("guesses", expected=expected, got=got, remedy="Give counts of the same canaries.")
