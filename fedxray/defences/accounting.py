"""Epsilon of Gaussian noise on sums of clipped gradients over Poisson batches, by Opacus' accountants.

Record level: data sets are neighbours when one record is there or not. RDP gives a quick bound, for searching a noise;
the PRV accountant gives a tight one, for reporting. Where examples are averaged in disjoint pairs, a record that
leaves changes one mixed example into another, which is one removal and one addition: what holds for single examples
at (e, d) holds for records at (2e, (1 + exp e) d).
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedxray.errors import BadInput

WHOLE_ORDERS = (*range(2, 13), 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256, 512, 1024)
ORDERS = (1.1, 1.25, 1.5, 1.75, 2.5, *WHOLE_ORDERS)  # broken ones take long
PRECISION = 0.005  # of a reported epsilon, as a share of it
SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e6  # multipliers that a search looks at
LEAST_NOISE = 1e-6  # a multiplier below promises nothing: one step costs an epsilon of 1e12
MOST_EPSILON = 1000.0  # beyond, nothing is promised that means anything, and accountants overflow


def rdp_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """An upper bound of epsilon by Rényi differential privacy."""
    return _spent(_curve(noise, rate, steps, ORDERS), ORDERS, delta)


def rdp_epsilon_of_pairs(noise: float, rate: float, steps: int, delta: float) -> float:
    """The same for a record that enters one of the averaged pairs."""
    curve = _curve(noise, rate, steps, ORDERS)
    return _spent_by_pairs(curve, ORDERS, delta)


def prv_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """A tight upper bound of epsilon by numerical composition of privacy losses, or the quick one if that fails."""
    return best_epsilon(noise, rate, steps, delta)[0]


@functools.lru_cache(maxsize=4096)
def best_epsilon(noise: float, rate: float, steps: int, delta: float) -> tuple[float, str]:
    """The smaller of both upper bounds of epsilon, and which accountant gave it."""
    bound = rdp_epsilon(noise, rate, steps, delta)
    if not 0 < bound <= MOST_EPSILON:
        return bound, "rdp"
    with _quiet_opacus():
        from opacus.accountants import PRVAccountant

        accountant: Any = PRVAccountant()
        accountant.history = [(noise, rate, steps)]
        error = max(PRECISION * bound, 1e-4)
        try:
            found = float(accountant.get_epsilon(delta=delta, eps_error=error))
        except ValueError:  # a delta too small for its grid of numbers
            return bound, "rdp"
    return (found, "prv") if found <= bound else (bound, "rdp")


@functools.lru_cache(maxsize=4096)
def noise_for(epsilon: float, delta: float, rate: float, steps: int, *, pairs: bool = False) -> float:
    """The least noise multiplier, to a thousandth, whose RDP bound is at most this epsilon."""
    spent = _spent_by_pairs if pairs else _spent

    def enough(noise: float, orders: tuple[float, ...]) -> bool:
        return spent(_curve(noise, rate, steps, orders), orders, delta) <= epsilon

    # Whole orders are quick and give too much noise, never too little; all orders then refine it.
    rough = _least(lambda noise: enough(noise, WHOLE_ORDERS), SMALLEST_NOISE, LARGEST_NOISE)
    if rough is None:
        raise BadInput(
            "epsilon",
            expected="a budget that some noise can keep",
            got=f"epsilon {epsilon:g} at delta {delta:g} over {steps} steps",
            remedy="Allow a larger epsilon, or fewer rounds.",
        )
    fine = _least(lambda noise: enough(noise, ORDERS), max(SMALLEST_NOISE, rough / 2), rough)
    return rough if fine is None else fine


def _least(enough: Any, low: float, high: float) -> float | None:
    """The smallest number of a range for which something holds from there on, to a thousandth; None: for none."""
    if not enough(high):
        return None
    if enough(low):
        return low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _curve(noise: float, rate: float, steps: int, orders: tuple[float, ...]) -> list[float]:
    """Rényi differential privacy at these orders."""
    return [steps * one for one in _curve_of_step(noise, rate, orders)]


@functools.lru_cache(maxsize=4096)
def _curve_of_step(noise: float, rate: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    if noise < LEAST_NOISE:
        return (math.inf,) * len(orders)
    with _quiet_opacus():
        from opacus.accountants.analysis.rdp import compute_rdp

        found: Any = compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(orders))
    return tuple(float(value) for value in found)


def _spent(curve: list[float], orders: tuple[float, ...], delta: float) -> float:
    """Epsilon of a Rényi curve at this delta; never below 0."""
    with _quiet_opacus():
        from opacus.accountants.analysis.rdp import get_privacy_spent

        found, _ = get_privacy_spent(orders=list(orders), rdp=curve, delta=delta)
    return max(0.0, float(found))


def _spent_by_pairs(curve: list[float], orders: tuple[float, ...], delta: float) -> float:
    """Epsilon of a record in one pair: 2 e at a d with (1 + exp e) d at most delta, as large as found."""

    def fits(log_d: float) -> bool:
        single = _spent(curve, orders, math.exp(log_d))
        return single + math.log1p(math.exp(-single)) + log_d <= math.log(delta)

    low, high = math.log(delta) - 700.0, math.log(delta / 2)
    if not fits(low):
        return math.inf
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return 2 * _spent(curve, orders, math.exp(low))


@contextmanager
def _quiet_opacus() -> Iterator[None]:
    """Opacus, or a word on how to get it; its remarks on orders and on logarithms of zero are of no use to a user."""
    import numpy as np

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            import opacus.accountants  # noqa: F401
        except ModuleNotFoundError as error:
            raise BadInput(
                "defence",
                expected="Opacus to be installed, which reckons privacy budgets",
                got=str(error),
                remedy=f"In the folder of fedxray: {sys.executable} -m pip install -c constraints.txt -e '.[dp]'",
            ) from error
        yield
