"""`fedxray gate`: what it prints and how it ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.errors import printable

if TYPE_CHECKING:
    from fedxray.audit.gate import Judged

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
WORDS = {"pass": "passed", "fail": "FAILED", "inconclusive": "inconclusive"}


def run_gate(folder: Path, policy: Path | None, junit: Path | None, sarif: Path | None, strict: bool) -> int:
    """Judge every limit, print it and write it down where asked; returns the exit code."""
    from fedxray.audit.gate import judge_gates, read_policy
    from fedxray.audit.results import read

    document = read(folder)
    rules = None if policy is None else read_policy(policy)
    judged = judge_gates(document, rules, strict=strict)
    for line in lines(judged):
        print(line)
    _write(junit, sarif, judged, folder, policy)
    return exit_code(judged)


def exit_code(judged: list[Judged]) -> int:
    """1 where a limit failed, else 3 where one is inconclusive, else 0."""
    outcomes = {one.outcome for one in judged}
    return next(EXIT[one] for one in ("fail", "inconclusive", "pass") if one in outcomes)


def lines(judged: list[Judged]) -> list[str]:
    """What is printed: every limit, then how many of each outcome."""
    from fedxray.report.checks import measured

    text = []
    for one in judged:
        told = [one.title, f"{measured(one)}: {one.reason}", *([f"doubt: {one.doubt}"] if one.doubt else [])]
        names = (WORDS[one.outcome], "", "")
        text += [f"{name:<14}{printable(line)}" for name, line in zip(names, told, strict=False)]
    counts: Counter[str] = Counter(one.outcome for one in judged)
    ends = ", ".join(f"{counts[one]} {WORDS[one].lower()}" for one in EXIT if counts[one])
    return [*text, f"Limits: {ends}."]


def _write(
    junit: Path | None, sarif: Path | None, judged: list[Judged], folder: Path, policy: Path | None
) -> None:
    from fedxray.files import write_whole
    from fedxray.report import checks

    if junit is not None:
        write_whole(junit, checks.junit(judged, folder.resolve().name), "JUnit")
    if sarif is not None:
        place = policy if policy is not None else folder / "plan.toml"
        write_whole(sarif, checks.sarif(judged, _uri(place)), "SARIF")


def _uri(place: Path) -> str:
    """A path as SARIF wants it: relative to where the command was given, in forward slashes, quoted."""
    from urllib.parse import quote

    whole, here = place.resolve(), Path.cwd()
    return quote((whole.relative_to(here) if whole.is_relative_to(here) else Path(place.name)).as_posix())
