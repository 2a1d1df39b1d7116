"""Measured local models as tables of their own: one line per model, one table per data set and set of seeds.

Settings were looked at on the first seeds of Leaf, so these stand apart from fresh ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fedxray.audit.statistics import interval
from fedxray.reproduce.lmra.setting import MODELS

GROUPS = (
    ("Leaf Synthetic, seeds 0 to 4", "leaf", range(5)),
    ("Leaf Synthetic, fresh seeds 5 to 9", "leaf", range(5, 10)),
    ("Adult, seeds 0 to 4", "adult", range(5)),
)
HEAD: tuple[str, ...] = (
    "model", "zest", "zest minus that of last", "median training loss", "training accuracy",
    "accuracy minus that of last", "attributes told", "sources told",
)  # fmt: skip
EXTRA = (("gradients", "attribute inference from updates"), ("majority", "source inference by majority"))
Values = dict[tuple[int, int | None], float]


def tables(document: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, head and lines of every group that was measured."""
    found = []
    for title, row, seeds in GROUPS:
        lines = [_line(document, row, seeds, name) for name in [*MODELS, *(name for name, _ in EXTRA)]]
        kept = [line for line in lines if any(line[1:])]
        if kept:
            found.append((title, HEAD, kept))
    return found


def _line(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> tuple[str, ...]:
    """All numbers of one model; empty where there is none."""

    def values(column: str, metric: str) -> Values:
        return _values(document, row, seeds, column, metric)

    zest, hits = values(name, "zest"), values(name, "training_accuracy")
    losses = list(values(name, "training_loss").values())
    return (
        dict(EXTRA).get(name, f"`{name}`"),
        _mean(zest),
        "" if name == "last" else _gain(zest, values("last", "zest")),
        f"{median(losses):.3g}" if losses else "",
        _mean(hits),
        "" if name == "last" else _gain(hits, values("last", "training_accuracy")),
        _mean(values(f"aia-{name}", "accuracy")),
        _mean(values(f"sia-{name}", "accuracy")),
    )


def _values(document: Mapping[str, Any], row: str, seeds: Sequence[int], column: str, metric: str) -> Values:
    """Values by seed and client of the chosen seeds."""
    wanted = (row, column, metric)
    units = [
        unit
        for one in document["rows"]
        if (one["row"], one["column"], one["metric"]) == wanted
        for unit in one["units"]
    ]
    return {(unit["seed"], unit["client"]): unit["value"] for unit in units if unit["seed"] in seeds}


def _mean(values: Values) -> str:
    return f"{math.fsum(values.values()) / len(values):.3f}" if values else ""


def _gain(values: Values, others: Values) -> str:
    """The paired difference with its 95 % interval."""
    both = [key for key in values if key in others]
    if not both:
        return ""
    found = interval([values[key] - others[key] for key in both], [seed for seed, _ in both])
    if found.low is None or found.high is None:
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
