"""Results by attack and seat: charts and tables, ready to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from fedxray.report import words
from fedxray.report.charts import Drawing, Line, Point, metric_chart, scatter_chart
from fedxray.report.overview import secrets_of, worst_words
from fedxray.report.rows import Row, attack_facts, plan_of, restorer_names, shown_rows
from fedxray.report.words import reason_words

RESTORED = (
    "Its images were then restored by {}: what they show beyond the raw ones comes from a model of such images, "
    "and may never have been in the data."
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One line of a table of results, ready to print."""

    metric: str
    defence: str
    aware: str
    score: str
    score_spread: str
    floor: str
    over: str
    gain: str
    gain_spread: str
    controls: tuple[tuple[str, str, str], ...]  # words, mean, difference with interval
    ceiling: str | None
    kind: str | None
    units: int
    unit: str  # what is counted: client-run, or record in a recording
    worst: tuple[str, str] | None
    verdict: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its heading."""

    title: str
    subtitle: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class AttackSection:
    """All results of one attack from one seat."""

    anchor: str
    attack: str
    role: str
    role_words: str
    oracle: bool
    about: str | None
    verdict: str
    charts: tuple[Chart, ...]
    measures: tuple[Measure, ...]


def attack_sections(document: Mapping[str, Any]) -> list[AttackSection]:
    """Results by attack and seat, in the order of the plan."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in shown_rows(document):
        groups.setdefault((row["attack"], row["role"]), []).append(row)
    columns, by = secrets_of(document), restorer_names(document)
    return [
        _section(
            f"attack-{index}",
            rows,
            _about(attack_facts(document, attack), by.get(attack)),
            columns.get(attack),
        )
        for index, ((attack, _), rows) in enumerate(groups.items())
    ]


def _about(facts: Mapping[str, Any], restorer: str | None) -> str | None:
    """The description of an attack, where it comes from if it is not built in, and what restored its images."""
    about, source = facts.get("about"), facts.get("source", "built-in")
    if not about:
        return None
    origin = "" if source == "built-in" else f"{words.capital(source)}."
    restored = "" if restorer is None else RESTORED.format(restorer)
    return " ".join(part for part in (about, origin, restored) if part)


def _section(anchor: str, rows: Sequence[Row], about: str | None, column: str | None) -> AttackSection:
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    by_metric = {metric: [row for row in rows if row["metric"] == metric] for metric in metrics}
    charts = [
        _chart(f"{anchor}-{index}", metric, of_metric, column)
        for index, (metric, of_metric) in enumerate(by_metric.items())
        if any(row["mean"] is not None for row in of_metric)
    ]
    verdicts = {row["verdict"] for row in rows}
    return AttackSection(
        anchor=anchor,
        attack=rows[0]["attack"],
        role=rows[0]["role"],
        role_words=words.role_words(rows[0]["role"]),
        oracle=any(row["oracle"] for row in rows),
        about=about,
        verdict=next(one for one in ("leaks", "inconclusive", "no leak found") if one in verdicts),
        charts=tuple(charts),
        measures=tuple(_measure(row) for of_metric in by_metric.values() for row in of_metric),
    )


def _chart(name: str, metric: str | None, rows: Sequence[Row], column: str | None) -> Chart:
    down = words.is_down(metric)
    title = f"{metric}: {words.metric_words(metric, column)}"
    drawing = metric_chart([chart_line(row) for row in rows], metric, name=name, title=title)
    subtitle = "axis runs backwards, smaller values leak more" if down else ""
    return Chart(title=title, subtitle=subtitle, drawing=drawing)


def chart_line(row: Row) -> Line:
    """A row of the summary as a line of a chart."""
    down = words.is_down(row["metric"])
    aware, floor, margin = words.aware_words(row), row["floor"], row["margin"]
    least = None if floor is None or margin is None else floor - margin if down else floor + margin
    return Line(
        label=f"{row['defence']} · {aware}" if aware else words.defence_words(row["defence"]),
        mean=row["mean"],
        low=row["mean_low"],
        high=row["mean_high"],
        floor=floor,
        least=least,
        ceiling=row["ceiling"],
        controls={name: one["mean"] for name, one in row["controls"].items() if one["mean"] is not None},
        verdict=row["verdict"],
    )


def _measure(row: Row) -> Measure:
    metric = row["metric"]
    return Measure(
        metric=metric or "–",
        defence=words.defence_words(row["defence"]),
        aware=words.aware_words(row),
        score=words.value(row["mean"], metric),
        score_spread=words.between(row["mean_low"], row["mean_high"], metric),
        floor=words.value(row["floor"], metric),
        over=words.floor_words(row["over"]),
        gain=words.value(row["difference"], metric, sign=True),
        gain_spread=words.between(row["low"], row["high"], metric, sign=True),
        controls=tuple(_control(name, one, metric) for name, one in row["controls"].items()),
        ceiling=None if row["ceiling"] is None else words.value(row["ceiling"], metric),
        kind=words.KINDS.get(row["kind"] or ""),
        units=row["n"],
        unit=row["unit"],
        worst=worst_words(row),
        verdict=row["verdict"],
        reason=reason_words(row),
    )


def _control(name: str, one: Row, metric: str | None) -> tuple[str, str, str]:
    difference = words.value(one["difference"], metric, sign=True)
    spread = words.between(one["low"], one["high"], metric, sign=True)
    return words.SHORT_CONTROLS.get(name, name), words.value(one["mean"], metric), f"{difference} ({spread})"


# --- Leakage against utility: every defence a point, of its strongest attacker, and the frontier that
# nothing beats.


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
