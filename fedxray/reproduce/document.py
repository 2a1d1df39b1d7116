"""The document reproduction.json: our numbers beside the published ones, and paired differences."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fedxray.audit.results import misfit, plain
from fedxray.audit.statistics import Interval, interval
from fedxray.errors import BadInput
from fedxray.files import read_json, write_whole
from fedxray.reproduce.base import Difference, Number, Reproduction
from fedxray.reproduce.cells import Cell
from fedxray.reproduce.sentences import sentences

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
