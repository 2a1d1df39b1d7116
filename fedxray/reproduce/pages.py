"""The tables of a reproduction, for the terminal and for reproduction.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fedxray.errors import printable
from fedxray.metrics import units
from fedxray.report import words
from fedxray.reproduce.base import NOT_IN_TEXT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NAMES = 3  # leading columns of names; the rest are numbers
NUMBERS = ("row", "column", "metric", "fedxray", "95 % interval", "clients x seeds", "paper")
DIFFERENCES = ("difference", "row", "metric", "fedxray", "95 % interval", "n", "paper", "paper's order")
COSTS = ("row", "defence", "metric", "on held-out records", "95 % interval", "runs", "epsilon")
SEARCHES = (
    "row", "column", "seed", "client", "searched", "found", "true", "found / true", "nearly as good",
)  # fmt: skip
COMPARISONS = ("row", "column", "metric", "fedxray", "floors (gain)", "controls (gain)")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table of texts with its heading."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def sheets(content: Mapping[str, Any]) -> list[Sheet]:
    """Return ours beside the paper's, paired differences, utility, searches, and floors and controls."""
    rows, published = content["rows"], content["paper"]["numbers"]
    comparable = any(row["floors"] or row["controls"] for row in rows)
    tables = [
        (f"{content['name']}: {content['paper']['place']}", NUMBERS, [_numbers(row, published) for row in rows]),
        ("Paired differences, client by client", DIFFERENCES, [_difference(entry) for entry in content["differences"]]),
        ("Utility under the defences", COSTS, [_cost(entry) for entry in content.get("costs", ())]),
        ("Results of searches", SEARCHES, search_lines(content.get("searches", ()))),
        ("Floors and controls", COMPARISONS, [_comparisons(row) for row in rows] if comparable else []),
    ]
    kind = f"row ({content['row_is']})" if content.get("row_is") else "row"
    return [
        Sheet(title=title, head=tuple(kind if cell == "row" else cell for cell in head), lines=tuple(lines))
        for title, head, lines in tables
        if lines or head is NUMBERS
    ]


def _cell(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return row, column, metric and number of a cell."""
    where = row["row"] if row["data"] is None else f"{row['row']} ({row['data']})"
    called = f" ({row['called']})" if row["called"] else ""
    return where, f"{row['column']}{called}", row["metric"], units.value(row["ours"]["mean"], row["metric"])


def _numbers(row: Mapping[str, Any], published: bool) -> tuple[str, ...]:
    metric, ours = row["metric"], row["ours"]
    return (
        *_cell(row),
        units.between(ours["low"], ours["high"], metric),
        f"{ours['clients']} x {ours['seeds']}" if ours["n"] else "0",
        _published(row["paper"], metric, published),
    )


def _comparisons(row: Mapping[str, Any]) -> tuple[str, ...]:
    floors, controls = (_all(row[name], row["metric"]) for name in ("floors", "controls"))
    controls += [f"{name} left out" for name in row["controls_left_out"]]
    return (*_cell(row), "; ".join(floors) or "–", "; ".join(controls) or "–")


def _all(compared: Mapping[str, Mapping[str, Any]], metric: str) -> list[str]:
    return [
        f"{name} {units.value(entry['mean'], metric)} ({units.value(entry['difference'], metric, sign=True)})"
        for name, entry in compared.items()
    ]


def _published(paper: Mapping[str, Any] | None, metric: str, published: bool) -> str:
    if paper is None:
        return "–" if published else NOT_IN_TEXT
    spread = "" if paper["spread"] is None else f" ± {units.value(paper['spread'], metric)}"
    return f"{units.value(paper['mean'], metric)}{spread}"


def _difference(entry: Mapping[str, Any]) -> tuple[str, ...]:
    metric, (first, second) = entry["metric"], entry["rows"]
    return (
        f"{entry['left']} − {entry['right']}",
        first if first == second else f"{first} − {second}",
        metric,
        units.value(entry["mean"], metric, sign=True),
        units.between(entry["low"], entry["high"], metric, sign=True),
        str(entry["n"]),
        units.value(entry["paper"], metric, sign=True),
        entry["verdict"] or "–",
    )


def _cost(entry: Mapping[str, Any]) -> tuple[str, ...]:
    metric = entry["metric"]
    return (
        entry["row"],
        entry["defence"],
        metric,
        units.value(entry["value"], metric),
        units.between(entry["low"], entry["high"], metric),
        str(entry["n"]),
        "–" if entry["epsilon"] is None else f"{entry['epsilon']:.1f}",
    )


def search_lines(searches: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the lines of a table of searches: chosen settings, beside the truth where there is one."""
    lines: list[tuple[str, ...]] = []
    for entry in searches:
        true = entry["true"]
        lines.append(
            (
                entry["row"],
                entry["column"],
                str(entry["seed"]),
                "–" if entry["client"] is None else str(entry["client"]),
                entry["quantity"],
                f"{entry['found']:.4g}",
                "–" if true is None else f"{true:.4g}",
                "–" if not true else f"{entry['found'] / true:.3f}",
                _range(entry, true),
            )
        )
    return lines


def _range(entry: Mapping[str, Any], true: float | None) -> str:
    """Return the range of the trials whose loss is at most a tenth above the lowest, in units of the truth if known."""
    unit = true or 1.0
    ends = f"{_rounded(entry['low'] / unit)} to {_rounded(entry['high'] / unit)}" + (" times" if true else "")
    return f"{ends} ({entry['nearly']} of {entry['trials']} trials)"


def _rounded(value: float) -> str:
    """Return three significant digits, or all before the point."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def answer(content: Mapping[str, Any]) -> str:
    """Return in one line how many published numbers our intervals contain, and how often the paper's order holds."""
    both = [row for row in content["rows"] if row["paper"] and row["ours"]["mean"] is not None]
    around, wide = (sum(row["place"] == place for row in both) for place in ("around", "too wide"))
    verdicts = Counter(entry["verdict"] for entry in content["differences"] if entry["verdict"])
    orders = [f"{name} in {verdicts[name]}" for name in ("holds", "reversed", "undecided") if verdicts[name]]
    total = verdicts.total()
    said = [f"{around} of {words.count(len(both), 'published number')} inside our interval"] if both else []
    said += [f"{wide} inside one too wide to confirm it"] if wide else []
    said += [f"the paper's order {', '.join(orders)} of {words.count(total, 'comparison')}"] if orders else []
    return f"Answer: {'; '.join(said) or 'nothing to compare with the paper'}."


def heading(content: Mapping[str, Any]) -> list[str]:
    """Return the purpose of the table, its source and the command that made it."""
    commit = f", commit {content['commit']}" if content["commit"] else ""
    return [
        content["shows"],
        f"Paper: {content['paper']['title']}, {content['paper']['place']}.",
        f"Made by `{content['command']}` (fedxray {content['version']}{commit}).",
    ]


def markdown(content: Mapping[str, Any]) -> str:
    """Return the page reproduction.md."""
    parts = [f"# {content['name']}", "\n\n".join([answer(content), *heading(content)])]
    for sheet in sheets(content):
        rows = [sheet.head, tuple("---" for _ in sheet.head), *sheet.lines]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in rows)
        parts += [f"## {sheet.title}", table]
    parts.append("## Where and why the numbers differ")
    parts.append("\n".join(f"- {sentence}" for sentence in content["sentences"]) or "- Nothing to compare.")
    return "\n\n".join(parts) + "\n"


