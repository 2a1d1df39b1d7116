"""The document reproduction.json: our numbers beside the published ones, paired differences, and sentences on both.

Results of audits become cells (one number of the table with its units), cells become rows and differences, and these
become the sentences that state where and why our numbers differ from the paper's.
"""

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
from fedxray.audit.judge.statistics import interval
from fedxray.audit.judge.summary import ENDED
from fedxray.errors import BadInput
from fedxray.files import read_json, write_whole
from fedxray.metrics import units
from fedxray.metrics.table import metric as metric_named
from fedxray.report import words
from fedxray.reproduce.base import NO_TABLE, NOT_IN_TEXT, Difference, Measured, Number, Reproduction, TableColumn, Unit

FORMAT = 1
NAME = "reproduction.json"
REMEDY = "Run the reproduction again."
ROUNDING = 1e-9
FEWEST = 3  # values of an interval that may confirm a published number
# Metrics of the attacker's own records: in the ledger and not in the scores, since these records are no secret to it.
OF_OWN_RECORDS = frozenset({"own_psnr"})
UnitKey = tuple[int, int | None]  # seed, client


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Our side of one number of the table, and the published one."""

    row: str
    column: TableColumn
    units: tuple[Unit, ...]
    paper: Number | None
    summary: Mapping[str, Any] = field(default_factory=dict)  # of the audit: floors and controls
    statuses: Mapping[str, int] = field(default_factory=dict)
    controls_left_out: tuple[str, ...] = ()
    data: str | None = None  # the data set
    floors: Mapping[str, Mapping[UnitKey, float]] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def values(self) -> dict[UnitKey, float]:
        """Values by seed and client, for pairing."""
        return {(unit.seed, unit.client): unit.value for unit in self.units}


def document(
    reproduction: Reproduction,
    scale: str,
    cells: Sequence[Cell],
    past: Mapping[str, Any],
    costs: Sequence[Mapping[str, Any]] = (),
    searches: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the checked document in plain values; `past` has command, commit and seconds."""
    paper = reproduction.paper
    content = {
        "name": reproduction.name,
        "shows": reproduction.shows,
        "paper": {
            "title": paper.title,
            "place": paper.place,
            "clients": paper.clients,
            "trend": paper.trend or None,
            "numbers": bool(paper.numbers),
        },
        **({"row_is": reproduction.row_is} if reproduction.row_is else {}),
        "scale": scale,
        "command": past["command"],
        "version": version("fedxray"),
        "commit": past["commit"],
        "rows": [_row(cell) for cell in cells],
        "differences": differences(reproduction, cells),
        **({"costs": list(costs)} if costs else {}),
        **({"searches": list(searches)} if searches else {}),
        "seconds": round(past["seconds"], 1),
    }
    complete = {"format": FORMAT, **{key: plain(value, key) for key, value in content.items()}}
    complete["sentences"] = sentences(reproduction, complete)
    validate(complete)
    return complete


# From the results of a row to cells


