"""Leakage against utility: every defence a point, of its strongest attacker, and the frontier that nothing beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from fedxray.report import words
from fedxray.report.drawing import Drawing
from fedxray.report.plans import plan_of
from fedxray.report.rows import Row, shown_rows
from fedxray.report.scatter import Point, scatter_chart

# In the order in which they are preferred; of those that are marked, smaller is better.
UTILITY: Mapping[str, bool] = {"accuracy": False, "mape": True, "loss": True}
MOST_POINTS = len(ascii_uppercase)


@dataclass(frozen=True, kw_only=True)
class TradeoffLine:
    """One defence in the table beside a picture."""

    mark: str
    defence: str
    aware: str
    utility: str
    gain: str
    epsilon: str | None
    frontier: bool


@dataclass(frozen=True, kw_only=True)
class Tradeoff:
    """One attack from one seat: its picture, and the same in words."""

    title: str
    measure: str  # of usefulness, and which way it runs
    drawing: Drawing
    lines: tuple[TradeoffLine, ...]
    more: int  # defences beyond those shown


def tradeoffs(document: Mapping[str, Any]) -> list[Tradeoff]:
    """A picture for every attack and seat with two defences or more, by the attack's first metric."""
    groups: dict[tuple[str | None, str, str], list[Row]] = {}
    for row in shown_rows(document):
        if not row["oracle"] and row["difference"] is not None:
            groups.setdefault((plan_of(row), row["attack"], row["role"]), []).append(row)
    found = [
        _tradeoff(f"tradeoff-{index}", rows, _worth(document, plan))
        for index, ((plan, _, _), rows) in enumerate(groups.items())
    ]
    return [one for one in found if one is not None]


def _worth(document: Mapping[str, Any], plan: str | None) -> dict[str, Row]:
    """The rows of utility of one plan by defence, of the metric that says most."""
    rows = [row for row in document["utility"] if plan_of(row) == plan and row["value"] is not None]
    metric = next((one for one in UTILITY if any(row["metric"] == one for row in rows)), None)
    return {row["defence"]: row for row in rows if row["metric"] == metric}


def _tradeoff(name: str, rows: Sequence[Row], worth: Mapping[str, Row]) -> Tradeoff | None:
    rows = [row for row in rows if row["metric"] == rows[0]["metric"]]
    strongest: dict[str, Row] = {}
    for row in rows:
        known = strongest.get(row["defence"])
        if row["defence"] in worth and (known is None or row["difference"] > known["difference"]):
            strongest[row["defence"]] = row
    if len(strongest) < 2:
        return None
    shown = list(strongest)[:MOST_POINTS]
    metric = worth[shown[0]]["metric"]
    best = frontier([(_better(worth[one], metric), -float(strongest[one]["difference"])) for one in shown])
    points = [
        _point(mark, strongest[one], worth[one], one_best)
        for mark, one, one_best in zip(ascii_uppercase, shown, best, strict=False)
    ]
    title = f"{rows[0]['attack']} run by {words.role_words(rows[0]['role'])}"
    drawing = scatter_chart(
        points,
        name=name,
        title=f"{title}: gain over the guess against {metric}",
        across=f"{metric} on held-out records {'(axis runs backwards)' if UTILITY[metric] else ''}".strip(),
        up="gain over the guess",
        reverse=UTILITY[metric],
    )
    lines = tuple(_line(point, strongest[one], worth[one]) for point, one in zip(points, shown, strict=True))
    title = f"{title}: {rows[0]['metric']}, gain over the guess"
    measure = f"{metric}, {'less' if UTILITY[metric] else 'more'} is better"
    return Tradeoff(
        title=title, measure=measure, drawing=drawing, lines=lines, more=len(strongest) - len(shown)
    )


def frontier(values: Sequence[tuple[float, ...]]) -> list[bool]:
    """Which of several points nothing beats: no other is as good in everything and better in something."""
    return [
        not any(
            all(theirs >= ours for theirs, ours in zip(other, one, strict=True)) and other != one
            for other in values
        )
        for one in values
    ]


def _better(row: Row, metric: str) -> float:
    """Utility as a number that grows with it."""
    return float(-row["value"] if UTILITY[metric] else row["value"])


def _point(mark: str, row: Row, worth: Row, best: bool) -> Point:
    budget = "" if worth["epsilon"] is None else f" ε {worth['epsilon']:.3g}"
    return Point(
        mark=f"{mark}{budget}",
        label=words.defence_words(row["defence"]),
        across=(worth["value"], not_negative(worth["low"]), worth["high"]),
        up=(row["difference"], row["low"], row["high"]),
        verdict=row["verdict"],
        frontier=best,
    )


def not_negative(number: float | None) -> float | None:
    """No loss, error or share is below zero, but an interval may not know that."""
    return None if number is None else max(number, 0.0)


def _line(point: Point, row: Row, worth: Row) -> TradeoffLine:
    metric = row["metric"]
    gain = words.value(row["difference"], metric, sign=True)
    spread = words.between(row["low"], row["high"], metric, sign=True)
    utility = words.value(worth["value"], worth["metric"])
    return TradeoffLine(
        mark=point.mark[0],
        defence=point.label,
        aware=words.aware_words(row),
        utility=f"{utility} ({words.between(not_negative(worth['low']), worth['high'], worth['metric'])})",
        gain=f"{gain} ({spread})",
        epsilon=None if worth["epsilon"] is None else f"{worth['epsilon']:.3g}",
        frontier=point.frontier,
    )
