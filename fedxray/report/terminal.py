"""What an audit says in the terminal when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedxray.audit.recorded.describe import heading, place, recordings_of, shortcomings, unlike, whose
from fedxray.errors import printable
from fedxray.report import words
from fedxray.report.overview import defence_verdicts, worst_findings
from fedxray.report.rows import shown_rows

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {"leaks": "bold red", "inconclusive": "yellow", "no leak found": "green"}


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """The verdict of each defence and the worst findings, as plain lines."""
    cases = document["cases"]
    lost = sum(case["status"] != "ok" for case in cases)
    ending = f", {lost} did not end well" if lost else ""
    lines = [
        f"{printable(str(document['plan'].get('name') or 'audit'))}: {words.count(len(cases), 'case')}{ending}"
    ]
    for told in recordings_of(document):
        stood = f"; place: {place(told)}" if place(told) else ""
        lines.append(f"  recording: {heading(told)}{stood}")
        lines += [f"  whose node: {whose(told)}"] if whose(told) else []
        lines += [f"  ! {unlike(told)}"] if unlike(told) else []
        lines += [f"  ! {word}: {text}" for word, text in shortcomings(told)]
    verdicts = defence_verdicts(document)
    names = [printable(f"{one.plan}: {one.name}" if one.plan else one.name) for one in verdicts]
    width = max(map(len, names), default=0)
    for name, one in zip(names, verdicts, strict=True):
        deployed = " (deployed)" if one.deployed else ""
        lines.append(f"  {name:<{width}}  {one.verdict:<13}  {one.headline}{deployed}")
    for finding in worst_findings(document):
        secret = f"{words.capital(printable(finding.secret))}: " if finding.secret else ""
        lines.append(f"  - {secret}{printable(finding.title)}. {printable(finding.sentence)}")
    return lines


def summary_tables(document: Mapping[str, Any]) -> list[Table]:
    """All rows of the summary, one table per attack and seat."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in shown_rows(document):
        groups.setdefault((row["attack"], row["role"]), []).append(row)
    return [_table(f"{attack} ({role})", rows) for (attack, role), rows in groups.items()]


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title), style="bold")
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for column, width in (("defence", 12), ("metric", len("tpr_at_1pct_fpr"))):  # all fits into 80 columns
        table.add_column(column, overflow="fold", min_width=width)
    for column in ("score", "guess", "gain"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True, min_width=len("no leak found"))
    for row in rows:
        verdict = "upper bound" if row["oracle"] else row["verdict"]
        end = Text(verdict, style=STYLES.get(verdict, "dim"))
        table.add_row(*(Text(printable(cell)) for cell in _cells(row)), end)
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    metric = row["metric"]
    aware = {True: ", known", False: ", not known"}.get(row["aware"], "")
    gain = words.value(row["difference"], metric, sign=True)
    numbers = [words.value(row["mean"], metric), words.value(row["floor"], metric), gain]
    return [f"{words.defence_words(row['defence'])}{aware}", metric or "–", *numbers]


def print_summary(document: Mapping[str, Any], console: Console | None = None) -> None:
    """The tables of results, the verdicts and the worst findings."""
    from rich.console import Console
    from rich.text import Text

    target = Console() if console is None else console
    for table in summary_tables(document):
        target.print(table, "")
    for line in summary_lines(document):
        target.print(Text(line))
