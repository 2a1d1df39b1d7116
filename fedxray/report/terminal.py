"""The summary that an audit prints in the terminal when it ends."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedxray.audit.recorded.describe import heading, place, recordings_of, shortcomings, unlike, whose
from fedxray.errors import printable
from fedxray.metrics import units
from fedxray.report import words
from fedxray.report.overview import defence_verdicts, next_steps, worst_findings
from fedxray.report.rows import grouped, shown_rows

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {"leaks": "bold red", "inconclusive": "yellow", "no leak found": "green"}


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the verdict of each defence, the worst findings and the next steps, as plain lines."""
    return [start + text for start, text in _summary(document)]


def _summary(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of the summary, each split into its start and the text that may be wrapped."""
    findings = worst_findings(document)
    lines = [*_heading(document), *_verdicts(document)]
    lines += [("Worst findings:" if len(findings) > 1 else "Worst finding:", "")] if findings else []
    for finding in findings:
        lines.append(("  - ", f"{printable(finding.sentence)} {finding.meaning} ({printable(finding.title)})"))
    steps = next_steps(document)
    lines += [("Next steps:", "")] if steps else []
    return lines + [("  - ", printable(step)) for step in steps]


def _heading(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name, the number of cases, and the recordings that were audited."""
    cases = document["cases"]
    failed = sum(case["status"] != "ok" for case in cases)
    ending = f", {failed} failed or cut off" if failed else ""
    name = printable(str(document["plan"].get("name") or "audit"))
    lines = [("", f"{name}: {words.count(len(cases), 'case')}{ending}")]
    for recording in recordings_of(document):
        position = f"; recorder: {place(recording)}" if place(recording) else ""
        lines.append(("  recording: ", f"{heading(recording)}{position}"))
        lines += [("  owner of the node: ", whose(recording))] if whose(recording) else []
        lines += [("  ! ", unlike(recording))] if unlike(recording) else []
        lines += [("  ! ", f"{what}: {text}") for what, text in shortcomings(recording)]
    return lines


def _verdicts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a line per defence."""
    verdicts = defence_verdicts(document)
    names = [printable(f"{one.plan}: {one.name}" if one.plan else one.name) for one in verdicts]
    width = max(map(len, names), default=0)
    title = f"Verdict by defence, against the {words.FLOOR}:"
    return [(title, "")] * bool(verdicts) + [
        (f"  {name:<{width}}  {verdict.verdict:<13}  ", verdict.headline + (" (deployed)" if verdict.deployed else ""))
        for name, verdict in zip(names, verdicts, strict=True)
    ]


def summary_tables(document: Mapping[str, Any]) -> list[Table]:
    """Return all rows of the summary, one table per attack and role."""
    groups = grouped(shown_rows(document), lambda row: (row["attack"], row["role"]))
    return [_table(f"{attack} ({role})", rows) for (attack, role), rows in groups.items()]


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title), style="bold")
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for column, width in (("defence", 12), ("metric", len("tpr_at_1pct_fpr"))):  # all fits into 80 columns
        table.add_column(column, overflow="fold", min_width=width)
    for column in ("score", "floor", "gain"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True, min_width=len("no leak found"))
    for row in rows:
        verdict = "upper bound" if row["oracle"] else row["verdict"]
        end = Text(verdict, style=STYLES.get(verdict, "dim"))
        table.add_row(*(Text(printable(cell)) for cell in _cells(row)), end)
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    metric = row["metric"]
    aware = {True: ", known", False: ", unknown"}.get(row["aware"], "")
    gain = units.value(row["difference"], metric, sign=True)
    numbers = [units.value(row["mean"], metric), units.value(row["floor"], metric), gain]
    return [f"{words.defence_words(row['defence'])}{aware}", metric or "–", *numbers]


def print_summary(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the tables of results, the verdicts, the worst findings and the next steps."""
    from rich.console import Console
    from rich.text import Text

    target = Console() if console is None else console
    for table in summary_tables(document):
        target.print(table, "")
    for start, text in _summary(document):
        indent = " " * min(len(start), 2 * target.width // 3)
        wrapped = textwrap.wrap(
            text, target.width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
        )
        target.print(Text("\n".join(wrapped) or start))
