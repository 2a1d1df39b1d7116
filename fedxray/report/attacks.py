"""Results by attack and role: charts, tables, and leakage against utility, ready to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from fedxray.audit.judge.gate import UTILITY
from fedxray.metrics import units
from fedxray.metrics.table import base_metric
from fedxray.report import states, words
from fedxray.report.charts import ChartLine, Drawing, Point, metric_chart, scatter_chart
from fedxray.report.overview import secrets_of, worst_words
from fedxray.report.rows import (
    Row,
    attack_facts,
    gain_words,
    grouped,
    judged,
    plan_of,
    restorer_names,
    shown_rows,
    utilities,
)

RESTORED = (
    "Its images were then restored by {}: details beyond the raw reconstructions come from an image prior and may "
    "not be in the data."
)

RATE = "tpr_at_1pct_fpr"
FEW = "no true-positive rate: that at 1 % false positives takes 1,000 non-members of a client, at 0.1 % 10,000"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its heading."""

    title: str
    subtitle: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class AttackSection:
    """All results of one attack in one role."""

    anchor: str
    attack: str
    role: str
    role_words: str
    oracle: bool
    about: str | None
    state: str | None
    charts: tuple[Chart, ...]
    measures: tuple[dict[str, Any], ...]  # lines of the table


def attack_sections(document: Mapping[str, Any]) -> list[AttackSection]:
    """Return results by attack and role, in the order of the plan."""
    groups = grouped(shown_rows(document), lambda row: (row["attack"], row["role"]))
    columns, restorers = secrets_of(document), restorer_names(document)
    return [
        _section(
            f"attack-{index}", rows, _about(attack_facts(document, attack), restorers.get(attack)), columns.get(attack)
        )
        for index, ((attack, _), rows) in enumerate(groups.items())
    ]


def _about(facts: Mapping[str, Any], restorer: str | None) -> str | None:
    """Return the description of an attack, its package if it is not built in, and what restored its images."""
    about, source = facts.get("about"), facts.get("source", "built-in")
    if not about:
        return None
    origin = "" if source == "built-in" else f"{words.capital(source)}."
    restored = "" if restorer is None else RESTORED.format(restorer)
    return " ".join(part for part in (about, origin, restored) if part)


def _section(anchor: str, rows: Sequence[Row], about: str | None, column: str | None) -> AttackSection:
    ordered = sorted(rows, key=lambda row: not row["primary"])  # the metric that decides comes first
    metrics = list(dict.fromkeys(row["metric"] for row in ordered))
    by_metric = {metric: [row for row in rows if row["metric"] == metric] for metric in metrics}
    charts = [
        _chart(f"{anchor}-{index}", metric, of_metric, column, few=RATE not in metrics)
        for index, (metric, of_metric) in enumerate(by_metric.items())
        if any(row["mean"] is not None for row in of_metric)
    ]
    judged_states = [row["state"] for row in rows if row["primary"]]
    return AttackSection(
        anchor=anchor,
        attack=rows[0]["attack"],
        role=rows[0]["role"],
        role_words=words.role_words(rows[0]["role"]),
        oracle=any(row["oracle"] for row in rows),
        about=about,
        state=states.worst_state(judged_states) if judged_states else None,
        charts=tuple(charts),
        measures=tuple(_measure(row) for of_metric in by_metric.values() for row in of_metric),
    )


def _chart(name: str, metric: str | None, rows: Sequence[Row], column: str | None, *, few: bool) -> Chart:
    down = units.is_down(metric)
    title = f"{metric}: {words.metric_words(metric, column)}"
    drawing = metric_chart([chart_line(row) for row in rows], metric, name=name, title=title)
    subtitle = "reversed axis: smaller values mean more leakage" if down else FEW if few and metric == "auc" else ""
    return Chart(title=title, subtitle=subtitle, drawing=drawing)


def chart_line(row: Row) -> ChartLine:
    """Return a row of the summary as a line of a chart."""
    down = units.is_down(row["metric"])
    aware, floor, margin = words.aware_words(row), row["floor"], row["margin"]
    least = None if floor is None or margin is None else floor - margin if down else floor + margin
    return ChartLine(
        label=f"{row['defence']} · {aware}" if aware else words.defence_words(row["defence"]),
        mean=row["mean"],
        low=row["mean_low"],
        high=row["mean_high"],
        floor=floor,
        least=least,
        ceiling=row["ceiling"],
        controls={name: control["mean"] for name, control in row["controls"].items() if control["mean"] is not None},
        state=row["state"] if row["primary"] else None,
    )


def _measure(row: Row) -> dict[str, Any]:
    """Return one line of a table of results."""
    metric = row["metric"]
    return {
        "metric": metric or "–",
        "defence": words.defence_words(row["defence"]),
        "aware": words.aware_words(row),
        "score": units.value(row["mean"], metric),
        "score_spread": units.between(row["mean_low"], row["mean_high"], metric),
        "floor": units.value(row["floor"], metric),
        "over": words.floor_words(row["over"], row["public"]),
        "gain": units.value(row["difference"], metric, sign=True),
        "gain_spread": units.between(row["low"], row["high"], metric, sign=True, floor=row["floor"]),
        # name, mean, gain over it with interval
        "controls": [_control(name, control, metric) for name, control in row["controls"].items()],
        "ceiling": None if row["ceiling"] is None else units.value(row["ceiling"], metric),
        "level": f"{words.level(row)}-level" if row["kind"] else None,
        "size": words.count(row["n"], row["unit"]),  # number of client-runs, or of records in a recording
        "worst": worst_words(row),
        "state": row["state"] if row["primary"] else None,
        "reason": states.reason(row),
    }


