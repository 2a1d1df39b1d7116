"""Points of largest expected improvement under a Gaussian process of the losses so far, asked of Optuna.

The losses of an attack have no noise: the same settings give the same loss. So the process goes through all of them.
Points that are asked together know of each other. What is asked depends on the trials so far and on a seed alone, so
that a search which goes on elsewhere asks the same.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from fedxray.audit.engines import one_thread
from fedxray.errors import missing_extra

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study as OptunaStudy


def check_optuna() -> None:
    """Refuse to go on without the library."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise missing_extra("sampler", "Optuna", "tune", 'use sampler = "random"') from None


def best_guesses(
    ranges: Mapping[str, tuple[float, float, str]],
    past: Sequence[tuple[Mapping[str, float], float]],
    count: int,
    seed: int,
) -> list[dict[str, float]]:
    """So many points to try next, after points with their losses; an infinite loss counts as the worst finite one."""
    with _quiet():
        study = _study(ranges, past, seed)
        asked = [study.ask(_distributions(ranges)) for _ in range(count)]
    return [{name: one.params[name] for name in ranges} for one in asked]


def _study(
    ranges: Mapping[str, tuple[float, float, str]],
    past: Sequence[tuple[Mapping[str, float], float]],
    seed: int,
) -> OptunaStudy:
    import optuna

    sampler = optuna.samplers.GPSampler(
        seed=seed % 2**32, n_startup_trials=len(past), deterministic_objective=True
    )
    study = optuna.create_study(direction="minimize", sampler=sampler)
    space = _distributions(ranges)
    worst = max((loss for _, loss in past if math.isfinite(loss)), default=0.0)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(point), distributions=space, value=loss if math.isfinite(loss) else worst
            )
            for point, loss in past
        ]
    )
    return study


def _distributions(ranges: Mapping[str, tuple[float, float, str]]) -> dict[str, BaseDistribution]:
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        name: IntDistribution(int(low), int(high))
        if scale == "int"
        else FloatDistribution(low, high, log=scale == "log")
        for name, (low, high, scale) in ranges.items()
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's lines of log and its notes about experimental parts."""
    import optuna.study  # noqa: F401  (its logger is set up when it is first imported)

    logger = logging.getLogger("optuna")
    before, draws = logger.level, torch.get_rng_state()
    logger.setLevel(logging.ERROR)
    try:
        with one_thread(), warnings.catch_warnings():  # many threads make it slower, and other sums
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        logger.setLevel(before)
        torch.set_rng_state(draws)
