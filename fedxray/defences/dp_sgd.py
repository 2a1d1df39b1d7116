"""DP-SGD (Abadi et al. 2016): clipped gradients of single examples, noise on their sum, and an accountant.

In every local step:
    1. Each example is included independently (Poisson sampling) with probability 1 / batches per epoch.
    2. Its gradient over all tensors is clipped to norm `clip`.
    3. The sum of these gets normal noise of standard deviation noise_multiplier * clip.
    4. The step is that sum divided by the expected number of examples, which reveals nothing of the actual one.
The guarantee is record-level (add or remove one record), against an attacker that sees all of the client's messages.
Every executed local step counts; there is no amplification by client sampling. The number of records of a client is
assumed to be public. With shuffled batches the same numbers are an assumption.

Epsilon is computed by Opacus' accountants: RDP gives a fast bound, for calibrating the noise; the PRV accountant a
tight one, for reporting. Where examples are averaged in disjoint pairs, removing a record changes one mixed example
into another, which is one removal and one addition: what holds for single examples at (e, d) holds for records at (2e,
(1 + exp e) d).
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.defences import base
from fedxray.defences.noise import MOST
from fedxray.errors import BadInput
from fedxray.params import Params, add
from fedxray.seeds import normal_like
from fedxray.settings import setting

# Accounting

WHOLE_ORDERS = (*range(2, 13), 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256, 512, 1024)
ORDERS = (1.1, 1.25, 1.5, 1.75, 2.5, *WHOLE_ORDERS)  # fractional ones are slow
PRECISION = 0.005  # relative error of a reported epsilon
SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e6  # range of noise multipliers in a calibration
LEAST_NOISE = 1e-6  # a smaller multiplier gives no guarantee: one step costs an epsilon of 1e12
MOST_EPSILON = 1000.0  # beyond, the guarantee is meaningless and accountants overflow


def rdp_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """Return an upper bound of epsilon by Rényi differential privacy."""
    return _spent(_curve(noise, rate, steps, ORDERS), ORDERS, delta)


def rdp_epsilon_of_pairs(noise: float, rate: float, steps: int, delta: float) -> float:
    """Return an upper bound of epsilon for a record that enters one of the averaged pairs."""
    return _spent_by_pairs(_curve(noise, rate, steps, ORDERS), ORDERS, delta)


@functools.lru_cache(maxsize=4096)
def best_epsilon(noise: float, rate: float, steps: int, delta: float) -> tuple[float, str]:
    """Return the smaller of both upper bounds of epsilon, and its accountant."""
    bound = rdp_epsilon(noise, rate, steps, delta)
    if not 0 < bound <= MOST_EPSILON:
        return bound, "rdp"
    with _quiet_opacus():
        from opacus.accountants import PRVAccountant

        accountant: Any = PRVAccountant()
        accountant.history = [(noise, rate, steps)]
        error = max(PRECISION * bound, 1e-4)
        try:
            tight = float(accountant.get_epsilon(delta=delta, eps_error=error))
        except ValueError:  # a delta too small for its grid of numbers
            return bound, "rdp"
    return (tight, "prv") if tight <= bound else (bound, "rdp")


@functools.lru_cache(maxsize=4096)
def noise_for(epsilon: float, delta: float, rate: float, steps: int, *, pairs: bool = False) -> float:
    """Return the smallest noise multiplier, to a thousandth, whose RDP bound is at most this epsilon."""
    spent = _spent_by_pairs if pairs else _spent

    def enough(noise: float, orders: tuple[float, ...]) -> bool:
        return spent(_curve(noise, rate, steps, orders), orders, delta) <= epsilon

    # Integer orders are fast and overestimate the noise, never underestimate it; all orders then refine it.
    rough = _least(lambda noise: enough(noise, WHOLE_ORDERS), SMALLEST_NOISE, LARGEST_NOISE)
    if rough is None:
        got = f"epsilon {epsilon:g} at delta {delta:g} over {steps} steps"
        remedy = "Allow a larger epsilon, or fewer rounds."
        raise BadInput("epsilon", expected="a privacy budget that some noise achieves", got=got, remedy=remedy)
    fine = _least(lambda noise: enough(noise, ORDERS), max(SMALLEST_NOISE, rough / 2), rough)
    return rough if fine is None else fine


def _least(enough: Any, low: float, high: float) -> float | None:
    """Return the smallest number of a range from which on `enough` holds, to a thousandth; None if nowhere."""
    if not enough(high):
        return None
    if enough(low):
        return low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _curve(noise: float, rate: float, steps: int, orders: tuple[float, ...]) -> list[float]:
    """Return Rényi differential privacy at these orders."""
    return [steps * one for one in _curve_of_step(noise, rate, orders)]


@functools.lru_cache(maxsize=4096)
def _curve_of_step(noise: float, rate: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    if noise < LEAST_NOISE:
        return (math.inf,) * len(orders)
    with _quiet_opacus():
        from opacus.accountants.analysis.rdp import compute_rdp

        curve: Any = compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(orders))
    return tuple(float(value) for value in curve)


def _spent(curve: list[float], orders: tuple[float, ...], delta: float) -> float:
    """Return epsilon of a Rényi curve at this delta; never below 0."""
    with _quiet_opacus():
        from opacus.accountants.analysis.rdp import get_privacy_spent

        spent, _ = get_privacy_spent(orders=list(orders), rdp=curve, delta=delta)
    return max(0.0, float(spent))


def _spent_by_pairs(curve: list[float], orders: tuple[float, ...], delta: float) -> float:
    """Return epsilon of a record in one pair: 2 e at the largest d with (1 + exp e) d <= delta, by bisection."""

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
    """Silence Opacus' warnings on orders and on logarithms of zero; refuse with a remedy where it is not installed."""
    import numpy as np

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            import opacus.accountants  # noqa: F401
        except ModuleNotFoundError as error:
            expected = "Opacus to be installed, which computes privacy budgets"
            remedy = f"In the folder of fedxray: {sys.executable} -m pip install -c constraints.txt -e '.[dp]'"
            raise BadInput("defence", expected=expected, got=str(error), remedy=remedy) from error
        yield