def print_tables(content: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the tables in the terminal."""
    from rich.console import Console
    from rich.text import Text

    target = Console() if console is None else console
    for line in (answer(content), *heading(content)):
        target.print(Text(printable(line)))
    for sheet in sheets(content):
        target.print("", _rich(sheet, target.width))
    target.print("")
    for sentence in content["sentences"]:
        target.print(Text(f"- {printable(sentence)}"))


def _rich(sheet: Sheet, width: int) -> Table | Text:
    """Return a table that breaks lines only between words; a list of its lines where the longest words do not fit."""
    from rich.table import Table
    from rich.text import Text

    title = Text(printable(sheet.title), style="bold")
    widths = _widths(sheet, width)
    if widths is None:
        return Text("\n").join([title, *(Text(printable(line)) for line in _listed(sheet, width))])
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for index, (column, least) in enumerate(zip(sheet.head, widths, strict=True)):
        table.add_column(column, overflow="fold", justify="left" if index < NAMES else "right", width=least)
    for line in sheet.lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    return table


def _widths(sheet: Sheet, width: int) -> list[int] | None:
    """Return the widths of columns, each at least its longest word; None where these exceed the width together."""
    columns = list(zip(sheet.head, *sheet.lines, strict=True))
    widths = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    full = [max(len(cell) for cell in column) for column in columns]
    spare = width - sum(widths) - 2 * (len(widths) - 1)
    if spare < 0:
        return None
    for _ in range(min(spare, sum(full) - sum(widths))):
        widths[max(range(len(widths)), key=lambda index: full[index] / widths[index])] += 1
    return widths


def _listed(sheet: Sheet, width: int) -> list[str]:
    """Return the lines of a list: for each line of the sheet its names, and below them its numbers with headings."""
    lines = []
    for line in sheet.lines:
        numbers = [f"{name}: {cell}" for name, cell in zip(sheet.head[NAMES:], line[NAMES:], strict=True)]
        for text, indent in ((", ".join(line[:NAMES]), ""), ("; ".join(numbers), "  ")):
            lines += wrap(text, width, initial_indent=indent, subsequent_indent="  ", break_on_hyphens=False)
    return lines
