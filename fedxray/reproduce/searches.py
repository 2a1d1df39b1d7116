"""What searches of a row found: the settings of lowest own loss, how far they are from the truth, and how sure.

A loss may be low along a ridge, where two settings make up for each other. So beside what was chosen stands what the
trials span that were nearly as good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.audit.trials import nearly_as_good
from fedxray.reproduce.base import Reproduction
from fedxray.reproduce.cells import belongs

Point = Mapping[str, float]


def searches_of_audit(made: Reproduction, row: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry for every case that searched and every number it was after."""
    found = []
    for case in document["cases"]:
        told = case.get("search") or {}
        title = next((column.name for column in made.columns if belongs(case, column)), None)
        if title is None or told.get("best") is None:
            continue
        true = {} if made.sought is None else dict(made.sought.true(document["plan"]))
        where = {"row": row, "column": title, "seed": case["seed"], "client": case["client"]}
        found += [{**where, **one} for one in _quantities(made, told, true)]
    return found


def _quantities(made: Reproduction, told: Mapping[str, Any], true: Point) -> list[dict[str, Any]]:
    """Every searched setting, and what follows from several of them."""
    best = told["trials"][told["best"]]
    near = [one["point"] for one in nearly_as_good(told["trials"])]
    ways = {} if made.sought is None else made.sought.quantities
    names = [
        *best["point"],
        *(name for name, (above, below) in ways.items() if {above, below} <= set(best["point"])),
    ]
    found = []
    for name in names:
        values = [_value(point, name, ways) for point in near]
        found.append(
            {
                "quantity": name,
                "found": _value(best["point"], name, ways),
                "true": _value(true, name, ways) if _knows(true, name, ways) else None,
                "low": min(values),
                "high": max(values),
                "nearly": len(near),
                "trials": len(told["trials"]),
                "loss": best["loss"],
                "loss_of_starts": _lowest(told["trials"][: told.get("starts") or 0]),
            }
        )
    return found


def _lowest(trials: Sequence[Mapping[str, Any]]) -> float | None:
    """The lowest own loss of trials, None where there is none."""
    return min((one["loss"] for one in trials if one["loss"] is not None), default=None)


def _value(point: Point, name: str, ways: Mapping[str, tuple[str, str]]) -> float:
    if name in point:
        return float(point[name])
    above, below = ways[name]
    return float(point[above]) / float(point[below])


def _knows(true: Point, name: str, ways: Mapping[str, tuple[str, str]]) -> bool:
    return set(ways.get(name, (name,))) <= set(true)


def found_lines(searches: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and lines of a table: what was found, beside the truth where there is one."""
    head = ("row", "column", "seed", "client", "searched", "found", "true", "found / true", "nearly as good")
    lines: list[tuple[str, ...]] = []
    for one in searches:
        true = one["true"]
        lines.append(
            (
                one["row"],
                one["column"],
                str(one["seed"]),
                "–" if one["client"] is None else str(one["client"]),
                one["quantity"],
                f"{one['found']:.4g}",
                "–" if true is None else f"{true:.4g}",
                "–" if not true else f"{one['found'] / true:.3f}",
                _span(one, true),
            )
        )
    return head, lines


def _span(one: Mapping[str, Any], true: float | None) -> str:
    """What the trials span whose loss is at most a tenth above the lowest, in units of the truth if there is one."""
    unit = true or 1.0
    ends = f"{_plain(one['low'] / unit)} to {_plain(one['high'] / unit)}" + (" times" if true else "")
    return f"{ends} ({one['nearly']} of {one['trials']} trials)"


def _plain(value: float) -> str:
    """Three digits that matter, or all before the point."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
