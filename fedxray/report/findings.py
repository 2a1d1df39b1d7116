"""What a reader should know first: a verdict per defence, and the worst findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.report import words
from fedxray.report.plans import deployed, plan_of
from fedxray.report.reasons import NOBODY_KNOWS_WHOSE, doubt
from fedxray.report.rows import Row, shown_rows
from fedxray.report.stakes import secret_words, secrets_of

DOUBTS = {
    "ended": "came from attacks that did not end",
    "lost": "came from attacks that mostly did not end",
    "room": "have no room for a leak, as the guess without messages is already nearly perfect",
    "floor": "had no guess to be compared with",
    "units": "rest on too few client-runs",
    "spread": "have no interval, as a recording is one run",
    "adjusted": "are above the least that counts as a leak, but not clearly enough for so many comparisons",
    "either": "could go either way",
    "power": "stay below the least that counts as a leak, but nothing shows that the attack would have seen one",
}


SPEAKING = ("rec",)  # a share of images says more than decibels


@dataclass(frozen=True, kw_only=True)
class DefenceVerdict:
    """The verdict on one defence in plain words."""

    plan: str | None  # where results of several plans stand together
    name: str
    deployed: bool
    verdict: str
    headline: str
    details: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One of the worst findings in plain words."""

    title: str
    secret: str | None  # what leaks, in words
    verdict: str
    sentence: str
    meaning: str | None
    kind: str | None
    worst: tuple[str, str] | None


def counted(document: Mapping[str, Any]) -> list[Row]:
    """The rows that count for a verdict: those of attacks that somebody could run."""
    return [row for row in shown_rows(document) if not row["oracle"]]


def defence_verdicts(document: Mapping[str, Any]) -> list[DefenceVerdict]:
    """One verdict per defence, in the order of the results; the strongest attacker counts."""
    groups: dict[tuple[str | None, str], list[Row]] = {}
    for row in counted(document):
        groups.setdefault((plan_of(row), row["defence"]), []).append(row)
    used = deployed(document)
    return [_defence_verdict(plan, name, rows, (plan, name) in used) for (plan, name), rows in groups.items()]


def overall(document: Mapping[str, Any]) -> str:
    """The verdict on everything in one sentence."""
    found = Counter(one.verdict for one in defence_verdicts(document))
    total, leaking = sum(found.values()), found["leaks"]
    if not total:
        return "Nothing was measured."
    if total == 1:
        return {
            "leaks": "It leaks.",
            "inconclusive": "Open: no leak was shown, and safety was not shown either.",
            "no leak found": "No leak found.",
        }[next(one for one in found if found[one])]
    settings = words.count(total, "setting")
    if leaking:
        told = [f"Leaks in {'all' if leaking == total else leaking} of {settings}"]
    else:
        told = [f"No leak shown in any of {settings}"]
    told += [f"no leak found in {found['no leak found']}"] if found["no leak found"] else []
    told += [f"{found['inconclusive']} could not be decided"] if found["inconclusive"] else []
    return "; ".join(told) + "."


def _defence_verdict(plan: str | None, name: str, rows: Sequence[Row], in_use: bool) -> DefenceVerdict:
    verdicts = Counter(row["verdict"] for row in rows)
    total = words.count(len(rows), "measurement")
    if verdicts["leaks"]:
        verdict = "leaks"
        headline = f"{verdicts['leaks']} of {total} show more than could be guessed without any message."
        details = (_strongest_words(rows), *_doubts(rows))
    elif verdicts["inconclusive"]:
        verdict = "inconclusive"
        headline = "No leak was shown, and safety was not shown either."
        details = tuple(_doubts(rows))
    else:
        verdict = "no leak found"
        headline = (
            f"None of {total} beats the guess by enough to count, by attacks that do find planted leaks."
        )
        details = ()
    return DefenceVerdict(
        plan=plan, name=name, deployed=in_use, verdict=verdict, headline=headline, details=details
    )


