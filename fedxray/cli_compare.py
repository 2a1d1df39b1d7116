"""`fedxray compare`: what it prints and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.errors import printable, some

if TYPE_CHECKING:
    from fedxray.audit.compare import Change, Comparison, Spread

WORSE = 1
HEADINGS = {
    "worse": "Worse, beyond the intervals:",
    "better": "Better, beyond the intervals:",
    "unknown": "Not comparable, an interval is missing or an attack did not end:",
}
MOST_NAMED = 10


def run_compare(first: Path, second: Path) -> int:
    """Print what changed from the first audit to the second; returns the exit code."""
    from fedxray.audit.compare import compare
    from fedxray.audit.results import read

    found = compare(read(first), read(second))
    for line in lines(found):
        print(line)
    return WORSE if found.worse else 0


def lines(found: Comparison) -> list[str]:
    """What is printed: differences of the plans, changes by outcome, rows that only one audit has."""
    text = []
    if found.plans_differ:
        text.append(f"The plans differ in {printable(some(found.plans_differ, MOST_NAMED, between='; '))}.")
    for outcome, heading in HEADINGS.items():
        own = [one for one in found.changes if one.outcome == outcome]
        text += [heading, *(line for one in own for line in _told(one))] if own else []
    same = [one for one in found.changes if one.outcome == "same"]
    if same:
        text.append(f"The same within the intervals: {len(same)} of {len(found.changes)} rows.")
        text += [line for one in same if one.note for line in _told(one)]
    for name, titles in (("first", found.only_first), ("second", found.only_second)):
        text += (
            [f"Only in the {name}: {printable(some(titles, MOST_NAMED, between='; '))}."] if titles else []
        )
    return [*text, _last(found)]


def _last(found: Comparison) -> str:
    """The whole in one sentence; what could not be compared is no good news."""
    if found.worse:
        return "Something got worse."
    open_rows = sum(one.outcome == "unknown" for one in found.changes) + len(found.only_first)
    aside = f"; {open_rows} of the first's rows could not be compared" if open_rows else ""
    return f"Nothing got worse beyond the intervals{aside}."


def _told(one: Change) -> list[str]:
    return [
        f"  {printable(one.title)}: {_spread(one.before)} → {_spread(one.after)}",
        *([f"    {printable(one.note)}"] if one.note else []),
    ]


def _spread(one: Spread) -> str:
    if one.value is None:
        return "nothing"
    between = "" if one.low is None or one.high is None else f" ({one.low:.3g} to {one.high:.3g})"
    return f"{one.value:.3g}{between}"
