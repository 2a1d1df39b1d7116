"""A reproduction in words: the same tables for the terminal and for reproduction.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedxray.errors import printable
from fedxray.report import words
from fedxray.reproduce.base import NOT_IN_TEXT
from fedxray.reproduce.document import found_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NUMBERS = ("row", "column", "metric", "ours", "95 % interval", "clients x seeds", "paper")
SURROUNDINGS = (
    "row",
    "column",
    "metric",
    "ours",
    "floors (ours minus floor)",
    "controls (ours minus control)",
)
COSTS = ("row", "defence", "metric", "on held-out records", "95 % interval", "runs", "epsilon")
DIFFERENCES = ("difference", "row", "metric", "ours", "95 % interval", "n", "paper", "paper's order")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table of texts with its heading."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def sheets(content: Mapping[str, Any]) -> list[Sheet]:
    """Ours beside the paper's, the paired differences, and what ours is worth: floors and controls."""
    rows, published = content["rows"], content["paper"]["numbers"]
    title = f"{content['name']}: {content['paper']['place']}"
    found = [Sheet(title=title, head=NUMBERS, lines=tuple(_numbers(row, published) for row in rows))]
    if content["differences"]:
        lines = tuple(_difference(one) for one in content["differences"])
        found.append(Sheet(title="Paired differences, client by client", head=DIFFERENCES, lines=lines))
    if content.get("costs"):
        lines = tuple(_cost(one) for one in content["costs"])
        found.append(Sheet(title="What the defences cost", head=COSTS, lines=lines))
    if content.get("searches"):
        head, found_there = found_lines(content["searches"])
        found.append(Sheet(title="What searches found", head=head, lines=tuple(found_there)))
    if any(row["floors"] or row["controls"] for row in rows):
        around = tuple(_surroundings(row) for row in rows)
        found.append(Sheet(title="Floors and controls", head=SURROUNDINGS, lines=around))
    return found


def _cell(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Where a number stands, and the number."""
    where = row["row"] if row["data"] is None else f"{row['row']} ({row['data']})"
    called = f" ({row['called']})" if row["called"] else ""
    return where, f"{row['column']}{called}", row["metric"], words.value(row["ours"]["mean"], row["metric"])


def _numbers(row: Mapping[str, Any], published: bool) -> tuple[str, ...]:
    metric, ours = row["metric"], row["ours"]
    return (
        *_cell(row),
        words.between(ours["low"], ours["high"], metric),
        f"{ours['clients']} x {ours['seeds']}" if ours["n"] else "0",
        _published(row["paper"], metric, published),
    )


def _surroundings(row: Mapping[str, Any]) -> tuple[str, ...]:
    floors, controls = (_all(row[name], row["metric"]) for name in ("floors", "controls"))
    controls += [f"{name} left out" for name in row["controls_left_out"]]
    return (*_cell(row), "; ".join(floors) or "–", "; ".join(controls) or "–")


def _all(found: Mapping[str, Mapping[str, Any]], metric: str) -> list[str]:
    return [
        f"{name} {words.value(one['mean'], metric)} ({words.value(one['difference'], metric, sign=True)})"
        for name, one in found.items()
    ]


def _published(paper: Mapping[str, Any] | None, metric: str, published: bool) -> str:
    if paper is None:
        return "–" if published else NOT_IN_TEXT
    spread = "" if paper["spread"] is None else f" ± {words.value(paper['spread'], metric)}"
    return f"{words.value(paper['mean'], metric)}{spread}"


def _difference(one: Mapping[str, Any]) -> tuple[str, ...]:
    metric, (first, second) = one["metric"], one["rows"]
    return (
        f"{one['left']} − {one['right']}",
        first if first == second else f"{first} − {second}",
        metric,
        words.value(one["mean"], metric, sign=True),
        words.between(one["low"], one["high"], metric, sign=True),
        str(one["n"]),
        words.value(one["paper"], metric, sign=True),
        one["verdict"] or "–",
    )


def _cost(one: Mapping[str, Any]) -> tuple[str, ...]:
    metric = one["metric"]
    return (
        one["row"],
        one["defence"],
        metric,
        words.value(one["value"], metric),
        words.between(one["low"], one["high"], metric),
        str(one["n"]),
        "–" if one["epsilon"] is None else f"{one['epsilon']:.1f}",
    )


def heading(content: Mapping[str, Any]) -> list[str]:
    """What is shown, where it comes from and how it was made."""
    commit = f", commit {content['commit']}" if content["commit"] else ""
    return [
        content["shows"],
        f"Paper: {content['paper']['title']}, {content['paper']['place']}.",
        f"Made by `{content['command']}` (fedxray {content['version']}{commit}).",
    ]


def markdown(content: Mapping[str, Any]) -> str:
    """The page reproduction.md."""
    parts = [f"# {content['name']}", "\n\n".join(heading(content))]
    for sheet in sheets(content):
        rows = [sheet.head, tuple("---" for _ in sheet.head), *sheet.lines]
        table = "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in rows
        )
        parts += [f"## {sheet.title}", table]
    parts.append("## Where and why ours differ")
    parts.append("\n".join(f"- {sentence}" for sentence in content["sentences"]) or "- Nothing to compare.")
    return "\n\n".join(parts) + "\n"


def print_tables(content: Mapping[str, Any], console: Console | None = None) -> None:
    """The same in the terminal."""
    from rich.console import Console
    from rich.text import Text

    target = Console() if console is None else console
    for line in heading(content):
        target.print(Text(printable(line)))
    for sheet in sheets(content):
        target.print("", _rich(sheet))
    target.print("")
    for sentence in content["sentences"]:
        target.print(Text(f"- {printable(sentence)}"))


def _rich(sheet: Sheet) -> Table:
    from rich.table import Table
    from rich.text import Text

    title = Text(printable(sheet.title), style="bold")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(sheet.head):
        table.add_column(column, overflow="fold", justify="left" if place < 3 else "right")
    for line in sheet.lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    return table
