"""What a reader should know first: a verdict per defence, and the worst findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.judge.gate import plans_of
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.describe import (
    NOT_KNOWN,
    place,
    recordings_of,
    shortcomings,
    spoken,
    unlike,
    whose,
)
from fedxray.report import words
from fedxray.report.rows import Row, attack_facts, deployed, plan_of, shown_rows, table
from fedxray.report.words import NOBODY_KNOWS_WHOSE, doubt

# --- What a reader must know before the verdict, where the audit was not of simulated clients with given
# data.


MADE_UP = (
    "The records were made up by a schema.",
    "They are the easiest case for an attacker that such columns or images allow: nothing can be filled in from other "
    "columns, and every client's model must hold the secret. A leak here shows what this network and this training can "
    "give away, not how much of your data would leak. No leak here does not prove that your data is safe. What the "
    "model is worth on these records says nothing about yours.",
)
RECORDED = (
    "This is a recording of one run of one node.",
    "The scores are over that node's own records, and the intervals too: another run, node or set of records may "
    "leak more or less. A fellow client is assumed to be sent the same global models. Nothing was reconstructed from "
    "what other nodes sent.",
)
UNLIKE = (
    "Whatever is said below is about these records and that node's messages, so it may say nothing about either. Are "
    "they all that it trained on and nothing else, as its network got them?"
)
NOT_WHOLE = "The recording is not whole."
ONLY_THERE = "Attacks read what is there, so they may have been weaker than they could be."
NO_PLACE = (
    "Where the recorder stood is not known.",
    "The list of mods was not recognised. If a mod changed the update after it was recorded, a server saw something "
    "else than what was attacked here.",
)
CHANGED = (
    "{} changed the update after it was recorded: a server saw something else than what was attacked here."
)
BY_WORD = (
    "That this node is the auditor's own is taken on the user's word.",
    "The node did not record this itself, and nothing in it proves that {} belongs to whoever gave the records. "
    "Scores are only against the records that were given.",
)
SEARCHED = (
    "Part of the recipe was searched.",
    "Nobody told {}; of the plan's candidates the one was taken under which a short attack explained the first reply "
    "best. The records played no part in it.",
)
ALIKE = (
    " Not told apart, since other candidates fit nearly as well: {}. If they are wrong, attacks were weaker."
)
ABSENT = (
    "Part of the network was not recorded.",
    "No message holds {}; the values that the plan's network gives were taken. If the node had others, the attacks "
    "were weaker than they could be.",
)
MOVED = (
    "A part that should stand still moved.",
    "The plan's network does not train {}, yet its values change in the recording; those of the first round were taken "
    "for all. If the node trains it, the attacks were weaker than they could be.",
)
SHOWN = 6  # names of parameters
LESS = (
    "Less was done than planned.",
    "The audit had to end within {}. So, before it began: {}. A leak that it would have taken more to see is not seen.",
)
CUT = (
    "The time was over.",
    "{} of {} cases were cut off by --budget; a row with such a case is never called safe. Go on with --resume.",
)


def recorded_notice(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """Whose node was recorded and what that means, where a recording was audited; it warns of nothing."""
    recordings = recordings_of(document)
    if not recordings:
        return None
    named = [f"{words.capital(whose(one))}, {spoken(one)}." for one in recordings if whose(one)]
    return (" ".join(named), " ".join(RECORDED)) if named else RECORDED


def notices(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Warnings: pairs of a headline and what follows from it."""
    plans = list(plans_of(document).values())
    found = _short_of_time(document)
    found += [MADE_UP] if any("schema" in table(plan, "data") for plan in plans) else []
    recordings = [case["ledger"]["recording"] for case in document["cases"] if "recording" in case["ledger"]]
    found += [(f"{text}.", UNLIKE) for text in dict.fromkeys(map(unlike, recordings)) if text]
    gone = list(
        dict.fromkeys(
            f"{words.capital(word)}: {text}." for one in recordings for word, text in shortcomings(one)
        )
    )
    if gone:
        found.append((NOT_WHOLE, " ".join([*gone, ONLY_THERE])))
    if any(place(one) == NOT_KNOWN for one in recordings):
        found.append(NO_PLACE)
    named = list(
        dict.fromkeys(f"node {one.get('node')}" for one in recordings if one.get("owner") == ON_WORD)
    )
    if named:
        found.append((BY_WORD[0], BY_WORD[1].format(words.listed(named))))
    searches = [
        one["recipe_searched"] for one in recordings if (one.get("recipe_searched") or {}).get("chosen")
    ]
    if searches:
        values = words.listed([f"{name} (now {value})" for name, value in searches[0]["chosen"].items()])
        doubt = ALIKE.format(words.listed(searches[0]["alike"])) if searches[0]["alike"] else ""
        found.append((SEARCHED[0], SEARCHED[1].format(values) + doubt))
    for key, (headline, text) in (("not_recorded", ABSENT), ("frozen_changed", MOVED)):
        names = list(dict.fromkeys(name for one in recordings for name in one.get(key) or ()))
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        if names:
            found.append((headline, text.format(words.listed(names[:SHOWN] + more))))
    later = list(dict.fromkeys(mod for one in recordings for mod in one.get("changed_after") or ()))
    if later:
        found.append(("What was attacked is not what was sent.", CHANGED.format(words.listed(later))))
    return found


