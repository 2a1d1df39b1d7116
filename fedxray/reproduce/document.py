"""The document reproduction.json: our numbers beside the published ones, and paired differences."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fedxray.audit.judge.results import misfit, nearly_as_good, plain
from fedxray.audit.judge.statistics import Interval, interval
from fedxray.audit.judge.summary import ENDED
from fedxray.errors import BadInput
from fedxray.files import read_json, write_whole
from fedxray.report import words
from fedxray.reproduce.base import (
    NO_TABLE,
    NOT_IN_TEXT,
    Column,
    Difference,
    Measured,
    Number,
    Reproduction,
    Unit,
)

# --- From results to cells: every unit of a row and column, with its floors and controls.


# What an attack tells of its seat's own records: no score, since they were no secret to it.
TOLD = frozenset({"own_psnr"})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Our side of one number of the table, and the published one."""

    row: str
    column: Column
    units: tuple[Unit, ...]
    paper: Number | None
    summary: Mapping[str, Any] = field(default_factory=dict)  # of the audit: floors and controls
    statuses: Mapping[str, int] = field(default_factory=dict)
    controls_left_out: tuple[str, ...] = ()
    data: str | None = None  # the data set
    floors: Mapping[str, Mapping[tuple[int, int | None], float]] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def values(self) -> dict[tuple[int, int | None], float]:
        """Values by seed and client, for pairing."""
        return {(unit.seed, unit.client): unit.value for unit in self.units}


def cells_of_audit(made: Reproduction, row: str, document: Mapping[str, Any]) -> list[Cell]:
    """The cells of a row whose attack is in the results of its audit."""
    labels = {case["attack"] for case in document["cases"]}
    return [_cell(made, row, column, document) for column in made.columns if column.attack in labels]


def _cell(made: Reproduction, row: str, column: Column, document: Mapping[str, Any]) -> Cell:
    cases = [case for case in document["cases"] if belongs(case, column)]
    rows = [one for one in document["summary"] if belongs(one, column) and one["metric"] == column.metric]
    left_out = [name for case in cases for name in case["ledger"].get("controls_left_out", ())]
    return Cell(
        row=row,
        column=column,
        units=tuple(_units(cases, column.metric)),
        paper=made.number(row, column),
        summary=rows[0] if rows else {},
        statuses=Counter(case["status"] for case in cases),
        controls_left_out=tuple(dict.fromkeys(left_out)),
        data=document["plan"]["data"].get("name"),
        floors=_floors(cases, column.metric),
        seconds=math.fsum(case["seconds"] or 0.0 for case in cases),
    )