def _control(name: str, control: Row, metric: str | None) -> tuple[str, str, str]:
    gain = gain_words(control, metric, control["mean"])
    return words.SHORT_CONTROLS.get(name, name), units.value(control["mean"], metric), gain


# Leakage against utility: every defence a point, of its strongest attacker, and the Pareto frontier

MOST_POINTS = len(ascii_uppercase)


@dataclass(frozen=True, kw_only=True)
class Tradeoff:
    """One attack in one role: its scatter chart, and the same as a table."""

    title: str
    measure: str  # of utility, and whether more or less is better
    drawing: Drawing
    lines: tuple[dict[str, Any], ...]  # one defence each
    more: int  # defences beyond those shown


def tradeoffs(document: Mapping[str, Any]) -> list[Tradeoff]:
    """Return a chart for every attack and role with two defences or more, by the attack's primary metric."""
    rows = [row for row in judged(document) if row["difference"] is not None]
    groups = grouped(rows, lambda row: (plan_of(row), row["attack"], row["role"]))
    charts = [
        _tradeoff(f"tradeoff-{index}", rows, utilities(document, plan))
        for index, ((plan, _, _), rows) in enumerate(groups.items())
    ]
    return [chart for chart in charts if chart is not None]


def _tradeoff(name: str, rows: Sequence[Row], utilities: Mapping[str, Row]) -> Tradeoff | None:
    strongest: dict[str, Row] = {}
    for row in rows:
        known = strongest.get(row["defence"])
        if row["defence"] in utilities and (known is None or row["difference"] > known["difference"]):
            strongest[row["defence"]] = row
    if len(strongest) < 2:
        return None
    shown = list(strongest)[:MOST_POINTS]
    metric = utilities[shown[0]]["metric"]
    sign = -1.0 if UTILITY[metric] else 1.0  # so that more is better
    on_frontier = frontier(
        [(sign * utilities[label]["value"], -float(strongest[label]["difference"])) for label in shown]
    )
    points = [
        _point(mark, strongest[label], utilities[label], best)
        for mark, label, best in zip(ascii_uppercase, shown, on_frontier, strict=False)
    ]
    title = f"{rows[0]['attack']} run by {words.role_words(rows[0]['role'])}"
    percent = metric in units.SHARES, base_metric(rows[0]["metric"] or "") in units.SHARES
    drawing = scatter_chart(
        points,
        name=name,
        title=f"{title}: gain over the floor against {metric}",
        across=f"{metric} on held-out records {'(reversed axis)' if UTILITY[metric] else ''}".strip(),
        up="gain over the floor" + (" (points)" if percent[1] else ""),
        percent=percent,
        reverse=UTILITY[metric],
    )
    lines = tuple(_line(point, strongest[label], utilities[label]) for point, label in zip(points, shown, strict=True))
    title = f"{title}: {rows[0]['metric']}, gain over the floor"
    measure = f"{metric}, {'less' if UTILITY[metric] else 'more'} is better"
    return Tradeoff(title=title, measure=measure, drawing=drawing, lines=lines, more=len(strongest) - len(shown))


def frontier(values: Sequence[tuple[float, ...]]) -> list[bool]:
    """Return which points are Pareto-optimal: no other is as good in everything and better in something."""
    return [
        not any(
            all(theirs >= ours for theirs, ours in zip(rival, point, strict=True)) and rival != point
            for rival in values
        )
        for point in values
    ]


def _point(mark: str, row: Row, utility: Row, best: bool) -> Point:
    budget = "" if utility["epsilon"] is None else f" ε {utility['epsilon']:.3g}"
    return Point(
        mark=f"{mark}{budget}",
        label=words.defence_words(row["defence"]),
        across=(utility["value"], not_negative(utility["low"]), utility["high"]),
        up=(row["difference"], row["low"], row["high"]),
        state=row["state"],
        frontier=best,
    )


def not_negative(number: float | None) -> float | None:
    """Return the end of an interval cut at zero: no loss, error or share is below."""
    return None if number is None else max(number, 0.0)


def _line(point: Point, row: Row, utility: Row) -> dict[str, Any]:
    """Return one defence in the table beside a scatter chart."""
    amount = units.value(utility["value"], utility["metric"])
    range_of = units.between(not_negative(utility["low"]), utility["high"], utility["metric"])
    return {
        "mark": point.mark[0],
        "defence": point.label,
        "aware": words.aware_words(row),
        "utility": f"{amount} ({range_of})",
        "gain": gain_words(row, row["metric"], row["floor"]),
        "epsilon": None if utility["epsilon"] is None else f"{utility['epsilon']:.3g}",
        "frontier": point.frontier,
    }
