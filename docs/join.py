"""Joins results that were measured apart: python docs/join.py docs/results/NAME.json FOLDER_OR_FILE [...].

The first file is written; if it exists, it is joined too. Folders are those of `fedxray reproduce`. Numbers are copied
as they are. Paired differences are computed anew, since the two sides of a pair may come from different documents: two
attacks on the same client of the same seed are a pair wherever they ran.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedxray.audit.judge.results import plain
from fedxray.errors import BadInput
from fedxray.reproduce.base import Reproduction, Unit, find
from fedxray.reproduce.document import Cell, differences, read, sentences, validate, write_as

Part = Mapping[str, Any]
CellKey = tuple[str, str, str]  # row, column, metric


def main(target: Path, *sources: Path) -> None:
    """Write the joined document."""
    parts = [read(path) for path in ([target] if target.is_file() else []) + list(sources)]
    content = joined(find(parts[0]["name"]), parts)
    write_as(content, target)
    print(f"{target}: {len(content['rows'])} numbers, {len(content['differences'])} differences")


def joined(reproduction: Reproduction, parts: Sequence[Part]) -> dict[str, Any]:
    """Return one document in the order of the table, refused where parts hold different values of one number."""
    first = parts[0]
    for part in parts[1:]:
        for key in ("name", "scale"):
            if part[key] != first[key]:
                remedy = "Join documents of one reproduction."
                raise BadInput(key, expected=repr(first[key]), got=repr(part[key]), remedy=remedy)
    rows = _rows(reproduction, parts)
    cells = [_cell(reproduction, row) for row in rows]
    parts = _with_news(parts)
    commands = _once(command for part in parts for command in part["command"].split(" && "))
    commits = _once(commit for part in parts for commit in (part["commit"] or "").split(", ") if commit)
    content = {
        **first,
        "command": " && ".join(commands),
        "commit": ", ".join(commits) or None,
        "rows": rows,
        "differences": plain(differences(reproduction, cells), "differences"),
        "seconds": round(sum(part["seconds"] for part in parts), 1),
    }
    for key in ("costs", "searches"):
        entries = [entry for part in parts for entry in part.get(key, ())]
        content |= {key: entries} if entries else {}
    content["sentences"] = sentences(reproduction, content)
    validate(content)
    return content


def _with_news(parts: Sequence[Part]) -> list[Part]:
    """Return the parts that add a number: a part that is joined again must not count twice."""
    adding: list[Part] = []
    known: set[CellKey] = set()
    for part in parts:
        keys = {_key(row) for row in part["rows"]}
        adding += [part] if keys - known else []
        known |= keys
    return adding


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _key(row: Mapping[str, Any]) -> CellKey:
    return row["row"], row["column"], row["metric"]


def _rows(reproduction: Reproduction, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return every number once, by the order of rows and columns."""
    keys = [(row, column.name, column.metric) for row in reproduction.rows for column in reproduction.columns]
    rows: dict[CellKey, dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]):
        name = f"{row['column']} ({row['metric']}) in {row['row']}"
        if _key(row) not in keys:
            raise _refused("a row and a column of the table", name, "Measure it again.")
        if rows.setdefault(_key(row), dict(row))["units"] != row["units"]:
            got, remedy = f"{name} with other values", "Continue in one folder with --resume instead."
            raise _refused("every number in one document, or the same in all", got, remedy)
    return [rows[key] for key in keys if key in rows]


def _refused(expected: str, got: str, remedy: str) -> BadInput:
    return BadInput("rows", expected=expected, got=got, remedy=remedy)


def _cell(reproduction: Reproduction, row: Mapping[str, Any]) -> Cell:
    """Return the parts of a number that a difference needs."""
    column = next(c for c in reproduction.columns if (c.name, c.metric) == (row["column"], row["metric"]))
    units = tuple(Unit(**unit) for unit in row["units"])
    paper = None if row["paper"] is None else row["paper"]["mean"]  # differences do not use its spread
    return Cell(row=row["row"], column=column, units=units, paper=paper)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(*map(Path, sys.argv[1:]))
    except BadInput as error:
        sys.exit(str(error))
