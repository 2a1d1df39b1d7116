"""One document out of several of the same reproduction: rows or columns that were measured apart, as on two computers.

Numbers are taken over as they stand. Paired differences are reckoned anew, since the two sides of a pair may come from
different documents: an attack on the same group of the same seed is a pair wherever it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedxray.audit.judge.results import plain
from fedxray.errors import BadInput
from fedxray.reproduce.base import Reproduction, Unit
from fedxray.reproduce.document import Cell, differences, sentences, validate

Part = Mapping[str, Any]
Place = tuple[str, str, str]  # row, column, metric


def joined(made: Reproduction, parts: Sequence[Part]) -> dict[str, Any]:
    """Everything that the documents tell, in the order of the table; refused where they tell one number differently."""
    first = parts[0]
    for one in parts[1:]:
        for key in ("name", "scale"):
            if one[key] != first[key]:
                raise BadInput(
                    key,
                    expected=repr(first[key]),
                    got=repr(one[key]),
                    remedy="Join documents of one reproduction.",
                )
    rows = _rows(made, parts)
    cells = [_cell(made, row) for row in rows]
    parts = _with_news(parts)
    whole = {
        **first,
        "command": " && ".join(_once(one for part in parts for one in part["command"].split(" && "))),
        "commit": ", ".join(_once(one for part in parts for one in (part["commit"] or "").split(", ") if one))
        or None,
        "rows": rows,
        "differences": plain(differences(made, cells), "differences"),
        "seconds": round(sum(part["seconds"] for part in parts), 1),
    }
    for key in ("costs", "searches"):
        found = [one for part in parts for one in part.get(key, ())]
        whole |= {key: found} if found else {}
    whole["sentences"] = sentences(made, whole)
    validate(whole)
    return whole


def _with_news(parts: Sequence[Part]) -> list[Part]:
    """Those that bring a number of their own: what is joined once more must not count twice."""
    found: list[Part] = []
    known: set[Place] = set()
    for part in parts:
        brought = {(row["row"], row["column"], row["metric"]) for row in part["rows"]}
        found += [part] if brought - known else []
        known |= brought
    return found


def _once(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))


def _rows(made: Reproduction, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Every number once, by the order of rows and columns."""
    places = [(row, column.name, column.metric) for row in made.rows for column in made.columns]
    found: dict[Place, dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]):
        place = (row["row"], row["column"], row["metric"])
        called = f"{row['column']} ({row['metric']}) in {row['row']}"
        if place not in places:
            raise _odd("a row and a column of the table", called, "Measure it again.")
        if found.setdefault(place, dict(row))["units"] != row["units"]:
            got, remedy = f"{called} with other values", "Go on in one folder with --resume instead."
            raise _odd("every number in one document, or the same in all", got, remedy)
    return [found[place] for place in places if place in found]


def _odd(expected: str, got: str, remedy: str) -> BadInput:
    return BadInput("rows", expected=expected, got=got, remedy=remedy)


def _cell(made: Reproduction, row: Mapping[str, Any]) -> Cell:
    """As much of a number as a difference needs."""
    column = next(one for one in made.columns if (one.name, one.metric) == (row["column"], row["metric"]))
    units = tuple(Unit(**one) for one in row["units"])
    printed = row["paper"]
    paper = None if printed is None else printed["mean"]  # differences have no use for its spread
    return Cell(row=row["row"], column=column, units=units, paper=paper)