def cells_of_audit(reproduction: Reproduction, row: str, results: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a row whose attack is in the results of its audit."""
    labels = {case["attack"] for case in results["cases"]}
    return [_cell(reproduction, row, column, results) for column in reproduction.columns if column.attack in labels]


def _cell(reproduction: Reproduction, row: str, column: TableColumn, results: Mapping[str, Any]) -> Cell:
    cases = [case for case in results["cases"] if belongs(case, column)]
    summary = [line for line in results["summary"] if belongs(line, column) and line["metric"] == column.metric]
    left_out = [name for case in cases for name in case["ledger"].get("controls_left_out", ())]
    return Cell(
        row=row,
        column=column,
        units=tuple(_units(cases, column.metric)),
        paper=reproduction.number(row, column),
        summary=summary[0] if summary else {},
        statuses=Counter(case["status"] for case in cases),
        controls_left_out=tuple(dict.fromkeys(left_out)),
        data=results["plan"]["data"].get("name"),
        floors=_floors(cases, column.metric),
        seconds=math.fsum(case["seconds"] or 0.0 for case in cases),
    )


def belongs(entry: Mapping[str, Any], column: TableColumn) -> bool:
    """Whether a case or a line of a summary is of this column."""
    wanted = (column.attack, column.defence, column.aware)
    return (entry["attack"], entry["defence"], entry["aware"]) == wanted


def _units(cases: Sequence[Mapping[str, Any]], metric: str) -> list[Unit]:
    """Return the cases that ended with a finite value, as a summary counts them."""
    units = []
    for case in cases:
        value = (case["ledger"] if metric in OF_OWN_RECORDS else case["scores"]).get(metric)
        if case["status"] in ENDED and value is not None and math.isfinite(value):
            units.append(Unit(seed=case["seed"], client=case["client"], value=float(value)))
    return units


def _floors(cases: Sequence[Mapping[str, Any]], metric: str) -> dict[str, dict[UnitKey, float]]:
    """Return every floor with its value for each seed and client."""
    floors: dict[str, dict[UnitKey, float]] = {}
    for case in cases:
        for name, scores in case["floors"].items():
            if scores.get(metric) is not None:
                floors.setdefault(name, {})[case["seed"], case["client"]] = float(scores[metric])
    return floors


def cells_of_measured(reproduction: Reproduction, row: str, measured: Sequence[Measured]) -> list[Cell]:
    """Return the cells of a row that was measured without an audit."""
    columns = {(column.name, column.metric): column for column in reproduction.columns}
    cells = []
    for cell in measured:
        column = columns[cell.column, cell.metric]
        keys = [(unit.seed, unit.client) for unit in cell.units]
        floors = {name: dict.fromkeys(keys, value) for name, value in cell.floors.items()}
        paper = reproduction.number(row, column)
        cells.append(Cell(row=row, column=column, units=cell.units, paper=paper, floors=floors))
    return cells


def costs_of_audit(row: str, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the utility of a row's models under every defence; nothing where there is only one."""
    keys = ("defence", "metric", "value", "low", "high", "n", "epsilon")
    costs = [{"row": row, **{key: line[key] for key in keys}} for line in results["utility"]]
    return costs if len({line["defence"] for line in costs}) > 1 else []


# From cells to the rows of the document


def _row(cell: Cell) -> dict[str, Any]:
    """Return one number of ours and its published one, with floors and controls."""
    ours, summary = _ours(cell), cell.summary
    floors = {name: _gain_over(cell, floor) for name, floor in cell.floors.items()}
    return {
        "row": cell.row,
        "data": cell.data,
        "column": cell.column.name,
        "called": cell.column.called or None,
        "metric": cell.column.metric,
        "defence": cell.column.defence,
        "ours": ours,
        "paper": _published(cell.paper),
        "place": place(ours, cell.paper, cell.column.metric, [floor["mean"] for floor in floors.values()]),
        "over": summary.get("over"),
        "floors": floors,
        "controls": dict(summary.get("controls", {})),
        "controls_left_out": list(cell.controls_left_out),
        "statuses": dict(cell.statuses),
        "units": [{"seed": unit.seed, "client": unit.client, "value": unit.value} for unit in cell.units],
        "seconds": None if cell.seconds is None else round(cell.seconds, 1),
    }


def _ours(cell: Cell) -> dict[str, Any]:
    """Return our mean with its 95 % interval and the numbers of units, clients and seeds."""
    mean, low, high = _interval(cell.values)
    clients, seeds = len({unit.client for unit in cell.units}), len({unit.seed for unit in cell.units})
    return {"mean": mean, "low": low, "high": high, "n": len(cell.units), "clients": clients, "seeds": seeds}


def _gain_over(cell: Cell, floor: Mapping[UnitKey, float]) -> dict[str, float | None]:
    """Return a floor's mean, and the mean gain over it, paired unit by unit."""
    gain, low, high = _interval({key: value - floor[key] for key, value in cell.values.items() if key in floor})
    return {"mean": math.fsum(floor.values()) / len(floor), "difference": gain, "low": low, "high": high}


def _interval(values: Mapping[UnitKey, float]) -> tuple[float | None, float | None, float | None]:
    """Return the mean with the ends of its interval, clustered by seed; all None without values."""
    if not values:
        return None, None, None
    mean = interval(list(values.values()), [seed for seed, _ in values])
    return mean.mean, mean.low, mean.high


def _published(number: Number | None) -> dict[str, float | None] | None:
    if number is None:
        return None
    mean, spread = number if isinstance(number, tuple) else (number, None)
    return {"mean": mean, "spread": spread}


def place(ours: Mapping[str, Any], number: Number | None, metric: str, floors: Sequence[float | None]) -> str | None:
    """Return the position of our interval: around the published number, below it or above it, or too wide.

    Too wide is an interval around the number that shows no agreement: it is of fewer than FEWEST values, or wider than
    two margins of its metric while it contains a floor, the score without any message.
    """
    if number is None or ours["low"] is None:
        return None
    mean, low, high = (number[0] if isinstance(number, tuple) else number), ours["low"], ours["high"]
    if not low <= mean <= high:
        return "below" if high < mean else "above"
    vague = high - low > 2 * metric_named(metric).margin
    at_floor = any(floor is not None and low <= floor <= high for floor in floors)
    return "too wide" if ours["n"] < FEWEST or (vague and at_floor) else "around"


# Paired differences


def differences(reproduction: Reproduction, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return every named difference with measurements on both sides, paired unit by unit."""
    entries = []
    for pair in reproduction.differences:
        for rows in [pair.rows] if pair.rows is not None else [(row, row) for row in reproduction.rows]:
            lefts = {c.column.metric: c for c in cells if (c.row, c.column.name) == (rows[0], pair.left)}
            rights = {c.column.metric: c for c in cells if (c.row, c.column.name) == (rows[1], pair.right)}
            for metric in [m for m in lefts if m in rights and (not pair.metrics or m in pair.metrics)]:
                compared = rows[0] == rows[1] or not reproduction.paper.once
                entries += _difference(pair, rows, lefts[metric], rights[metric], compared)
    return entries


def _difference(
    pair: Difference, rows: tuple[str, str], left: Cell, right: Cell, compared: bool
) -> list[dict[str, Any]]:
    """Return the difference of two cells; `compared` says whether the paper's two numbers are separate results."""
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
    entry: dict[str, Any] = {"left": pair.left, "right": pair.right, "rows": list(rows), "metric": left.column.metric}
    entry |= {"mean": paired.mean, "low": paired.low, "high": paired.high, "n": paired.n, "side": side}
    expected = pair.expected if gap is None else _side(gap) if pair.expected else None
    return [{**entry, "paper": gap, "expected": expected, "verdict": _verdict(side, expected)}]


def _side(gap: float) -> Literal["above", "below"] | None:
    """Return the order of two published numbers; None where they are equal, as in some rows."""
    return None if abs(gap) < ROUNDING else "above" if gap > 0 else "below"


def _verdict(side: str | None, expected: str | None) -> str | None:
    """Whether the paper's finding holds here; None where there is no finding or no interval."""
    if side is None or expected is None:
        return None
    return "undecided" if side == "undecided" else "holds" if side == expected else "reversed"


# Results of searches: the settings of lowest own loss beside the truth
#
# A loss may be low along a ridge, where two settings compensate each other. So beside the chosen settings stands the
# range of the trials that were nearly as good.

Point = Mapping[str, float]


def searches_of_audit(reproduction: Reproduction, row: str, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one entry for every case that searched and every setting it searched."""
    sought, entries = reproduction.sought, []
    for case in results["cases"]:
        search = case.get("search") or {}
        title = next((column.name for column in reproduction.columns if belongs(case, column)), None)
        if title is None or search.get("best") is None:
            continue
        true = {} if sought is None else dict(sought.true(results["plan"]))
        quotients = {} if sought is None else sought.quantities
        where = {"row": row, "column": title, "seed": case["seed"], "client": case["client"]}
        entries += [{**where, **quantity} for quantity in _quantities(search, true, quotients)]
    return entries


def _quantities(
    search: Mapping[str, Any], true: Point, quotients: Mapping[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return every searched setting, and the quotients of two of them."""
    trials = search["trials"]
    best = trials[search["best"]]
    near = [trial["point"] for trial in nearly_as_good(trials)]
    start_losses = [trial["loss"] for trial in trials[: search.get("starts") or 0]]
    names = [*best["point"], *(name for name, settings in quotients.items() if set(settings) <= set(best["point"]))]

    def value(point: Point, name: str) -> float:
        if name in point:
            return float(point[name])
        above, below = quotients[name]
        return float(point[above]) / float(point[below])

    return [
        {
            "quantity": name,
            "found": value(best["point"], name),
            "true": value(true, name) if set(quotients.get(name, (name,))) <= set(true) else None,
            "low": min(value(point, name) for point in near),
            "high": max(value(point, name) for point in near),
            "nearly": len(near),
            "trials": len(trials),
            "loss": best["loss"],
            "loss_of_starts": min((loss for loss in start_losses if loss is not None), default=None),
        }
        for name in names
    ]


# Sentences, made from the numbers


def sentences(reproduction: Reproduction, content: Mapping[str, Any]) -> list[str]:
    """Return what the numbers show, whether the paper's findings hold, and the known reasons for differences."""
    paper = reproduction.paper
    lines = [*_numbers(content["rows"]), *_findings(content["differences"])]
    if not paper.numbers:
        absent = (
            "The paper has no such table"
            if paper.place == NO_TABLE
            else f"The paper's numbers are {NOT_IN_TEXT} ({paper.place})"
        )
        lines.insert(0, f"{absent}; it says: {paper.trend}." if paper.trend else f"{absent}.")
    statuses = {(row["row"], row["column"]): row["statuses"] for row in content["rows"]}
    failed = sum(count for cases in statuses.values() for status, count in cases.items() if status != "ok")
    if failed:
        lines.append(f"{words.count(failed, 'case')} failed or ended without a full result.")
    reasons = [reproduction.why.rstrip(".")] if reproduction.why else []
    reasons += _fewer_clients(content)
    if content["scale"] == "small":
        reasons.append("the small scale: fewer steps, rounds or clients than the paper's")
    if reasons:
        lines.append(f"Known reasons for differences: {'; '.join(reasons)}.")
    return lines


def _numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many of our intervals contain the published number, and the largest gap, for each metric."""
    lines = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        both = [r for r in rows if r["metric"] == metric and r["paper"] and r["ours"]["mean"] is not None]
        if not both:
            continue
        gaps = [row["ours"]["mean"] - row["paper"]["mean"] for row in both]
        row = both[max(range(len(both)), key=lambda index: abs(gaps[index]))]
        mean = units.value(sum(gaps) / len(gaps), metric, sign=True)
        around, wide = (sum(cell["place"] == where for cell in both) for where in ("around", "too wide"))
        lines.append(
            f"{metric}: {around} of {words.count(len(both), 'published number')} inside our interval"
            f"{f', {wide} inside one too wide to confirm it' if wide else ''}; fedxray minus paper is {mean} on "
            f"average and largest for {row['column']} in {row['row']} "
            f"({units.value(row['ours']['mean'], metric)} against {units.value(row['paper']['mean'], metric)})."
        )
    return lines


def _findings(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for which columns the paper's order holds, is reversed or stays undecided."""
    lines = []
    for verdict, statement in (
        ("holds", "The paper's order holds"),
        ("reversed", "The paper's order is reversed"),
        ("undecided", "The paper's order is not decided by our intervals"),
    ):
        phrases = _grouped([entry for entry in entries if entry["verdict"] == verdict])
        if phrases:
            lines.append(f"{statement} for {'; '.join(phrases)}.")
    return lines


def _grouped(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one phrase for each pair of columns and metric, with all the rows in which they were compared."""
    rows: dict[str, list[str]] = {}
    for entry in entries:
        first, second = entry["rows"]
        where = first if first == second else f"{first} against {second}"
        rows.setdefault(f"{entry['left']} against {entry['right']} ({entry['metric']})", []).append(where)
    return [f"{pair} in {words.listed(names)}" for pair, names in rows.items()]


def _fewer_clients(content: Mapping[str, Any]) -> list[str]:
    theirs = content["paper"]["clients"]
    counts = sorted({row["ours"]["clients"] for row in content["rows"] if row["ours"]["n"]})
    if theirs is None or not counts or counts == [theirs]:
        return []
    ours = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [f"{ours} {'client' if ours == '1' else 'clients'} in place of {theirs}"]


# The file


def write(content: Mapping[str, Any], folder: Path) -> Path:
    """Write reproduction.json into a folder."""
    return write_as(content, folder / NAME)


def write_as(content: Mapping[str, Any], path: Path) -> Path:
    """Write a checked document to a file of any name."""
    validate(content)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode("ascii"), "reproduction")
    return path


def read(path: Path) -> dict[str, Any]:
    """Return the checked document of a folder or file."""
    source = path / NAME if path.is_dir() else path
    content: dict[str, Any] = read_json(source, remedy=REMEDY)
    validate(content, str(source))
    return content


def validate(content: object, name: str = NAME) -> None:
    """Check a document against the schema; BadInput names the first key that does not fit."""
    problem = misfit(content, schema())
    if problem is not None:
        key, expected, got = problem
        raise BadInput(f"{name}{key}", expected=expected, got=got, remedy=REMEDY)


@cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of reproduction.json."""
    text = files("fedxray.reproduce").joinpath("reproduction.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