def costs_of_audit(row: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How useful the models of a row are under every defence; nothing where there is only one."""
    found = [
        {
            "row": row,
            **{key: one[key] for key in ("defence", "metric", "value", "low", "high", "n", "epsilon")},
        }
        for one in document["utility"]
    ]
    return found if len({one["defence"] for one in found}) > 1 else []


def belongs(entry: Mapping[str, Any], column: Column) -> bool:
    """Whether a case or a line of a summary is of this column."""
    return (entry["attack"], entry["defence"], entry["aware"]) == (
        column.attack,
        column.defence,
        column.aware,
    )


def _units(cases: Sequence[Mapping[str, Any]], metric: str) -> list[Unit]:
    """The cases that ended with a finite value, as a summary counts them."""
    found = []
    for case in cases:
        value = (case["ledger"] if metric in TOLD else case["scores"]).get(metric)
        if case["status"] in ENDED and value is not None and math.isfinite(value):
            found.append(Unit(seed=case["seed"], client=case["client"], value=float(value)))
    return found


def _floors(
    cases: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, dict[tuple[int, int | None], float]]:
    """Every floor with its value for each seed and client."""
    found: dict[str, dict[tuple[int, int | None], float]] = {}
    for case in cases:
        for name, scores in case["floors"].items():
            if scores.get(metric) is not None:
                found.setdefault(name, {})[case["seed"], case["client"]] = float(scores[metric])
    return found


def cells_of_measured(made: Reproduction, row: str, measured: Sequence[Measured]) -> list[Cell]:
    """The cells of a row that was measured without an audit."""
    found = []
    for one in measured:
        column = next(c for c in made.columns if (c.name, c.metric) == (one.column, one.metric))
        places = [(unit.seed, unit.client) for unit in one.units]
        floors = {name: dict.fromkeys(places, value) for name, value in one.floors.items()}
        found.append(
            Cell(row=row, column=column, units=one.units, paper=made.number(row, column), floors=floors)
        )
    return found


# --- What searches of a row found: the settings of lowest own loss, how far they are from the truth, and
# how sure.
#
# A loss may be low along a ridge, where two settings make up for each other. So beside what was chosen
# stands what the trials span that were nearly as good.


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


# --- Where and why our numbers differ from the published ones, in sentences made from the numbers
# themselves.


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


FORMAT = 1
NAME = "reproduction.json"
AGAIN = "Run the reproduction again."
ROUNDING = 1e-9


def document(
    made: Reproduction,
    scale: str,
    cells: Sequence[Cell],
    past: Mapping[str, Any],
    costs: Sequence[Mapping[str, Any]] = (),
    searches: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Everything that was found, in plain values; `past` says how: command, commit and seconds."""
    found = {
        "name": made.name,
        "shows": made.shows,
        "paper": {
            "title": made.paper.title,
            "place": made.paper.place,
            "clients": made.paper.clients,
            "trend": made.paper.trend or None,
            "numbers": bool(made.paper.numbers),
        },
        "scale": scale,
        "command": past["command"],
        "version": version("fedxray"),
        "commit": past["commit"],
        "rows": [_row(cell) for cell in cells],
        "differences": differences(made, cells),
        **({"costs": list(costs)} if costs else {}),
        **({"searches": list(searches)} if searches else {}),
        "seconds": round(past["seconds"], 1),
    }
    whole = {"format": FORMAT, **{key: plain(value, key) for key, value in found.items()}}
    whole["sentences"] = sentences(made, whole)
    validate(whole)
    return whole


def _row(cell: Cell) -> dict[str, Any]:
    """One number of ours and its published one, with floors and controls."""
    ours = _ours(cell)
    summary = cell.summary
    return {
        "row": cell.row,
        "data": cell.data,
        "column": cell.column.name,
        "called": cell.column.called or None,
        "metric": cell.column.metric,
        "defence": cell.column.defence,
        "ours": ours,
        "paper": _published(cell.paper),
        "place": _place(ours, cell.paper),
        "over": summary.get("over"),
        "floors": {name: _over(cell, floor) for name, floor in cell.floors.items()},
        "controls": dict(summary.get("controls", {})),
        "controls_left_out": list(cell.controls_left_out),
        "statuses": dict(cell.statuses),
        "units": [{"seed": one.seed, "client": one.client, "value": one.value} for one in cell.units],
        "seconds": None if cell.seconds is None else round(cell.seconds, 1),
    }


def _ours(cell: Cell) -> dict[str, Any]:
    found = _interval(cell.values)
    return {
        "mean": None if found is None else found.mean,
        "low": None if found is None else found.low,
        "high": None if found is None else found.high,
        "n": len(cell.units),
        "clients": len({unit.client for unit in cell.units}),
        "seeds": len({unit.seed for unit in cell.units}),
    }


def _over(cell: Cell, floor: Mapping[tuple[int, int | None], float]) -> dict[str, float | None]:
    """A floor's mean, and how far ours is above it unit by unit."""
    both = {key: value - floor[key] for key, value in cell.values.items() if key in floor}
    above = _interval(both)
    mean = math.fsum(floor.values()) / len(floor)
    if above is None:
        return {"mean": mean, "difference": None, "low": None, "high": None}
    return {"mean": mean, "difference": above.mean, "low": above.low, "high": above.high}


def _interval(values: Mapping[tuple[int, int | None], float]) -> Interval | None:
    return interval(list(values.values()), [seed for seed, _ in values]) if values else None


def _published(number: Number | None) -> dict[str, float | None] | None:
    if number is None:
        return None
    mean, spread = number if isinstance(number, tuple) else (number, None)
    return {"mean": mean, "spread": spread}


def _place(ours: Mapping[str, Any], number: Number | None) -> str | None:
    """Where our interval lies: around the published number, below it or above it."""
    if number is None or ours["low"] is None:
        return None
    mean = number[0] if isinstance(number, tuple) else number
    return "around" if ours["low"] <= mean <= ours["high"] else "below" if ours["high"] < mean else "above"


def differences(made: Reproduction, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Every named difference that both sides were measured for, unit by unit."""
    found = []
    for one in made.differences:
        pairs = [one.rows] if one.rows is not None else [(row, row) for row in made.rows]
        for rows in pairs:
            lefts = {c.column.metric: c for c in cells if (c.row, c.column.name) == (rows[0], one.left)}
            rights = {c.column.metric: c for c in cells if (c.row, c.column.name) == (rows[1], one.right)}
            for metric in [m for m in lefts if m in rights and (not one.metrics or m in one.metrics)]:
                compared = rows[0] == rows[1] or not made.paper.once
                found += _difference(one, rows, lefts[metric], rights[metric], compared)
    return found


def _difference(
    one: Difference, rows: tuple[str, str], left: Cell, right: Cell, compared: bool
) -> list[dict[str, Any]]:
    """`compared` says whether the paper's numbers, where both are there, are of two different things."""
    both = [key for key in left.values if key in right.values]
    if not both:
        return []
    paired = interval([left.values[key] - right.values[key] for key in both], [seed for seed, _ in both])
    side = None
    if paired.low is not None and paired.high is not None:
        side = "above" if paired.low > 0 else "below" if paired.high < 0 else "undecided"
    published = [_published(cell.paper) for cell in (left, right)]
    means = [None if number is None else number["mean"] for number in published]
    gap = None
    if compared and means[0] is not None and means[1] is not None:
        gap = means[0] - means[1]
    entry: dict[str, Any] = {
        "left": one.left,
        "right": one.right,
        "rows": list(rows),
        "metric": left.column.metric,
    }
    entry |= {"mean": paired.mean, "low": paired.low, "high": paired.high, "n": paired.n, "side": side}
    expected = one.expected if gap is None else _side(gap) if one.expected else None
    return [{**entry, "paper": gap, "expected": expected, "verdict": _verdict(side, expected)}]


def _side(gap: float) -> Literal["above", "below"] | None:
    """What the published numbers themselves say of a pair: in some rows both are equal."""
    return None if abs(gap) < ROUNDING else "above" if gap > 0 else "below"


def _verdict(side: str | None, expected: str | None) -> str | None:
    """Whether what the paper found holds here; None where it says nothing or nothing can be said."""
    if side is None or expected is None:
        return None
    return "undecided" if side == "undecided" else "holds" if side == expected else "reversed"


def write(content: Mapping[str, Any], folder: Path) -> Path:
    """Put reproduction.json in place."""
    return write_as(content, folder / NAME)


def write_as(content: Mapping[str, Any], path: Path) -> Path:
    """The same under another name."""
    validate(content)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode("ascii"), "reproduction")
    return path


def read(path: Path) -> dict[str, Any]:
    """The checked document of a folder or file."""
    source = path / NAME if path.is_dir() else path
    found: dict[str, Any] = read_json(source, remedy=AGAIN)
    validate(found, str(source))
    return found


def validate(content: object, name: str = NAME) -> None:
    """Check a document against the schema; BadInput names the first place that does not fit."""
    problem = misfit(content, schema())
    if problem is not None:
        place, expected, got = problem
        raise BadInput(f"{name}{place}", expected=expected, got=got, remedy=AGAIN)


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of reproduction.json."""
    text = files("fedxray.reproduce").joinpath("reproduction.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