def _strongest_words(rows: Sequence[Row]) -> str:
    """The attack that gets furthest beyond its guess."""
    top = max((row for row in rows if row["verdict"] == "leaks"), key=strength)
    return f"strongest: {top['attack']}, run by {words.role_words(top['role'])}"


def _doubts(rows: Sequence[Row]) -> list[str]:
    """Why measurements stay open, counted."""
    found = Counter(doubt(row) for row in rows if row["verdict"] == "inconclusive")
    return [
        f"{words.count(found[name], 'measurement')} {_agree(found[name], text)}"
        for name, text in DOUBTS.items()
        if found[name]
    ]


def _agree(number: int, text: str) -> str:
    """The sentence for one thing in place of several."""
    verb, _, rest = text.partition(" ")
    single = {
        "came": "came",
        "had": "had",
        "rest": "rests",
        "are": "is",
        "could": "could",
        "stay": "stays",
        "have": "has",
    }
    return text if number != 1 else f"{single[verb]} {rest}"


def worst_findings(document: Mapping[str, Any], most: int = 3) -> list[Finding]:
    """The worst findings, one per attack, seat and defence; those of a deployed defence come first.

    An attack is ranked by its strongest metric and shown by its first one that leaks.
    """
    used = deployed(document)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in counted(document):
        if row["verdict"] == "leaks":
            groups.setdefault((row["attack"], row["role"], row["defence"]), []).append(row)
    ordered = sorted(groups.values(), key=lambda rows: (_key(rows[0]) not in used, -_strongest(rows)))
    columns, secrets = secrets_of(document), secret_words(document)
    return [
        _finding(_shown(rows), columns.get(rows[0]["attack"]), secrets.get(rows[0]["attack"]))
        for rows in ordered[:most]
    ]


def _key(row: Row) -> tuple[str | None, str]:
    return plan_of(row), row["defence"]


def _strongest(rows: Sequence[Row]) -> float:
    return max(strength(row) for row in rows)


def _shown(rows: Sequence[Row]) -> Row:
    """The metric that says most to people, else the first that leaks, of the attacker that does better by it."""
    metrics = [row["metric"] for row in rows]
    wanted = next((metric for metric in SPEAKING if metric in metrics), metrics[0])
    return max((row for row in rows if row["metric"] == wanted), key=strength)


def strength(row: Row) -> float:
    """How many margins the difference lies above zero, by the lower end of its interval."""
    if row["low"] is None or not row["margin"]:
        return 0.0
    return float(row["low"] / row["margin"])


def _finding(row: Row, column: str | None, secret: str | None) -> Finding:
    metric = row["metric"]
    against = "without a defence" if row["defence"] == "none" else f"against {row['defence']}"
    aware = f" ({words.aware_words(row)})" if row["aware"] is not None else ""
    gain = words.value(row["difference"], metric, sign=True)
    spread = words.between(row["low"], row["high"], metric, sign=True)
    measured = words.capital(words.metric_words(metric, column))
    sentence = (
        f"{measured}: {words.value(row['mean'], metric)}. Without any message, "
        f"{words.floor_words(row['over'])} gives {words.value(row['floor'], metric)}. "
        f"The messages add {gain.removeprefix('+')} (95 % interval {spread})."
    )
    return Finding(
        title=f"{row['attack']}, run by {words.role_words(row['role'])}, {against}{aware}",
        secret=secret,
        verdict=row["verdict"],
        sentence=sentence,
        meaning=words.KIND_MEANINGS.get(row["kind"] or "", NOBODY_KNOWS_WHOSE),
        kind=words.KINDS.get(row["kind"] or ""),
        worst=worst_words(row),
    )


def worst_words(row: Row) -> tuple[str, str] | None:
    """The most exposed unit of a row: its value, and where it is."""
    worst = row["worst"]
    if worst is None:
        return None
    parts = [f"{name} {worst[name]}" for name in ("client", "seed", "record") if worst[name] is not None]
    return words.value(worst["value"], row["metric"]), ", ".join(parts)
