"""`fedxray gate`, `recommend`, `compare` and `claim`: their output and exit codes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.audit.judge.gate import DefenceChoice, Recommendation, recommend
from fedxray.errors import BadInput, printable, some
from fedxray.metrics import units

if TYPE_CHECKING:
    from fedxray.audit.judge.compare import Change, Comparison
    from fedxray.audit.judge.gate import Judged

# `fedxray gate`

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
OUTCOMES = {"pass": "passed", "fail": "FAILED", "inconclusive": "inconclusive"}


def run_gate(folder: Path, policy: Path | None, junit: Path | None, sarif: Path | None) -> int:
    """Judge every limit, print it, write JUnit and SARIF where asked, and return the exit code."""
    from fedxray.audit.judge.gate import judge_gates, read_policy
    from fedxray.audit.judge.results import read_results

    document = read_results(folder)
    rules = None if policy is None else read_policy(policy)
    judged = judge_gates(document, rules)
    print("\n".join(gate_lines(judged)))
    _write(junit, sarif, judged, folder, policy)
    outcomes = {limit.outcome for limit in judged}
    return next(EXIT[outcome] for outcome in ("fail", "inconclusive", "pass") if outcome in outcomes)


def gate_lines(judged: list[Judged]) -> list[str]:
    """Return the printed lines: every limit, then the number of each outcome."""
    from fedxray.report.ci import measured, state

    lines = []
    for limit in judged:
        known = "" if limit.state is None else f", {state(limit)}"
        texts = [limit.title, f"{measured(limit)}{known}: {limit.reason}"]
        starts = (OUTCOMES[limit.outcome], "")
        lines += [f"{start:<14}{printable(text)}" for start, text in zip(starts, texts, strict=True)]
    counts: Counter[str] = Counter(limit.outcome for limit in judged)
    total = ", ".join(f"{counts[name]} {OUTCOMES[name].lower()}" for name in EXIT if counts[name])
    return [*lines, f"Limits: {total}."]


def _write(junit: Path | None, sarif: Path | None, judged: list[Judged], folder: Path, policy: Path | None) -> None:
    from fedxray.files import table_lines, write_whole
    from fedxray.report import ci

    if junit is not None:
        write_whole(junit, ci.junit(judged, folder.resolve().name), "JUnit")
    if sarif is not None:
        source = policy if policy is not None else folder / "plan.toml"
        lines = table_lines(source.read_bytes(), "gate") if source.is_file() else []
        write_whole(sarif, ci.sarif(judged, _uri(source), lines), "SARIF")


def _uri(path: Path) -> str:
    """Return a path for SARIF: relative to the working directory, with forward slashes, quoted."""
    from urllib.parse import quote

    absolute, here = path.resolve(), Path.cwd()
    relative = absolute.relative_to(here) if absolute.is_relative_to(here) else Path(path.name)
    return quote(relative.as_posix())


# `fedxray compare`

HEADINGS = {
    "worse": "Worse, beyond the intervals:",
    "leaks": "Worse by the verdict, a leak that was none before:",
    "better": "Better, beyond the intervals:",
    "unknown": "Not comparable, an interval is missing or an attack failed:",
    "changed": "Verdict changed, the numbers are the same within the intervals:",
}
MOST_NAMED = 10


def compare_lines(comparison: Comparison) -> list[str]:
    """Return the printed lines: differences of the plans, changes by outcome, rows that only one audit has."""
    lines = []
    if comparison.plans_differ:
        keys = some(comparison.plans_differ, MOST_NAMED, between="; ")
        lines.append(f"The plans differ in {printable(keys)}.")
    for outcome, heading in HEADINGS.items():
        changes = [change for change in comparison.changes if change.outcome == outcome]
        lines += [heading, *(line for change in changes for line in _change_lines(change))] if changes else []
    same = [change for change in comparison.changes if change.outcome == "same"]
    if same:
        lines.append(f"Same within the intervals: {len(same)} of {len(comparison.changes)} rows.")
        lines += [line for change in same if change.note for line in _change_lines(change)]
    for name, titles in (("first", comparison.only_first), ("second", comparison.only_second)):
        named = printable(some(list(dict.fromkeys(titles)), MOST_NAMED, between="; "))
        lines += [f"Only in the {name}: {named}."] if titles else []
    return [*lines, _conclusion(comparison)]


def _conclusion(comparison: Comparison) -> str:
    """Return the comparison in one sentence; rows that could not be compared are counted."""
    if comparison.worse:
        return "Something got worse."
    unknown = sum(change.outcome == "unknown" for change in comparison.changes) + len(comparison.only_first)
    leak = {(True, True): ", but both leak", (False, True): ", but the second leaks"}.get(comparison.leak, "")
    aside = f"; {unknown} of the first's rows could not be compared" if unknown else ""
    return f"Nothing got worse beyond the intervals{leak}{aside}."


def _change_lines(change: Change) -> list[str]:
    before, after = (
        _spread(spread.value, spread.low, spread.high, change.metric, spread.floor)
        for spread in (change.before, change.after)
    )
    note = [f"    {printable(change.note)}"] if change.note else []
    return [f"  {printable(change.title)}: {before} → {after}", *note]


def _spread(value: float | None, low: float | None, high: float | None, metric: str, floor: float | None = None) -> str:
    """Return a value with its interval: a gain in points over its floor, utility as a score."""
    if value is None:
        return "nothing"
    base = metric.removesuffix(units.OVER_FLOOR)
    sign = base != metric  # a gain
    interval = "" if low is None or high is None else f" ({units.between(low, high, base, sign=sign, floor=floor)})"
    return f"{units.value(value, base, sign=sign)}{interval}"


# `fedxray recommend`

CAUTION = (
    "The defence was chosen on the same measurements that judge it, which is slightly optimistic: "
    "confirm it with other seeds before relying on it."
)


def run_recommend(folder: Path, policy: Path | None = None) -> int:
    """Print every defence and the recommended one and return the exit code."""
    from fedxray.audit.judge.gate import read_policy
    from fedxray.audit.judge.results import read_results

    recommendation = recommend(read_results(folder), None if policy is None else read_policy(policy))
    print("\n".join(recommend_lines(recommendation)))
    return 0 if recommendation.chosen is not None else 1


def recommend_lines(recommendation: Recommendation) -> list[str]:
    """Return the printed lines: the limits, the defences, the choice."""
    lines = ["Limits (as in a gate, strongest attacker):"]
    lines += [f"  {printable(limit)}" for limit in recommendation.limits]
    lines += [f"  no limit: {printable(attack)}, which does not count" for attack in recommendation.unlimited]
    settings = recommendation.settings
    width = max(len(setting.defence) for setting in settings) + 2 if settings else 2
    lines.append("Settings:")
    for setting in settings:
        outcome = "holds" if setting.holds else "breaks" if setting.fails else "open"
        lines.append(f"  {printable(setting.defence):<{width}}{outcome:<8}{_utility(setting)}".rstrip())
        notes = [*setting.broken, *([_no_better(setting)] if setting.holds and setting.guess is not None else [])]
        lines += [f"  {'':<{width}}{'':<8}{printable(note)}" for note in notes]
    if recommendation.chosen is None:
        useless = [setting for setting in settings if setting.holds]
        if useless:
            named = printable(some([setting.defence for setting in useless], MOST_NAMED))
            return [*lines, f"No recommendation: {named} would keep every limit, but {_no_better(useless[0])}."]
        undecided = any(not setting.fails for setting in settings)
        return [*lines, f"No recommendation: no setting {'is shown to keep' if undecided else 'keeps'} every limit."]
    return [*lines, f"Recommended: {printable(recommendation.chosen.defence)}", CAUTION]


def _no_better(setting: DefenceChoice) -> str:
    guess = units.value(setting.guess, setting.metric)
    return f"the model is then not shown to be better than a constant guess ({guess}): try a weaker setting"


def _utility(setting: DefenceChoice) -> str:
    if setting.value is None or setting.metric is None:
        return "utility was not measured"
    value = _spread(setting.value, setting.low, setting.high, setting.metric)
    cost = units.amount(setting.cost or 0.0, setting.metric)
    budget = "" if setting.epsilon is None else f", epsilon {setting.epsilon:.3g}"
    return f"{printable(setting.metric)} {value}, cost {cost}{budget}"


# `fedxray claim`


def run_claim(subject: str, settings: list[str]) -> None:
    """Print the claims of an audit, or of a filter worked out from its settings."""
    from fedxray.audit.accounting import ACCOUNTED, claim_lines, number, work_out
    from fedxray.audit.judge.claims import claims_of
    from fedxray.audit.judge.results import read_results

    if subject in ACCOUNTED:
        print("\n".join(claim_lines(work_out(subject, settings))))
        return
    if not Path(subject).exists():
        expected = f"the folder of an audit, or {', '.join(ACCOUNTED)}"
        raise BadInput("claim", expected=expected, got=repr(subject), remedy="Check the path or the name.")
    key, _, value = settings[0].partition("=") if settings else ("epsilon", "", "")
    if key != "epsilon" or len(settings) > 1:
        remedy = "For instance: fedxray claim DIR epsilon=1"
        raise BadInput("claim", expected="at most epsilon beside a folder", got=" ".join(settings), remedy=remedy)
    claims = claims_of(read_results(Path(subject)), number("epsilon", value) if settings else None)
    print("\n".join(claim_lines(claims) if claims else [NO_CLAIM]))


NO_CLAIM = "No defence of this audit claims an epsilon, and none was measured: add [canaries] to the plan."
