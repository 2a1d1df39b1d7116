"""Where and why our numbers differ from the published ones, in sentences made from the numbers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.report import words
from fedxray.reproduce.base import NO_TABLE, NOT_IN_TEXT, Reproduction


def sentences(made: Reproduction, found: Mapping[str, Any]) -> list[str]:
    """What the numbers say, what became of the paper's findings, and the known reasons of our setting."""
    said = [*_numbers(found["rows"]), *_findings(found["differences"])]
    if not made.paper.numbers:
        none = made.paper.place == NO_TABLE
        missing = (
            "The paper has no such table"
            if none
            else f"The paper's numbers are {NOT_IN_TEXT} ({made.paper.place})"
        )
        said.insert(0, f"{missing}; it says: {made.paper.trend}." if made.paper.trend else f"{missing}.")
    statuses = {(row["row"], row["column"]): row["statuses"] for row in found["rows"]}
    lost = sum(count for one in statuses.values() for status, count in one.items() if status != "ok")
    if lost:
        said.append(f"{words.count(lost, 'case')} did not end well.")
    reasons = [made.why.rstrip(".")] if made.why else []
    reasons += _fewer_clients(found)
    reasons += (
        ["the small scale: fewer steps, rounds or clients than the paper's"]
        if found["scale"] == "small"
        else []
    )
    if reasons:
        said.append(f"Known reasons for differences: {'; '.join(reasons)}.")
    return said


def _numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many of our intervals lie around the published numbers, and the widest gap of each metric."""
    said = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        both = [r for r in rows if r["metric"] == metric and r["paper"] and r["ours"]["mean"] is not None]
        if not both:
            continue
        gaps = [row["ours"]["mean"] - row["paper"]["mean"] for row in both]
        widest = max(range(len(both)), key=lambda place: abs(gaps[place]))
        row = both[widest]
        mean = words.value(sum(gaps) / len(gaps), metric, sign=True)
        around = sum(one["place"] == "around" for one in both)
        of = words.count(len(both), "number")
        said.append(
            f"{metric}: {around} of {of} have the paper's inside our interval; ours minus the paper's is {mean} on "
            f"average and widest for {row['column']} in {row['row']} "
            f"({words.value(row['ours']['mean'], metric)} against {words.value(row['paper']['mean'], metric)})."
        )
    return said


def _findings(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """What became of the paper's findings about two columns."""
    said = []
    for verdict, words_of in (
        ("holds", "The paper's order holds"),
        ("reversed", "The paper's order is reversed"),
        ("undecided", "The paper's order is not decided by our intervals"),
    ):
        named = _grouped([one for one in differences if one["verdict"] == verdict])
        if named:
            said.append(f"{words_of} for {'; '.join(named)}.")
    return said


def _grouped(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """One phrase for each pair of columns and metric, with all the rows in which they were compared."""
    places: dict[str, list[str]] = {}
    for one in differences:
        first, second = one["rows"]
        place = first if first == second else f"{first} against {second}"
        places.setdefault(f"{one['left']} against {one['right']} ({one['metric']})", []).append(place)
    return [f"{pair} in {words.listed(rows)}" for pair, rows in places.items()]


def _fewer_clients(found: Mapping[str, Any]) -> list[str]:
    theirs = found["paper"]["clients"]
    counts = sorted({row["ours"]["clients"] for row in found["rows"] if row["ours"]["n"]})
    if theirs is None or not counts or counts == [theirs]:
        return []
    ours = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [f"{ours} {'client' if ours == '1' else 'clients'} in place of {theirs}"]
