"""Rows of utility: quality of the final models over the seeds, beside the weakest privacy promise of a defence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.audit.judge.statistics import interval


def utility_rows(
    defences: Sequence[str],
    seeds: Sequence[int],
    scores: Mapping[tuple[str, int], Mapping[str, float | None]],
    promises: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per defence and metric over the seeds, with its interval and the weakest privacy promise.

    `scores` are those of `utility_of` by defence and seed.
    """
    rows = []
    for defence in defences:
        promise = (promises or {}).get(defence)
        metrics = dict.fromkeys(metric for seed in seeds for metric in scores.get((defence, seed), {}))
        for metric in metrics:
            per_seed = [scores.get((defence, seed), {}).get(metric) for seed in seeds]
            values = [value for value in per_seed if value is not None]  # None: it was not finite
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
                    **({} if promise is None else {"privacy": privacy_words(promise)}),
                }
            )
    return rows


def privacy_words(promise: Mapping[str, Any]) -> str:
    """Return delta, accountant and note of a promise, to stand beside its epsilon."""
    parts = [f"delta {promise['delta']:g}", f"accountant {promise['accountant']}", promise["note"]]
    return ", ".join(part for part in parts if part)