def _short_of_time(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a limit on time took from an audit, before it began and when the time was over."""
    chosen, cases = document.get("budget") or {}, document["cases"]
    found = []
    if chosen.get("left_out"):
        found.append((LESS[0], LESS[1].format(chosen["budget"], "; ".join(chosen["left_out"]))))
    cut = sum(case.get("status") == "truncated" and not case.get("scores") for case in cases)
    if cut:
        found.append((CUT[0], CUT[1].format(cut, len(cases))))
    return found


# --- What was at stake: what the clients learn together, and what must not leak while they do.


Cases = Sequence[Mapping[str, Any]]

# What an attack of each kind is after; attributes name their column instead.
SECRETS: Mapping[str, str] = {
    "membership": "which records were trained on",
    "sources": "which client a record belongs to",
    "images": "the training images",
    "class-images": "what the images of a class look like",
    "labels": "how many examples of each class a client has",
    "rows": "the training records",
    "model": "the model that fits a client alone",
}


def learns(plan: Mapping[str, Any], cases: Cases) -> str:
    """What the model learns to tell: a column, or a class where the data have no columns."""
    found = _told(cases, "target_column") or table(plan, "data").get("target")
    if found:
        return words.quoted(str(found))
    known = any("target_column" in case["ledger"] for case in cases)
    return "the class of each record" if known else ""


def must_not_leak(document: Mapping[str, Any], plan: Mapping[str, Any], cases: Cases) -> str:
    """What the attacks of a plan try to infer."""
    kinds = dict.fromkeys(attack_facts(document, str(case["attack"])).get("kind") for case in cases)
    column = sensitive_column(plan, cases)
    named = {"attributes": words.quoted(column) if column else "the sensitive column", **SECRETS}
    return "; ".join(named[kind] for kind in kinds if kind in named)


def sensitive_column(plan: Mapping[str, Any], cases: Cases) -> str | None:
    """The column that must not leak, as the ledger has it, or else as the plan names it."""
    found = _told(cases, "sensitive") or table(plan, "data").get("sensitive")
    return str(found) if found else None


def standardised(cases: Cases) -> bool:
    """Whether the target is a number in units of its own spread."""
    return bool(_told(cases, "target_standardised"))


def secrets_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The column that each attack on an attribute is after, by the attack's label."""
    found = {}
    for plan_name, plan in plans_of(document).items():
        cases = [case for case in document["cases"] if plan_of(case) == plan_name]
        column = sensitive_column(plan, cases)
        for attack in dict.fromkeys(case["attack"] for case in cases):
            if column and attack_facts(document, attack).get("kind") == "attributes":
                found[attack] = column
    return found


def secret_words(document: Mapping[str, Any]) -> dict[str, str]:
    """What each attack infers, by its label; older results do not state it."""
    columns = secrets_of(document)
    labels = dict.fromkeys(str(case["attack"]) for case in document["cases"])
    kinds = {label: attack_facts(document, label).get("kind", "") for label in labels}
    named = {one: words.quoted(columns[one]) for one in labels if one in columns}
    return {one: SECRETS[kind] for one, kind in kinds.items() if kind in SECRETS} | named


def _told(cases: Cases, key: str) -> Any:
    return next((case["ledger"][key] for case in cases if case["ledger"].get(key)), None)


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
