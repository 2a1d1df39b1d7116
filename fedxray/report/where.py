"""Where it leaks: by client, by round, by class and by record; places and scores, never contents."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.report import words
from fedxray.report.attacks import chart_line
from fedxray.report.charts import Drawing, client_chart, metric_chart
from fedxray.report.overview import counted, strength
from fedxray.report.rows import EITHER, Row, plan_of

MOST_PLACES = 6  # attacks that are taken apart
MOST_LINES = 12
MOST_RECORDS = 10

Case = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: what, its score, the guess without messages, the gain, and how much it rests on."""

    name: str
    score: str
    floor: str
    gain: str
    rests_on: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """One leak taken apart."""

    title: str
    metric: str
    drawing: Drawing | None
    clients: tuple[Line, ...]
    more_clients: int
    classes: tuple[Line, ...]
    more_classes: int
    records: tuple[tuple[str, str, str], ...]  # place, score, how sure


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """One attack that was run on several choices of rounds."""

    title: str
    drawing: Drawing | None
    lines: tuple[Line, ...]


def leaking_places(document: Mapping[str, Any]) -> list[Place]:
    """The strongest leaks, each with the clients, classes and records that are exposed most."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in counted(document):
        if row["verdict"] == "leaks" and row["metric"] is not None:
            key = (plan_of(row), row["attack"], row["role"], row["defence"], row["aware"])
            groups.setdefault(key, []).append(row)
    ordered = sorted(groups.values(), key=lambda rows: -max(strength(row) for row in rows))
    return [_place(document, rows[0], f"clients-{index}") for index, rows in enumerate(ordered[:MOST_PLACES])]


def _place(document: Mapping[str, Any], row: Row, name: str) -> Place:
    cases = [case for case in document["cases"] if _belongs(case, row)]
    clients, classes = _by_client(cases, row), _by_class(cases, row)
    aware = words.aware_words(row)
    against = words.defence_words(row["defence"]) + (f", {aware}" if aware else "")
    title = f"{row['attack']}, run by {words.role_words(row['role'])}, {against}"
    return Place(
        title=title,
        metric=row["metric"],
        drawing=client_chart(cases, row, name=name, title=f"{title}: {row['metric']} by client"),
        clients=tuple(clients[:MOST_LINES]),
        more_clients=max(0, len(clients) - MOST_LINES),
        classes=tuple(classes[:MOST_LINES]),
        more_classes=max(0, len(classes) - MOST_LINES),
        records=tuple(_records(cases, row)),
    )


def _belongs(case: Case, row: Row) -> bool:
    same = all(case[name] == row[name] for name in ("attack", "role", "defence"))
    aware = case["aware"] is (False if row["aware"] == EITHER else row["aware"])  # twins are equal
    return same and aware and plan_of(case) == plan_of(row)


def _by_client(cases: Sequence[Case], row: Row) -> list[Line]:
    """Clients by their gain, the largest first."""
    units: dict[Any, list[tuple[float, float]]] = {}
    names = {}
    for case in cases:
        value = _number(case["scores"].get(row["metric"]))
        floor = _number((case["floors"].get(row["over"]) or {}).get(row["metric"]))
        if value is not None and floor is not None:
            units.setdefault(case["client"], []).append((value, floor))
            names[case["client"]] = (case["ledger"] or {}).get("target_name")
    found = [
        (
            _line(f"client {client}" + (f" ({names[client]})" if names[client] else ""), pairs, row, "run"),
            pairs,
        )
        for client, pairs in units.items()
    ]
    return [line for line, pairs in sorted(found, key=lambda one: -_gain(one[1], row))]


def _by_class(cases: Sequence[Case], row: Row) -> list[Line]:
    """Classes by their gain, the largest first; records of all clients and runs together."""
    units: dict[str, list[tuple[float, float, int]]] = {}
    for case in cases:
        for name, told in ((case.get("by_class") or {}).get(row["metric"]) or {}).items():
            floor = _number(told["floors"].get(row["over"]))
            if told["mean"] is not None and floor is not None:
                units.setdefault(name, []).append((told["mean"], floor, told["n"]))
    found = []
    for name, parts_of in units.items():
        records = sum(n for _, _, n in parts_of)
        mean, floor = (math.fsum(part[place] * part[2] for part in parts_of) / records for place in (0, 1))
        line = replace(_line(name, [(mean, floor)], row, "record"), rests_on=words.count(records, "record"))
        found.append((_gain([(mean, floor)], row), line))
    return [line for _, line in sorted(found, key=lambda one: -one[0])]


def _records(cases: Sequence[Case], row: Row) -> list[tuple[str, str, str]]:
    """The most exposed records of all clients and runs, by place and score."""
    sign = 1.0 if words.is_down(row["metric"]) else -1.0
    listed = [
        (sign * one["value"], -(one.get("sure") or 0.0), case["seed"], case["client"], one)
        for case in cases
        for one in (case.get("exposed") or {}).get(row["metric"]) or ()
        if one["value"] is not None
    ]
    listed.sort(key=lambda one: one[:4])
    return [
        (
            f"client {client}, seed {seed}, record {one['record']}",
            words.value(one["value"], row["metric"]),
            "" if one.get("sure") is None else words.short(one["sure"]),
        )
        for _, _, seed, client, one in listed[:MOST_RECORDS]
    ]


def by_round(document: Mapping[str, Any]) -> list[Rounds]:
    """Attacks that stand several times in a plan and differ in the rounds that they read alone."""
    found = []
    for name, plan in plans_of(document).items():
        groups: dict[str, list[str]] = {}
        for part in parts(plan, "attack"):
            settings = {key: value for key, value in part.items() if key not in ("label", "rounds")}
            groups.setdefault(json.dumps(settings, sort_keys=True), []).append(label_of(part))
        for labels in groups.values():
            if len(labels) > 1:
                found += _rounds(document, name, labels)
    return found


def _rounds(document: Mapping[str, Any], plan: str | None, labels: Sequence[str]) -> list[Rounds]:
    rows = [row for row in counted(document) if row["attack"] in labels and plan_of(row) == plan]
    seen: dict[str, list[int]] = {}
    for case in document["cases"]:
        if case["attack"] in labels and case["ledger"]:
            seen.setdefault(case["attack"], case["ledger"].get("rounds_seen") or [])
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["metric"] == rows[0]["metric"]:
            groups.setdefault((row["defence"], words.aware_words(row)), []).append(row)
    return [
        _of_group(rows[0]["metric"], defence, aware, group, seen)
        for (defence, aware), group in groups.items()
    ]


def _of_group(
    metric: str, defence: str, aware: str, rows: Sequence[Row], seen: Mapping[str, list[int]]
) -> Rounds:
    """One defence: every choice of rounds as a line of a table and of a chart."""
    title = ", ".join(text for text in (f"{metric} by round", words.defence_words(defence), aware) if text)
    ordered = sorted(rows, key=lambda row: seen.get(row["attack"], []))
    named = {row["attack"]: f"rounds {words.ranges(seen.get(row['attack'], []))}" for row in ordered}
    drawn = [replace(chart_line(row), label=f"{named[row['attack']]}: {row['attack']}") for row in ordered]
    name = "rounds-" + hashlib.sha256(title.encode()).hexdigest()[:8]
    drawing = metric_chart(drawn, metric, name=name, title=title)
    return Rounds(
        title=title,
        drawing=drawing if any(line.mean is not None for line in drawn) else None,
        lines=tuple(_of_row(row, named[row["attack"]]) for row in ordered),
    )


def power_lines(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the attacks reached where a leak was planted, ready to print."""
    return [
        {
            "attack": row["attack"],
            "metric": row["metric"] or "–",
            "score": words.value(row["mean"], row["metric"]),
            "floor": words.value(row["floor"], row["metric"]),
            "gain": words.value(row["difference"], row["metric"], sign=True),
            "spread": words.between(row["low"], row["high"], row["metric"], sign=True),
            "passed": row["passed"],
            "reason": row["reason"],
        }
        for row in document.get("power") or ()
    ]


def _of_row(row: Row, rounds: str) -> Line:
    metric = row["metric"]
    return Line(
        name=f"{row['attack']}: {rounds}",
        score=words.value(row["mean"], metric),
        floor=words.value(row["floor"], metric),
        gain=f"{words.value(row['difference'], metric, sign=True)} "
        f"({words.between(row['low'], row['high'], metric, sign=True)})",
        rests_on=words.count(row["n"], row["unit"]),
    )


def _line(name: str, pairs: Sequence[tuple[float, float]], row: Row, noun: str) -> Line:
    metric = row["metric"]
    return Line(
        name=name,
        score=words.value(_mean([value for value, _ in pairs]), metric),
        floor=words.value(_mean([floor for _, floor in pairs]), metric),
        gain=words.value(_gain(pairs, row), metric, sign=True),
        rests_on=words.count(len(pairs), noun),
    )


def _gain(pairs: Sequence[tuple[float, float]], row: Row) -> float:
    sign = -1.0 if words.is_down(row["metric"]) else 1.0
    return sign * _mean([value - floor for value, floor in pairs])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
