"""Measured epsilon: against slow sums and integrals, Opacus, and simulated mechanisms whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from fedxray.errors import BadInput
from fedxray.metrics.epsilon import (
    coin_bound,
    coin_p_value,
    correct_guesses,
    gaussian_coin_bound,
    gaussian_epsilon,
    guesses_for,
    one_shot,
)

DELTA = 1e-5

# The Gaussian mechanism


def integrated_delta(mu: float, epsilon: float) -> float:
    """Integral of the positive part of p - exp(epsilon) q, with p = N(mu, 1) and q = N(0, 1)."""
    start = epsilon / mu + mu / 2  # where log p / q = epsilon

    def gap(x: float) -> float:
        return float(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x))

    return float(quad(gap, start, start + 40, limit=200, points=[start + 1, start + 5])[0])


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_epsilon_of_the_gaussian_mechanism_gives_back_its_delta(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon > 0:
        assert integrated_delta(mu, epsilon) == pytest.approx(delta, rel=1e-4)
    else:
        assert 2 * norm.cdf(mu / 2) - 1 <= delta  # total variation


@pytest.mark.parametrize(("noise", "steps"), [(0.5, 1), (1.0, 1), (3.0, 1), (5.0, 20)])
def test_epsilon_of_the_gaussian_mechanism_is_that_of_opacus(noise: float, steps: int) -> None:
    pytest.importorskip("opacus")
    from fedxray.defences.dp_sgd import best_epsilon

    opacus, _ = best_epsilon(noise, 1.0, steps, DELTA)
    assert gaussian_epsilon(math.sqrt(steps) / noise, DELTA) == pytest.approx(opacus, abs=0.02, rel=0.01)


def test_epsilon_of_the_gaussian_mechanism_at_the_ends() -> None:
    assert gaussian_epsilon(0.0, DELTA) == gaussian_epsilon(-3.0, DELTA) == gaussian_epsilon(1e-9, DELTA) == 0
    assert gaussian_epsilon(1 / 4.8448e-5, DELTA) == pytest.approx(2.13e8, rel=2e-3)
    assert gaussian_epsilon(1e7, DELTA) == math.inf
    with pytest.raises(BadInput, match="delta"):
        gaussian_epsilon(1.0, 0.0)
    with pytest.raises(BadInput, match="mu"):
        gaussian_epsilon(math.nan, DELTA)


@given(st.floats(0.01, 100), st.floats(1.001, 3))
def test_epsilon_rises_with_the_signal(mu: float, factor: float) -> None:
    assert gaussian_epsilon(mu * factor, DELTA) >= gaussian_epsilon(mu, DELTA)


def mu_of(epsilon: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_epsilon(middle, DELTA) > epsilon else (middle, high)
    return low


# One-shot canaries


def cosines_of_a_release(generator: np.random.Generator, mu: float, dimension: int, count: int) -> list[float]:
    """The cosines of unit canaries with their sum plus noise of deviation 1 / mu (only noise where mu is 0)."""
    canaries = generator.normal(size=(count, dimension))
    canaries /= np.linalg.norm(canaries, axis=1, keepdims=True)
    noise = generator.normal(size=dimension) / (mu or 1.0)
    release = noise + (canaries.sum(0) if mu else 0.0)
    return list(canaries @ release / np.linalg.norm(release))


@pytest.mark.parametrize("dimension", [4000, 16000])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 6.0])
def test_one_shot_recovers_the_epsilon_of_a_gaussian_mechanism(epsilon: float, dimension: int) -> None:
    generator, count = np.random.default_rng(dimension), 100
    mu = mu_of(epsilon)
    measured = [
        one_shot(cosines_of_a_release(generator, mu, dimension, count), dimension, DELTA, most=0.12) for _ in range(40)
    ]
    estimates = np.array([value.estimate for value in measured])
    shrunk = mu / math.sqrt(1 + count * mu**2 / dimension)  # the canaries themselves lengthen the release
    error = (gaussian_epsilon(shrunk + 0.1, DELTA) - gaussian_epsilon(shrunk - 0.1, DELTA)) / 2  # 1 / sqrt(count)
    assert abs(estimates.mean() - gaussian_epsilon(shrunk, DELTA)) < 4 * error / math.sqrt(40)
    assert 0.6 * error < estimates.std() < 1.5 * error
    assert sum(value.low > epsilon for value in measured) <= binom.ppf(0.999, 40, 0.05)
    assert all(value.low <= (value.estimate or 0.0) and value.low <= value.ceiling for value in measured)


def test_one_shot_bound_is_above_the_truth_in_at_most_a_twentieth_of_repeats() -> None:
    generator, repeats = np.random.default_rng(7), 400
    for epsilon in (0.0, 1.0):
        mu = mu_of(epsilon) if epsilon else 0.0
        lows = [one_shot(cosines_of_a_release(generator, mu, 2000, 20), 2000, DELTA).low for _ in range(repeats)]
        assert sum(low > epsilon for low in lows) <= binom.ppf(0.999, repeats, 0.05)


def test_one_shot_ceiling_is_a_release_of_the_canaries_alone() -> None:
    dimension, count = 2500, 25
    basis = np.eye(dimension)[:count]
    release = basis.sum(0)
    perfect = one_shot(list(basis @ release / np.linalg.norm(release)), dimension, DELTA, most=1 / math.sqrt(count))
    assert perfect.low == pytest.approx(perfect.ceiling)
    alone = one_shot([1.0] * count, dimension, DELTA)
    assert alone.low == pytest.approx(alone.ceiling) and alone.ceiling > perfect.ceiling
    assert perfect.low == pytest.approx(gaussian_epsilon(10 - 1.6449 / 5, DELTA), rel=1e-4)


@pytest.mark.parametrize("cosines", [[], [2.0], [math.nan]])
def test_one_shot_refuses_what_is_no_cosine(cosines: list[float]) -> None:
    with pytest.raises(BadInput, match="cosines"):
        one_shot(cosines, 100, DELTA)


# Coins


def slow_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    chance = 1 / (1 + math.exp(-epsilon))

    def tail(least: int) -> float:
        ways = (math.comb(guesses, k) * chance**k * (1 - chance) ** (guesses - k) for k in range(least, guesses + 1))
        return math.fsum(ways)

    worst = max(((tail(correct - i) - tail(correct)) / i for i in range(1, correct + 1)), default=0.0)
    return min(1.0, tail(correct) + 2 * canaries * delta * worst)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 40), st.floats(0, 5), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_p_values_of_guesses_are_those_of_plain_sums(guesses: int, correct: int, epsilon: float, delta: float) -> None:
    correct = min(correct, guesses)
    fast = coin_p_value(correct, guesses, guesses + 5, epsilon, delta)
    assert fast == pytest.approx(slow_p_value(correct, guesses, guesses + 5, epsilon, delta), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("guesses", [10, 100, 1000])
def test_coin_bound_has_its_ceiling_at_all_correct(guesses: int) -> None:
    measured = coin_bound(guesses, guesses, guesses, 0.0)
    assert measured.low == measured.ceiling == pytest.approx(-math.log(0.05 ** (-1 / guesses) - 1), abs=1e-3)
    assert coin_bound(guesses // 2, guesses, guesses, 0.0).low == 0
    assert coin_bound(guesses, guesses, guesses, DELTA).low <= measured.low


def test_facts_of_the_ceilings() -> None:
    assert [round(coin_bound(r, r, r, DELTA).ceiling, 2) for r in (100, 1000, 5000)] == [3.49, 5.78, 7.28]


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 60), st.data())
def test_bounds_rise_with_correct_guesses_and_fall_with_canaries(guesses: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, guesses - 1))
    for bound in (coin_bound, gaussian_coin_bound):
        here = bound(correct, guesses, guesses, DELTA)
        more = bound(correct + 1, guesses, guesses, DELTA)
        assert here.low <= more.low + 2e-4 and more.low <= more.ceiling + 2e-4
        assert bound(correct, guesses, guesses + 50, DELTA).low <= here.low + 2e-4


def coins_and_scores(generator: np.random.Generator, mu: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    coins = generator.random(count) < 0.5
    return coins, generator.normal(size=count) + mu * coins


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_coin_bound_is_above_the_truth_in_at_most_a_twentieth_of_repeats(epsilon: float) -> None:
    """Randomised response, for which the bound is tight."""
    generator, repeats, count = np.random.default_rng(3), 1000, 100
    correct = generator.binomial(count, 1 / (1 + math.exp(-epsilon)), size=repeats)
    lows = {value: coin_bound(int(value), count, count, DELTA).low for value in set(correct)}
    above = sum(lows[value] > epsilon for value in correct)
    assert 0 < above <= binom.ppf(0.999, repeats, 0.05)


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.0])
def test_bounds_of_a_gaussian_mechanism_are_below_it_and_the_gaussian_form_is_sharper(mu: float) -> None:
    generator, repeats, count = np.random.default_rng(5), 200, 400
    truth, guesses = gaussian_epsilon(mu, DELTA), guesses_for(count)
    plain, gaussian, seen = [], [], dict[int, tuple[float, float]]()
    for _ in range(repeats):
        coins, scores = coins_and_scores(generator, mu, count)
        correct = correct_guesses(scores.tolist(), coins.tolist(), guesses)
        if correct not in seen:
            seen[correct] = (
                coin_bound(correct, guesses, count, DELTA).low,
                gaussian_coin_bound(correct, guesses, count, DELTA).low,
            )
        plain.append(seen[correct][0])
        gaussian.append(seen[correct][1])
    for lows in (plain, gaussian):
        assert sum(low > truth for low in lows) <= binom.ppf(0.999, repeats, 0.05)
    assert np.mean(gaussian) >= np.mean(plain)
    if mu >= 1:
        assert np.mean(gaussian) > 1.3 * np.mean(plain)


def test_the_gaussian_form_holds_where_it_is_tightest() -> None:
    """One guess per coin by the sign of its own release, whose chance of being correct is Phi(mu / 2)."""
    generator, repeats, count, mu = np.random.default_rng(9), 1000, 100, 1.0
    correct = generator.binomial(count, norm.cdf(mu / 2), size=repeats)
    lows = {value: gaussian_coin_bound(int(value), count, count, DELTA).low for value in set(correct)}
    assert sum(lows[value] > gaussian_epsilon(mu, DELTA) for value in correct) <= binom.ppf(0.999, repeats, 0.05)


def test_guesses_are_the_surest() -> None:
    scores, inside = [0.1, 0.9, 0.4, 0.8, 0.5], [False, True, True, False, True]
    assert correct_guesses(scores, inside, 2) == 2  # 0.9 in, 0.1 out
    assert correct_guesses(scores, inside, 4) == 2  # also 0.8 in and 0.4 out, both wrong
    assert correct_guesses(scores, inside, 5) == 3
    assert [guesses_for(count) for count in (10, 100, 300, 1000)] == [10, 100, 100, 250]


@pytest.mark.parametrize("counts", [(3, 2, 5), (1, 6, 5), (0, 0, 5), (-1, 2, 5)])
def test_coin_bound_refuses_counts_that_do_not_fit(counts: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match="guesses"):
        coin_bound(*counts, DELTA)


def test_a_bound_at_a_smaller_level_is_lower() -> None:
    cosines = [0.1] * 50
    full, half = (one_shot(cosines, 2000, 1e-5, level=level) for level in (0.05, 0.025))
    assert half.low < full.low and half.ceiling < full.ceiling and half.estimate == full.estimate
    error = float(norm.ppf(1 - 0.025)) / math.sqrt(50)
    assert half.low == pytest.approx(gaussian_epsilon(math.sqrt(2000) * 0.1 - error, 1e-5))


def test_a_cosine_beyond_one_is_named() -> None:
    with pytest.raises(BadInput, match=r"got 1\.5"):
        one_shot([0.1, 1.5], 10, 1e-5)
