"""Results in few lines for a written page: one for every row and column, one for every paired difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.report import words

Line = tuple[str, ...]
MISSING = "–"
BREAK = "<br>"  # a cell is read line by line: the mean, its interval, the paper's number, the floor


def numbers(content: Mapping[str, Any], metrics: Sequence[str]) -> tuple[Line, list[Line]]:
    """Head and lines: each metric with its interval, [the paper's number] and the best floor."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in content["rows"]:
        if row["metric"] in metrics:
            found.setdefault((row["row"], row["column"]), {})[row["metric"]] = row
    head = ("row", "attack", "clients x seeds", *metrics)
    lines = []
    for (row_name, column), cells in found.items():
        ours = next(iter(cells.values()))["ours"]
        count = f"{ours['clients']} x {ours['seeds']}"
        lines.append((row_name, f"`{column}`", count, *(_cell(cells.get(metric)) for metric in metrics)))
    return head, lines


def gains(content: Mapping[str, Any], metrics: Sequence[str]) -> tuple[Line, list[Line]]:
    """Head and lines: each paired difference with its interval and [the paper's]."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for one in content["differences"]:
        if one["metric"] in metrics:
            where = " − ".join(dict.fromkeys(one["rows"]))
            found.setdefault((_what(one), where), {})[one["metric"]] = one
    head = ("difference", "row", "n", *metrics)
    lines = []
    for (what, where), cells in found.items():
        count = str(next(iter(cells.values()))["n"])
        lines.append((what, where, count, *(_gain(cells.get(metric)) for metric in metrics)))
    return head, lines


def _what(one: Mapping[str, Any]) -> str:
    same = one["left"] == one["right"]
    return f"`{one['left']}`" if same else f"`{one['left']}` − `{one['right']}`"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or row["ours"]["mean"] is None:
        return MISSING
    metric, ours = row["metric"], row["ours"]
    parts = [words.value(ours["mean"], metric)]
    if ours["low"] is not None:
        parts.append(f"({words.between(ours['low'], ours['high'], metric)})")
    if row["paper"] is not None:
        parts.append(f"[{words.value(row['paper']['mean'], metric)}]")
    if row["over"] in row["floors"]:
        parts.append(f"floor {words.value(row['floors'][row['over']]['mean'], metric)}")
    return _lines(parts)


def _gain(one: Mapping[str, Any] | None) -> str:
    if one is None or one["mean"] is None:
        return MISSING
    metric = one["metric"]
    parts = [words.value(one["mean"], metric, sign=True)]
    if one["low"] is not None:
        parts.append(f"({words.between(one['low'], one['high'], metric, sign=True)})")
    if one["paper"] is not None:
        parts.append(f"[{words.value(one['paper'], metric, sign=True)}]")
    return _lines(parts)


def _lines(parts: Sequence[str]) -> str:
    """Each part on a line of its own, broken nowhere else."""
    return BREAK.join(part.replace(" ", words.GLUE) for part in parts)
