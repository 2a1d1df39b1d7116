"""`fedxray gate`: what it prints and how it ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.audit.judge.gate import Recommendation, Setting, recommend
from fedxray.errors import printable, some

if TYPE_CHECKING:
    from fedxray.audit.judge.compare import Change, Comparison, Spread
    from fedxray.audit.judge.gate import Judged

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
WORDS = {"pass": "passed", "fail": "FAILED", "inconclusive": "inconclusive"}


def run_gate(folder: Path, policy: Path | None, junit: Path | None, sarif: Path | None, strict: bool) -> int:
    """Judge every limit, print it and write it down where asked; returns the exit code."""
    from fedxray.audit.judge.gate import judge_gates, read_policy
    from fedxray.audit.judge.results import read_results

    document = read_results(folder)
    rules = None if policy is None else read_policy(policy)
    judged = judge_gates(document, rules, strict=strict)
    for line in gate_lines(judged):
        print(line)
    _write(junit, sarif, judged, folder, policy)
    return exit_code(judged)


def exit_code(judged: list[Judged]) -> int:
    """1 where a limit failed, else 3 where one is inconclusive, else 0."""
    outcomes = {one.outcome for one in judged}
    return next(EXIT[one] for one in ("fail", "inconclusive", "pass") if one in outcomes)


def gate_lines(judged: list[Judged]) -> list[str]:
    """What is printed: every limit, then how many of each outcome."""
    from fedxray.report.ci import measured

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
    from fedxray.report import ci

    if junit is not None:
        write_whole(junit, ci.junit(judged, folder.resolve().name), "JUnit")
    if sarif is not None:
        place = policy if policy is not None else folder / "plan.toml"
        write_whole(sarif, ci.sarif(judged, _uri(place)), "SARIF")


def _uri(place: Path) -> str:
    """A path as SARIF wants it: relative to where the command was given, in forward slashes, quoted."""
    from urllib.parse import quote

    whole, here = place.resolve(), Path.cwd()
    return quote((whole.relative_to(here) if whole.is_relative_to(here) else Path(place.name)).as_posix())


# --- `fedxray compare`: what it prints and how it ends.


WORSE = 1
HEADINGS = {
    "worse": "Worse, beyond the intervals:",
    "better": "Better, beyond the intervals:",
    "unknown": "Not comparable, an interval is missing or an attack did not end:",
}
MOST_NAMED = 10


def run_compare(first: Path, second: Path) -> int:
    """Print what changed from the first audit to the second; returns the exit code."""
    from fedxray.audit.judge.compare import compare
    from fedxray.audit.judge.results import read_results

    found = compare(read_results(first), read_results(second))
    for line in compare_lines(found):
        print(line)
    return WORSE if found.worse else 0


def compare_lines(found: Comparison) -> list[str]:
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


# --- `fedxray recommend`: what it prints and how it ends.


NONE_HOLDS = 1
DOUBT = "A limit that it keeps rests on an attack that may have seen nothing: see the doubts above."
CAUTION = (
    "It was chosen on the measurements that it is judged by, which flatters it a little: "
    "confirm it with other seeds before you rely on it."
)


def run_recommend(folder: Path, policy: Path | None = None) -> int:
    """Print every setting and the recommended one; returns the exit code."""
    from fedxray.audit.judge.gate import read_policy
    from fedxray.audit.judge.results import read_results

    found = recommend(read_results(folder), None if policy is None else read_policy(policy))
    for line in recommend_lines(found):
        print(line)
    return 0 if found.chosen is not None else NONE_HOLDS


def recommend_lines(found: Recommendation) -> list[str]:
    """What is printed: the limits, the settings, the choice."""
    text = ["Limits (upper end of the 95 % interval, worst attacker):"]
    text += [f"  {limit}" for limit in found.limits]
    width = max(len(one.defence) for one in found.settings) + 2 if found.settings else 2
    text.append("Settings:")
    for one in found.settings:
        text.append(f"  {one.defence:<{width}}{'holds' if one.holds else 'breaks':<8}{_worth(one)}".rstrip())
        text += [f"  {'':<{width}}{'':<8}{reason}" for reason in one.broken]
        text += [f"  {'':<{width}}{'':<8}doubt: {reason}" for reason in one.doubts if one.holds]
    if found.chosen is None:
        return [*text, "Recommended: none; no setting keeps every limit."]
    doubtful = [DOUBT] if found.chosen.doubts else []
    return [*text, f"Recommended: {found.chosen.defence}", *doubtful, CAUTION]


def _worth(one: Setting) -> str:
    if one.value is None:
        return "no utility was measured"
    spread = "" if one.low is None or one.high is None else f" ({one.low:.3g} to {one.high:.3g})"
    budget = "" if one.epsilon is None else f", epsilon {one.epsilon:.3g}"
    return f"{one.metric} {one.value:.3g}{spread}, cost {one.cost or 0.0:.3g}{budget}"
