"""Rows of utility: quality of the final models over the seeds, beside the weakest privacy promise of a defence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.audit.judge.statistics import interval

GUESS = "_guess"  # after a metric: that of a constant prediction in place of the model's


def utility_rows(
    defences: Sequence[str],
    seeds: Sequence[int],
    scores: Mapping[tuple[str, int], Mapping[str, float | None]],
    promises: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per defence and metric over the seeds, with its interval and the weakest privacy promise.

    `scores` are those of `utility_of` by defence and seed. `guess` is the mean score of a constant prediction.
    """
    rows = []
    for defence in defences:
        promise = (promises or {}).get(defence)
        runs = [scores.get((defence, seed), {}) for seed in seeds]
        for metric in dict.fromkeys(metric for run in runs for metric in run if not metric.endswith(GUESS)):
            values = [value for run in runs if (value := run.get(metric)) is not None]  # None: it was not finite
            guesses = [guess for run in runs if (guess := run.get(metric + GUESS)) is not None]
            spread = interval(values, list(range(len(values)))) if values else None
            rows.append(
                {
                    "defence": defence,
                    "metric": metric,
                    "value": spread and spread.mean,
                    "low": spread and spread.low,
                    "high": spread and spread.high,
                    "n": len(values),
                    "epsilon": promise and promise["epsilon"],
                    **({"guess": math.fsum(guesses) / len(guesses)} if guesses else {}),
                    **({} if promise is None else {"privacy": privacy_words(promise)}),
                }
            )
    return rows


def privacy_words(promise: Mapping[str, Any]) -> str:
    """Return delta, accountant and note of a promise, to stand beside its epsilon."""
    parts = [f"delta {promise['delta']:g}", f"accountant {promise['accountant']}", promise["note"]]
    return ", ".join(part for part in parts if part)
