"""Results by attack and seat: charts and tables, ready to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.report import words
from fedxray.report.catalogue import attack_words
from fedxray.report.charts import Line, metric_chart
from fedxray.report.drawing import Drawing
from fedxray.report.findings import worst_words
from fedxray.report.plans import attack_names, restorer_names
from fedxray.report.reasons import reason_words
from fedxray.report.rows import Row, shown_rows
from fedxray.report.stakes import secrets_of

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
    names, columns = attack_names(document), secrets_of(document)
    by = restorer_names(document)
    return [
        _section(
            f"attack-{index}", rows, _about(names.get(attack, attack), by.get(attack)), columns.get(attack)
        )
        for index, ((attack, _), rows) in enumerate(groups.items())
    ]


def _about(attack: str, restorer: str | None) -> str | None:
    """What an attack says of itself, and what was done to its images afterwards."""
    found = attack_words(attack)
    return found if restorer is None or found is None else f"{found} {RESTORED.format(restorer)}"


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
