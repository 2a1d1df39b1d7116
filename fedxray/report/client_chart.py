"""A leak by client: one line per client with its runs, beside what could be guessed and what the controls reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.report import words
from fedxray.report.charts import Line, metric_chart
from fedxray.report.drawing import Drawing
from fedxray.report.rows import Row

MOST_CLIENTS = 12
LEAST_RUNS = 3  # from which there is an interval
CONFIDENCE = 0.975  # one side of 95 %

Case = Mapping[str, Any]


def client_chart(cases: Sequence[Case], row: Row, *, name: str, title: str) -> Drawing | None:
    """The clients of one row of the summary, those with the largest gain first; None for fewer than two."""
    metric, down = row["metric"], words.is_down(row["metric"])
    units: dict[Any, list[Case]] = {}
    for case in cases:
        if case["scores"].get(metric) is not None:
            units.setdefault(case["client"], []).append(case)
    lines = [_line(client, runs, row) for client, runs in units.items()]
    lines.sort(key=lambda line: _gain(line, down), reverse=True)
    if len(lines) < 2:
        return None
    return metric_chart(lines[:MOST_CLIENTS], metric, name=name, title=title)


def _line(client: Any, runs: Sequence[Case], row: Row) -> Line:
    scores = [float(one["scores"][row["metric"]]) for one in runs]
    mean, low, high = spread(scores)
    floors = [one["floors"].get(row["over"]) for one in runs]
    controls = {name: [one["controls"].get(name) for one in runs] for one in runs for name in one["controls"]}
    means = {name: _mean_of(listed, row["metric"]) for name, listed in controls.items()}
    return Line(
        label=f"client {client}",
        mean=mean,
        low=low,
        high=high,
        floor=_mean_of(floors, row["metric"]),
        controls={name: one for name, one in means.items() if one is not None},
        verdict="",
    )


def spread(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of the runs of one client with its t-interval, where there are enough runs."""
    mean = math.fsum(values) / len(values)
    if len(values) < LEAST_RUNS:
        return mean, None, None
    from scipy.special import stdtrit

    error = math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))
    wide = float(stdtrit(len(values) - 1, CONFIDENCE)) * error
    return mean, mean - wide, mean + wide


def _mean_of(listed: Sequence[Mapping[str, Any] | None], metric: str) -> float | None:
    known = [one[metric] for one in listed if one and one.get(metric) is not None]
    return math.fsum(known) / len(known) if known else None


def _gain(line: Line, down: bool) -> float:
    gain = (line.mean or 0.0) - (line.floor or 0.0)
    return -gain if down else gain
