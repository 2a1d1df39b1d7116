"""The summary that an audit prints in the terminal when it ends."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedxray.audit.judge.claims import claims_of
from fedxray.audit.recorded.describe import heading, measured_filters, place, recordings_of, shortcomings, unlike, whose
from fedxray.errors import printable
from fedxray.metrics import units
from fedxray.report import states, words
from fedxray.report.overview import answer, cards, failed, overall, strongest
from fedxray.report.rows import Row, grouped, shown_rows

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {"leaks": "bold red", "small": "red", "no leak found": "green", "stopped": "green", "upper bound": "dim"}
UNDECIDED = "yellow"


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """Return headline, one line per primary row and next steps as plain lines."""
    rows = []
    for title, lines, notes in primary_tables(document):
        rows += [f"  {title}: " + ", ".join(cell.strip() for cell in line) for line in lines]
        rows += [f"  {note}" for note in notes]
    ends = [*_claims(document), *_steps(document)]
    return [start + text for start, text in _heading(document)] + rows + [a + b for a, b in ends]


def _heading(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headline, failed cases and recordings, each line split into its start and what may be wrapped."""
    made = cards(document)
    name = printable(str(document["plan"].get("name") or "audit"))
    lines = [("", " ".join(part for part in (f"{name}:", overall(made)[1], _safe(strongest(made))) if part))]
    lines += [("", failed(document))] if failed(document) else []
    for recording in recordings_of(document):
        position = f"; recorder: {place(recording)}" if place(recording) else ""
        lines.append(("  recording: ", f"{heading(recording)}{position}"))
        lines += [("  owner of the node: ", whose(recording))] if whose(recording) else []
        lines += [("  ! ", unlike(recording))] if unlike(recording) else []
        lines += [
            ("  ! ", f"{what}: {text}") for what, text in [*shortcomings(recording), *measured_filters(recording)]
        ]
    return lines


def _safe(text: str) -> str:
    """Return printable text in which numbers stay with their units."""
    return units.GLUE.join(printable(part) for part in text.split(units.GLUE))


def _steps(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the report's next steps; what is to be pasted is the start of a line, which is not wrapped."""
    lines = [("Next steps:", "")]
    for text, command in answer(document, cards(document)).steps:
        if text != failed(document):  # the heading has it already
            pasted = command.split("\n") if command else []
            lines += [("  - ", _safe(text)), *((f"      {_safe(line)}", "") for line in pasted)]
    return lines if len(lines) > 1 else []


def _claims(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a line on every epsilon that was measured, or that its own settings do not keep."""
    return [
        ("Canaries: " if claim.measured else "Claim: ", _safe(f"{claim.subject}, {claim.unit}: {claim.sentence}"))
        for claim in claims_of(document)
        if claim.measured or claim.faults
    ]


def primary_tables(document: Mapping[str, Any]) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return a title per attack and role, a line of cells for each of its primary rows, and notes on these."""
    rows = [row for row in shown_rows(document) if row["primary"]]
    groups = grouped(rows, lambda row: (row["attack"], row["role"], row["metric"]))
    return [
        (
            printable(f"{attack} ({role}), {metric or 'not scored'}") + _margin(own[0]),
            [_cells(row) for row in own],
            _notes(own),
        )
        for (attack, role, metric), own in groups.items()
    ]


def _margin(row: Row) -> str:
    return "" if row["margin"] is None else f", margin {units.margin_of(row['margin'], row['metric'])}"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return why a row leaks although its interval includes 0; equal notes once, with the rows that they are of."""
    doubtful = grouped([row for row in rows if states.here(row) and not row["oracle"]], states.despite)
    many = len(rows) > 1
    return [f"{', '.join(map(_name, own))}: {note}" if many else note for note, own in doubtful.items() if note]


def _name(row: Row) -> str:
    aware = {True: ", aware", False: ", unaware"}.get(row["aware"], "")
    return printable(f"{words.defence_words(row['defence'])}{aware}")


def _cells(row: Row) -> list[str]:
    metric = row["metric"]
    gain = units.value(row["difference"], metric, sign=True).partition(units.GLUE)[0]
    spread = "" if row["low"] is None else f" ({_interval(row)})"
    score, floor = units.value(row["mean"], metric), units.value(row["floor"], metric)
    state = "upper bound" if row["oracle"] else row["state"]
    return [_name(row), score, floor, gain + spread, state]


def _interval(row: Row) -> str:
    ends = units.between(row["low"], row["high"], row["metric"], sign=True, floor=row["floor"])
    return ends.partition(units.GLUE)[0].replace("+", "")


def _table(title: str, lines: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    heading = Text(title, style="bold")
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column("defence", overflow="fold", min_width=22)  # all fits into 80 columns
    for column in ("score", "floor", "gain (95 % interval)"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=len("no leak found"))
    for *cells, state in lines:
        table.add_row(*map(Text, cells), Text(state, style=STYLES.get(state, UNDECIDED)))
    return table


def print_summary(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the headline, the tables of primary rows and the next steps."""
    from rich.console import Console

    target = Console() if console is None else console
    _print(_heading(document), target)
    target.print("")
    for title, lines, notes in primary_tables(document):
        target.print(_table(title, lines))
        _print([("", note) for note in notes], target)
        target.print("")
    _print([*_claims(document), *_steps(document)], target)


def _print(lines: Sequence[tuple[str, str]], target: Console) -> None:
    """Print lines, each split into its start and what may be wrapped; the start stays whole, however long."""
    from rich.text import Text

    for start, text in lines:
        indent = " " * min(len(start), 2 * target.width // 3)
        wrapped = textwrap.wrap(
            text, target.width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
        )
        target.print(Text("\n".join(wrapped) or start), soft_wrap=not wrapped)