# The defence

ASSUMES_POISSON = "assumes Poisson sampling, but batches were shuffled"
IN_PAIRS = "a record enters one averaged pair"
NOT_COUNTED = "no epsilon: a record enters several mixed examples"
NO_NOISE = "no epsilon: no noise"
TOO_LITTLE = "no epsilon: too little noise for a finite one"


@dataclass(frozen=True, kw_only=True)
class DpSgd(base.Defence):
    """Per-example gradients are clipped, their sum gets noise: record-level (epsilon, delta)-DP.

    Give either `epsilon`, to which the noise is calibrated, or `noise_multiplier`. The noise is calibrated to the
    federation's rounds, or to `rounds` where an active server may use more.
    """

    name: ClassVar[str] = "dp-sgd"

    epsilon: float | None = setting(
        None,
        "Privacy budget epsilon that the noise is calibrated to; give it or noise_multiplier.",
        above=0,
        most=MOST,
        example=1.0,
    )
    noise_multiplier: float | None = setting(
        None,
        "Noise multiplier (standard deviation of the noise / clipping norm); give it or epsilon.",
        least=0,
        most=MOST,
        example=1.0,
    )
    delta: float = setting(1e-5, "Delta of (epsilon, delta)-DP.", above=0, below=1)
    clip: float = setting(1.0, "Clipping norm of per-example gradients.", above=0, most=MOST)
    sampling: Literal["poisson", "shuffle"] = setting(
        "poisson", "Batches by Poisson sampling, as the accountant assumes, or shuffled."
    )
    rounds: int | None = setting(None, "Rounds that the noise is calibrated to. Default: the federation's.", least=1)

    def check_settings(self) -> None:
        """Refuse both or neither of epsilon and noise_multiplier."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            got = "neither" if self.epsilon is None else "both"
            remedy = "For instance epsilon = 10.0."
            raise BadInput("epsilon", expected="either epsilon or noise_multiplier", got=got, remedy=remedy)

    def hooks(self, work: base.Work) -> base.Hooks:
        """Clip and add noise in every step, on Poisson samples."""
        noise, pairs = self.noise_for(work), work.mixing == "pairs"
        poisson = self.sampling == "poisson"
        expected = expected_examples(work, poisson)
        certain = base.Hooks(gradients=partial(self._on_gradients, 0.0, expected))
        return base.Hooks(
            gradients=partial(self._on_gradients, noise * self.clip, expected),
            sampling=base.Sampling(rate=sampling_rate(work), pairs=pairs) if poisson else None,
            privacy=partial(self._privacy, work, noise),
            known=base.KnownDefence(replay=certain, step_variance=(noise * self.clip / expected) ** 2),
        )

    def noise_for(self, work: base.Work) -> float:
        """Return the noise multiplier of a client with this work."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        steps = work.steps * (self.rounds or work.rounds)
        pairs = work.mixing == "pairs"
        return noise_for(self.epsilon, self.delta, sampling_rate(work), steps, pairs=pairs)

    def clip_of(self, what: base.Clipped) -> float | None:
        """Return the norm of gradients."""
        return self.clip if what == "gradients" else None

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        noise = f"noise multiplier {self.noise_multiplier:g}" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        batches = "Poisson batches" if self.sampling == "poisson" else "shuffled batches"
        return f"DP-SGD with {noise}, delta {self.delta:g}, example gradients clipped to norm {self.clip:g}, {batches}"

    def _on_gradients(
        self,
        deviation: float,
        expected: float,
        value: base.ExampleGradients,
        state: base.State,
        generator: torch.Generator,
    ) -> tuple[base.ExampleGradients, base.State]:
        clipped = clip_examples(value.each, self.clip)
        extra = value.extra
        if deviation:
            blank = {name: one.new_empty(one.shape[1:]) for name, one in clipped.items()}
            noise = {name: deviation * normal_like(one, generator) for name, one in blank.items()}
            extra = noise if extra is None else add(noise, extra)
        divisor = torch.full_like(value.divisor, expected)
        return replace(value, each=clipped, extra=extra, divisor=divisor), state

    def _privacy(self, work: base.Work, noise: float, rounds: int) -> base.Privacy:
        """Return the guarantee for every record after `rounds` rounds of this work."""
        rate, steps = sampling_rate(work), work.steps * rounds
        notes = [ASSUMES_POISSON] if self.sampling == "shuffle" and rate < 1 else []
        epsilon: float | None
        accountant = "prv"
        if work.mixing == "several" or not noise:
            epsilon, notes = None, [NO_NOISE if not noise else NOT_COUNTED]
        elif steps == 0:
            epsilon = 0.0
        elif work.mixing == "pairs":
            epsilon = rdp_epsilon_of_pairs(noise, rate, steps, self.delta)
            accountant, notes = "rdp", [IN_PAIRS, *notes]
        else:
            epsilon, accountant = best_epsilon(noise, rate, steps, self.delta)
        if epsilon is not None and not math.isfinite(epsilon):
            epsilon, notes = None, [TOO_LITTLE]
        return base.Privacy(
            epsilon=epsilon,
            delta=self.delta,
            noise_multiplier=noise,
            rate=rate,
            steps=steps,
            accountant=accountant,
            note="; ".join(notes),
        )


def sampling_rate(work: base.Work) -> float:
    """Return the sampling probability of every example in every step: one over the batches of an epoch."""
    return 1 / -(-work.examples // work.batch_size)


def expected_examples(work: base.Work, poisson: bool) -> float:
    """Return the expected number of examples, or averaged pairs, of a step; for shuffled batches, of a full one."""
    drawn = work.examples if poisson else work.batch_size
    units = -(-drawn // 2) if work.mixing == "pairs" else drawn
    return units * sampling_rate(work) if poisson else float(units)


def clip_examples(gradients: Params, clip: float) -> dict[str, Tensor]:
    """Return every example's gradient clipped to norm `clip` over all tensors [examples, ...]."""
    norms = base.example_norms(gradients)
    factor = clip / norms.clamp(min=clip)  # 1 for a gradient within the norm, also for norm 0
    return {name: value * factor.reshape(-1, *[1] * (value.dim() - 1)) for name, value in gradients.items()}
