"""Leakage broken down by client, class, record and round: positions and scores, never contents; and power checks."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.metrics import units
from fedxray.report import words
from fedxray.report.attacks import chart_line
from fedxray.report.charts import Drawing, client_chart, metric_chart
from fedxray.report.rows import EITHER, UNUSED, Row, gain_words, grouped, judged, plan_of
from fedxray.report.states import severity

MOST_LEAKS = 6
MOST_LINES = 12
MOST_RECORDS = 10

Case = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BreakdownLine:
    """One line of a breakdown: score, floor, gain and sample size of a client, class or choice of rounds."""

    name: str
    score: str
    floor: str
    gain: str
    sample: str


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """One leak by client, class and record."""

    title: str
    metric: str
    drawing: Drawing | None
    clients: tuple[BreakdownLine, ...]
    more_clients: str  # how many are not listed, and how the gains of all are distributed
    classes: tuple[BreakdownLine, ...]
    more_classes: int
    records: tuple[tuple[str, str, str], ...]  # position, score, the attacker's certainty


@dataclass(frozen=True, kw_only=True)
class RoundsBreakdown:
    """One attack that was run on several choices of rounds."""

    title: str
    drawing: Drawing | None
    lines: tuple[BreakdownLine, ...]


NOUNS = ("record", "person")  # what a score is about, with its number


def breakdowns(document: Mapping[str, Any]) -> list[Breakdown]:
    """Return the strongest leaks, each with its most exposed clients, classes and records."""
    leaks = sorted((row for row in judged(document) if row["state"] == "leaks"), key=severity)
    return [_breakdown(document, row, f"clients-{index}") for index, row in enumerate(leaks[:MOST_LEAKS])]


def _breakdown(document: Mapping[str, Any], row: Row, name: str) -> Breakdown:
    cases = [case for case in document["cases"] if _belongs(case, row)]
    runs, classes = _runs_by_client(cases, row), _by_class(cases, row)
    aware = words.aware_words(row)
    against = words.defence_words(row["defence"]) + (f", {aware}" if aware else "")
    title = f"{row['attack']}, run by {words.role_words(row['role'])}, {against}"
    return Breakdown(
        title=title,
        metric=row["metric"],
        drawing=client_chart(cases, row, name=name, title=f"{title}: {row['metric']} by client"),
        clients=tuple(_line(client, pairs, row, "run") for client, pairs in list(runs.items())[:MOST_LINES]),
        more_clients=_distribution([_gain(pairs, row) for pairs in runs.values()], row),
        classes=tuple(classes[:MOST_LINES]),
        more_classes=max(0, len(classes) - MOST_LINES),
        records=tuple(_records(cases, row)),
    )


def _belongs(case: Case, row: Row) -> bool:
    same = all(case[name] == row[name] for name in ("attack", "role", "defence"))
    aware = case["aware"] is (False if row["aware"] in (EITHER, UNUSED) else row["aware"])  # twins are equal
    return same and aware and plan_of(case) == plan_of(row)


def _runs_by_client(cases: Sequence[Case], row: Row) -> dict[str, list[tuple[float, float]]]:
    """Return score and floor of every run by client, the client with the largest gain first."""
    scores: dict[Any, list[tuple[float, float]]] = {}  # score and floor of every run
    names = {}
    for case in cases:
        value = _number(case["scores"].get(row["metric"]))
        floor = _number((case["floors"].get(row["over"]) or {}).get(row["metric"]))
        if value is not None and floor is not None:
            scores.setdefault(case["client"], []).append((value, floor))
            names[case["client"]] = (case["ledger"] or {}).get("target_name")
    ordered = sorted(scores.items(), key=lambda item: -_gain(item[1], row))
    return {f"client {client}" + (f" ({names[client]})" if names[client] else ""): pairs for client, pairs in ordered}


def _distribution(gains: Sequence[float], row: Row) -> str:
    """Return how many clients are not listed, and quantiles of the gains of all; empty where all are listed."""
    if len(gains) <= MOST_LINES:
        return ""
    tenths, metric = statistics.quantiles(gains, n=10, method="inclusive"), row["metric"]
    middle, most = units.value(tenths[4], metric, sign=True), units.between(tenths[0], tenths[8], metric, sign=True)
    more = words.count(len(gains) - MOST_LINES, "more client")
    return f"{more} with smaller gains. Gain of all {len(gains):,}: median {middle}, 80 % of them {most}."


def _by_class(cases: Sequence[Case], row: Row) -> list[BreakdownLine]:
    """Return classes by their gain, the largest first; records of all clients and runs together."""
    scores: dict[str, list[tuple[float, float, int]]] = {}  # score, floor and records of every case
    for case in cases:
        for name, group in ((case.get("by_class") or {}).get(row["metric"]) or {}).items():
            floor = _number(group["floors"].get(row["over"]))
            if group["mean"] is not None and floor is not None:
                scores.setdefault(name, []).append((group["mean"], floor, group["n"]))
    lines = []
    for name, groups in scores.items():
        records = sum(n for _, _, n in groups)
        mean, floor = (math.fsum(group[index] * group[2] for group in groups) / records for index in (0, 1))
        line = replace(_line(name, [(mean, floor)], row, "record"), sample=words.count(records, "record"))
        lines.append((_gain([(mean, floor)], row), line))
    return [line for _, line in sorted(lines, key=lambda item: -item[0])]


def _records(cases: Sequence[Case], row: Row) -> list[tuple[str, str, str]]:
    """Return the most exposed records of all clients and runs, by position and score."""
    sign = 1.0 if units.is_down(row["metric"]) else -1.0
    listed = [
        (sign * record["value"], -(record.get("sure") or 0.0), case["seed"], case["client"], record)
        for case in cases
        for record in (case.get("exposed") or {}).get(row["metric"]) or ()
        if record["value"] is not None
    ]
    listed.sort(key=lambda item: item[:4])
    return [
        (
            f"client {client}, seed {seed}, " + " ".join(f"{noun} {record[noun]}" for noun in NOUNS if noun in record),
            units.value(record["value"], row["metric"]),
            "" if record.get("sure") is None else units.short(record["sure"]),
        )
        for _, _, seed, client, record in listed[:MOST_RECORDS]
    ]


def by_round(document: Mapping[str, Any]) -> list[RoundsBreakdown]:
    """Return attacks that occur several times in a plan and differ only in the rounds that they read."""
    tables = []
    for name, plan in plans_of(document).items():
        groups: dict[str, list[str]] = {}
        for part in parts(plan, "attack"):
            settings = {key: value for key, value in part.items() if key not in ("label", "rounds")}
            groups.setdefault(json.dumps(settings, sort_keys=True), []).append(label_of(part))
        for labels in groups.values():
            if len(labels) > 1:
                tables += _rounds(document, name, labels)
    return tables


def _rounds(document: Mapping[str, Any], plan: str | None, labels: Sequence[str]) -> list[RoundsBreakdown]:
    rows = [row for row in judged(document) if row["attack"] in labels and plan_of(row) == plan]
    seen: dict[str, list[int]] = {}
    for case in document["cases"]:
        if case["attack"] in labels and case["ledger"]:
            seen.setdefault(case["attack"], case["ledger"].get("rounds_seen") or [])
    groups = grouped(rows, lambda row: (row["defence"], words.aware_words(row)))
    return [_of_group(rows[0]["metric"], defence, aware, group, seen) for (defence, aware), group in groups.items()]


def _of_group(
    metric: str, defence: str, aware: str, rows: Sequence[Row], seen: Mapping[str, list[int]]
) -> RoundsBreakdown:
    """Return one defence, with every choice of rounds as a line of a table and of a chart."""
    title = ", ".join(text for text in (f"{metric} by round", words.defence_words(defence), aware) if text)
    ordered = sorted(rows, key=lambda row: seen.get(row["attack"], []))
    named = {row["attack"]: f"rounds {words.ranges(seen.get(row['attack'], []))}" for row in ordered}
    drawn = [replace(chart_line(row), label=f"{named[row['attack']]}: {row['attack']}") for row in ordered]
    name = "rounds-" + hashlib.sha256(title.encode()).hexdigest()[:8]
    drawing = metric_chart(drawn, metric, name=name, title=title)
    return RoundsBreakdown(
        title=title,
        drawing=drawing if any(line.mean is not None for line in drawn) else None,
        lines=tuple(_of_row(row, named[row["attack"]]) for row in ordered),
    )


def power_lines(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the attacks reach on planted leaks, ready to print."""
    return [
        {
            "attack": row["attack"],
            "defence": words.defence_words(row.get("defence", "none")),
            "aware": words.aware_words({"aware": None, **row}),
            "metric": row["metric"] or "–",
            "score": units.value(row["mean"], row["metric"]),
            "floor": units.value(row["floor"], row["metric"]),
            "gain": units.value(row["difference"], row["metric"], sign=True),
            "spread": units.between(row["low"], row["high"], row["metric"], sign=True, floor=row["floor"]),
            "passed": row["passed"],
            "reason": row["reason"],
        }
        for row in document.get("power") or ()
    ]


def _of_row(row: Row, rounds: str) -> BreakdownLine:
    metric = row["metric"]
    return BreakdownLine(
        name=f"{row['attack']}: {rounds}",
        score=units.value(row["mean"], metric),
        floor=units.value(row["floor"], metric),
        gain=gain_words(row, metric, row["floor"]),
        sample=words.count(row["n"], row["unit"]),
    )


def _line(name: str, pairs: Sequence[tuple[float, float]], row: Row, noun: str) -> BreakdownLine:
    metric = row["metric"]
    return BreakdownLine(
        name=name,
        score=units.value(_mean([value for value, _ in pairs]), metric),
        floor=units.value(_mean([floor for _, floor in pairs]), metric),
        gain=units.value(_gain(pairs, row), metric, sign=True),
        sample=words.count(len(pairs), noun),
    )


def _gain(pairs: Sequence[tuple[float, float]], row: Row) -> float:
    sign = -1.0 if units.is_down(row["metric"]) else 1.0
    return sign * _mean([value - floor for value, floor in pairs])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
