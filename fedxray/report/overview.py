"""The first screen: verdict per defence, worst findings, warnings, next steps, and what is at risk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.judge.gate import plans_of
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.describe import NOT_KNOWN, place, recordings_of, shortcomings, spoken, unlike, whose
from fedxray.metrics import units
from fedxray.report import words
from fedxray.report.rows import Row, attack_facts, deployed, grouped, plan_of, shown_rows, table
from fedxray.report.words import doubt

Document = Mapping[str, Any]
Cases = Sequence[Mapping[str, Any]]

# Verdicts

# Why measurements are inconclusive, by the key that `words.doubt` returns: of one, and of several.
DOUBTS: Mapping[str, tuple[str, str]] = {
    "ended": ("has no completed case", "have no completed case"),
    "lost": ("lost most of its cases", "lost most of their cases"),
    "room": (
        "cannot show a leak: the floor is already nearly perfect",
        "cannot show a leak: the floor is already nearly perfect",
    ),
    "floor": ("has no floor to compare with", "have no floor to compare with"),
    "units": ("has too few client-runs", "have too few client-runs"),
    "spread": ("has no interval, a recording is one run", "have no interval, a recording is one run"),
    "adjusted": (
        "is above the margin, but not after the correction for all comparisons",
        "are above the margin, but not after the correction for all comparisons",
    ),
    "either": (
        "is inconclusive: the interval contains the margin",
        "are inconclusive: their intervals contain the margin",
    ),
    "power": (
        "is below the margin, without proof that the attack would detect a leak",
        "are below the margin, without proof that the attack would detect a leak",
    ),
}
PREFERRED = ("rec",)  # a share of images is easier to read than decibels


@dataclass(frozen=True, kw_only=True)
class DefenceVerdict:
    """The verdict on one defence, ready to print."""

    plan: str | None  # where results of several plans stand together
    name: str
    deployed: bool
    verdict: str
    headline: str
    details: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WorstFinding:
    """One of the worst findings, ready to print."""

    title: str
    secret: str | None  # what leaks, in words
    verdict: str
    sentence: str
    meaning: str
    worst: tuple[str, str] | None


def counted(document: Document) -> list[Row]:
    """Return the rows that count for a verdict: all but those of oracles."""
    return [row for row in shown_rows(document) if not row["oracle"]]


def defence_verdicts(document: Document) -> list[DefenceVerdict]:
    """Return one verdict per defence, in the order of the results; the strongest attacker counts."""
    groups = grouped(counted(document), lambda row: (plan_of(row), row["defence"]))
    used = deployed(document)
    return [_defence_verdict(plan, name, rows, (plan, name) in used) for (plan, name), rows in groups.items()]


def overall(document: Document) -> str:
    """Return the verdict on the audit in one sentence."""
    counts = Counter(verdict.verdict for verdict in defence_verdicts(document))
    total, leaking = sum(counts.values()), counts["leaks"]
    if not total:
        return "Nothing was measured."
    if total == 1:
        return {
            "leaks": "It leaks.",
            "inconclusive": "Inconclusive: neither a leak nor safety was shown.",
            "no leak found": "No leak found.",
        }[next(iter(counts))]
    settings = words.count(total, "setting")
    if leaking:
        clauses = [f"Leaks in {'all' if leaking == total else leaking} of {settings}"]
    else:
        clauses = [f"No leak shown in any of {settings}"]
    clauses += [f"no leak found in {counts['no leak found']}"] if counts["no leak found"] else []
    clauses += [f"{counts['inconclusive']} inconclusive"] if counts["inconclusive"] else []
    return "; ".join(clauses) + "."


def _defence_verdict(plan: str | None, name: str, rows: Sequence[Row], in_use: bool) -> DefenceVerdict:
    verdicts = Counter(row["verdict"] for row in rows)
    total = words.count(len(rows), "measurement")
    if verdicts["leaks"]:
        verdict = "leaks"
        headline = f"{verdicts['leaks']} of {total} exceed floor plus margin."
        details = (_strongest_attack(rows), *_doubts(rows))
    elif verdicts["inconclusive"]:
        verdict = "inconclusive"
        headline = "Neither a leak nor safety was shown."
        details = tuple(_doubts(rows))
    else:
        verdict = "no leak found"
        headline = f"0 of {total} exceed floor plus margin; planted leaks are found."
        details = ()
    return DefenceVerdict(plan=plan, name=name, deployed=in_use, verdict=verdict, headline=headline, details=details)


def _strongest_attack(rows: Sequence[Row]) -> str:
    """Return the leaking row that exceeds its floor by the most margins, with its gain."""
    top = max((row for row in rows if row["verdict"] == "leaks"), key=strength)
    gain = units.value(top["difference"], top["metric"], sign=True)
    return f"Strongest: {top['attack']} by {words.role_words(top['role'])}, {gain} ({top['metric']})"


def _doubts(rows: Sequence[Row]) -> list[str]:
    """Return why measurements are inconclusive, counted."""
    counts = Counter(doubt(row) for row in rows if row["verdict"] == "inconclusive")
    return [
        f"{words.count(counts[name], 'measurement')} {single if counts[name] == 1 else several}"
        for name, (single, several) in DOUBTS.items()
        if counts[name]
    ]


# Worst findings


def worst_findings(document: Document, most: int = 3) -> list[WorstFinding]:
    """Return the worst findings, one per attack, role and defence; those of a deployed defence come first.

    An attack is ranked by its strongest metric and shown by its first one that leaks.
    """
    used = deployed(document)
    leaks = [row for row in counted(document) if row["verdict"] == "leaks"]
    groups = grouped(leaks, lambda row: (row["attack"], row["role"], row["defence"]))

    def rank(rows: Sequence[Row]) -> tuple[bool, float]:
        in_use = (plan_of(rows[0]), rows[0]["defence"]) in used
        return not in_use, -max(strength(row) for row in rows)

    secrets = secret_words(document)
    return [_finding(_shown(rows), secrets.get(rows[0]["attack"])) for rows in sorted(groups.values(), key=rank)[:most]]


def _shown(rows: Sequence[Row]) -> Row:
    """Return the row of the most readable metric, else of the first that leaks, of the stronger attacker."""
    metrics = [row["metric"] for row in rows]
    wanted = next((metric for metric in PREFERRED if metric in metrics), metrics[0])
    return max((row for row in rows if row["metric"] == wanted), key=strength)


def strength(row: Row) -> float:
    """Return the lower end of the gain's interval in margins."""
    if row["low"] is None or not row["margin"]:
        return 0.0
    return float(row["low"] / row["margin"])


def _finding(row: Row, secret: str | None) -> WorstFinding:
    metric = row["metric"]
    against = "without a defence" if row["defence"] == "none" else f"against {row['defence']}"
    aware = f" ({words.aware_words(row)})" if row["aware"] is not None else ""
    score = units.value(row["mean"], metric)
    gain = units.value(row["difference"], metric, sign=True).removeprefix("+")
    spread = units.between(row["low"], row["high"], metric, sign=True).replace("+", "").partition(units.GLUE)[0]
    sentence = (
        f"{words.finding_words(row['role'], metric, score, secret)} "
        f"Without any message {units.value(row['floor'], metric)} would be possible "
        f"(floor: {words.floor_words(row['over'])}). "
        f"Gain: {gain} (95 % interval {spread})."
    )
    return WorstFinding(
        title=f"{row['attack']}, run by {words.role_words(row['role'])}, {against}{aware}",
        secret=secret,
        verdict=row["verdict"],
        sentence=sentence,
        meaning=words.level_words(row),
        worst=worst_words(row),
    )


def worst_words(row: Row) -> tuple[str, str] | None:
    """Return the most exposed unit of a row: its score, and where it is."""
    worst = row["worst"]
    if worst is None:
        return None
    located = [f"{name} {worst[name]}" for name in ("client", "seed", "record") if worst[name] is not None]
    return units.value(worst["value"], row["metric"]), ", ".join(located)


# Next steps


def next_steps(document: Document) -> list[str]:
    """Return what to do about leaks, open verdicts and failed cases, the most urgent first."""
    rows = counted(document)
    steps = _leak_steps(rows, defence_verdicts(document))
    doubts = Counter(doubt(row) for row in rows if row["verdict"] == "inconclusive")
    if any(doubts[name] for name in ("units", "adjusted", "either")):
        more = "records" if recordings_of(document) else "seeds or target clients"
        steps.append(f"Inconclusive results: add {more} to the plan and audit into a new folder.")
    if doubts["power"]:
        steps.append("Gains below the margin without a passed power check: strengthen the attack or add seeds.")
    statuses = {case["status"] for case in document["cases"]}
    if statuses & {"failed", "truncated"}:
        steps.append("Failed or cut-off cases: fix the cause and repeat the command with --resume.")
    return steps


def _leak_steps(rows: Sequence[Row], verdicts: Sequence[DefenceVerdict]) -> list[str]:
    """Return what to do about rows that leak, plan by plan."""
    steps = []
    for plan in dict.fromkeys(verdict.plan for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.plan == plan]
        if any(verdict.verdict == "leaks" for verdict in own):
            steps.append(f"{plan}: {_defence_step(own)}" if plan else words.capital(_defence_step(own)))
    leaks = [row for row in rows if row["verdict"] == "leaks"]
    if leaks and all(row["kind"] == "population" for row in leaks):
        steps.append(
            "The trained model itself leaks: limit who receives it, or train without inputs that reveal the secret."
        )
    if leaks:
        steps.append(
            "Set limits ([[gate]] in the plan): “fedxray recommend” selects a defence, “fedxray gate” checks it."
        )
    return steps


def _defence_step(verdicts: Sequence[DefenceVerdict]) -> str:
    """Return which of a plan's defences to look at, where the plan leaks."""
    defences = [verdict for verdict in verdicts if verdict.name != "none"]
    safe = [verdict.name for verdict in defences if verdict.verdict == "no leak found"]
    unclear = [verdict.name for verdict in defences if verdict.verdict == "inconclusive"]
    if safe:
        return f"no leak found with {words.listed(safe)}; check its cost in utility."
    if unclear:
        return f"with {words.listed(unclear)} neither a leak nor safety was shown."
    if defences:
        return "no audited defence stops the leak; try stronger settings or other defences."
    return "add defences to the plan ([[defence]], see “fedxray list defences”) and audit again."


# Warnings before the verdict, where the audit was not of simulated clients with given data

MADE_UP = (
    "The records are synthetic, generated from a schema.",
    "They are the easiest case for an attacker that such columns or images allow: no column can be inferred from the "
    "others, and every client's model must encode the secret. A leak here shows what this network and training can "
    "reveal, not how much of your data would leak. No leak here does not prove that your data is safe. The utility on "
    "these records is no estimate for yours.",
)
RECORDED = (
    "This is a recording of one run of one node.",
    "Scores and intervals are over that node's own records: another run, node or set of records may leak more or "
    "less. A curious client is assumed to receive the same global models. Nothing was reconstructed from the messages "
    "of other nodes.",
)
UNLIKE = (
    "The results hold for these records and this node's messages only if they belong together. Check that the records "
    "are exactly those the node trained on, in the form in which its network received them."
)
NOT_WHOLE = "The recording is incomplete."
ONLY_THERE = "Attacks use what was recorded and may be weaker than a real attacker."
NO_PLACE = (
    "The position of the recorder is unknown.",
    "The list of mods was not recognised. If a mod changed the update after it was recorded, the server saw something "
    "other than what was attacked here.",
)
CHANGED = (
    "The update that was attacked is not the one that was sent.",
    "{} changed the update after it was recorded: the server saw something other than what was attacked here.",
)
BY_WORD = (
    "The ownership of this node is the user's statement.",
    "The node did not record this itself, and nothing in the recording proves that {} belongs to the owner of the "
    "records. Scores are against the given records only.",
)
SEARCHED = (
    "Part of the recipe was searched.",
    "Not recorded and not given: {}. Of the plan's candidates the one was chosen under which a short attack explains "
    "the first reply best. The records were not used for it.",
)
UNDECIDED = " Other candidates fit nearly as well for {}. If the choice is wrong, attacks were weaker than possible."
ABSENT = (
    "Part of the network was not recorded.",
    "No message contains {}; the values of the plan's network were used. If the node had other values, attacks were "
    "weaker than possible.",
)
MOVED = (
    "A frozen part of the network changed.",
    "The plan's network does not train {}, yet its values change in the recording; those of the first round were used "
    "throughout. If the node trains it, attacks were weaker than possible.",
)
MOST_PARAMETERS = 6  # names of parameters in one warning
REDUCED = (
    "The workload was reduced to meet the time limit.",
    "The limit was {}. Left out: {}. A leak that needs more to be detected may be missed.",
)
CUT = (
    "The time limit was reached.",
    "{} of {} cases were cut off by --budget; a row with such a case never counts as safe. Continue with --resume.",
)


def recorded_notice(document: Document) -> tuple[str, str] | None:
    """Return which node was recorded and what that means; None where no recording was audited."""
    recordings = recordings_of(document)
    if not recordings:
        return None
    named = [f"{words.capital(whose(one))}, {spoken(one)}." for one in recordings if whose(one)]
    return (" ".join(named), " ".join(RECORDED)) if named else RECORDED


def notices(document: Document) -> list[tuple[str, str]]:
    """Return warnings as pairs of a headline and its consequence."""
    synthetic = any("schema" in table(plan, "data") for plan in plans_of(document).values())
    recordings = [case["ledger"]["recording"] for case in document["cases"] if "recording" in case["ledger"]]
    return [
        *_time_notices(document),
        *([MADE_UP] if synthetic else []),
        *_recording_notices(recordings),
        *_network_notices(recordings),
    ]


def _time_notices(document: Document) -> list[tuple[str, str]]:
    """Return what a time limit left out before the audit, and what it cut off."""
    budget, cases = document.get("budget") or {}, document["cases"]
    warnings = []
    if budget.get("left_out"):
        warnings.append((REDUCED[0], REDUCED[1].format(budget["budget"], "; ".join(budget["left_out"]))))
    cut = sum(case.get("status") == "truncated" and not case.get("scores") for case in cases)
    if cut:
        warnings.append((CUT[0], CUT[1].format(cut, len(cases))))
    return warnings


def _recording_notices(recordings: Cases) -> list[tuple[str, str]]:
    """Return doubts about recordings: their records, completeness, position and owner."""
    warnings = [(f"{text}.", UNLIKE) for text in dict.fromkeys(map(unlike, recordings)) if text]
    missing = dict.fromkeys(f"{words.capital(what)}: {text}." for one in recordings for what, text in shortcomings(one))
    if missing:
        warnings.append((NOT_WHOLE, " ".join([*missing, ONLY_THERE])))
    if any(place(one) == NOT_KNOWN for one in recordings):
        warnings.append(NO_PLACE)
    nodes = dict.fromkeys(f"node {one.get('node')}" for one in recordings if one.get("owner") == ON_WORD)
    if nodes:
        warnings.append((BY_WORD[0], BY_WORD[1].format(words.listed(list(nodes)))))
    return warnings


def _network_notices(recordings: Cases) -> list[tuple[str, str]]:
    """Return doubts about what was attacked: a searched recipe, missing or changing layers, mods after the recorder."""
    warnings = []
    searches = [search for one in recordings if (search := one.get("recipe_searched") or {}).get("chosen")]
    if searches:
        chosen, undecided = searches[0]["chosen"], searches[0]["alike"]
        values = words.listed([f"{name} (now {value})" for name, value in chosen.items()])
        doubts = UNDECIDED.format(words.listed(undecided)) if undecided else ""
        warnings.append((SEARCHED[0], SEARCHED[1].format(values) + doubts))
    for key, (headline, text) in (("not_recorded", ABSENT), ("frozen_changed", MOVED)):
        names = list(dict.fromkeys(name for one in recordings for name in one.get(key) or ()))
        more = [f"{len(names) - MOST_PARAMETERS} more"] if len(names) > MOST_PARAMETERS else []
        if names:
            warnings.append((headline, text.format(words.listed(names[:MOST_PARAMETERS] + more))))
    mods = list(dict.fromkeys(mod for one in recordings for mod in one.get("changed_after") or ()))
    return [*warnings, (CHANGED[0], CHANGED[1].format(words.listed(mods)))] if mods else warnings


# What is at risk: what the clients learn together, and what must not leak

# What an attack of each kind infers; attributes name their column instead.
SECRETS: Mapping[str, str] = {
    "membership": "which records were trained on",
    "sources": "which client a record belongs to",
    "images": "the training images",
    "class-images": "what the images of a class look like",
    "labels": "how many examples of each class a client has",
    "rows": "the training records",
    "model": "the client's own model (its optimum)",
}


def learns(plan: Mapping[str, Any], cases: Cases) -> str:
    """Return what the model predicts: a column, or a class where the data have no columns."""
    column = _first_fact(cases, "target_column") or table(plan, "data").get("target")
    if column:
        return words.quoted(str(column))
    known = any("target_column" in case["ledger"] for case in cases)
    return "the class of each record" if known else ""


def must_not_leak(document: Document, plan: Mapping[str, Any], cases: Cases) -> str:
    """Return what the attacks of a plan try to infer."""
    kinds = dict.fromkeys(attack_facts(document, str(case["attack"])).get("kind") for case in cases)
    column = sensitive_column(plan, cases)
    secrets = {"attributes": words.quoted(column) if column else "the sensitive column", **SECRETS}
    return "; ".join(secrets[kind] for kind in kinds if kind in secrets)


def sensitive_column(plan: Mapping[str, Any], cases: Cases) -> str | None:
    """Return the column that must not leak, from the ledger or else from the plan."""
    column = _first_fact(cases, "sensitive") or table(plan, "data").get("sensitive")
    return str(column) if column else None


def standardised(cases: Cases) -> bool:
    """Whether the target is a number in units of its own standard deviation."""
    return bool(_first_fact(cases, "target_standardised"))


def secrets_of(document: Document) -> dict[str, str]:
    """Return the column that each attack on an attribute infers, by the attack's label."""
    columns = {}
    for plan_name, plan in plans_of(document).items():
        cases = [case for case in document["cases"] if plan_of(case) == plan_name]
        column = sensitive_column(plan, cases)
        for attack in dict.fromkeys(case["attack"] for case in cases):
            if column and attack_facts(document, attack).get("kind") == "attributes":
                columns[attack] = column
    return columns


def secret_words(document: Document) -> dict[str, str]:
    """Return what each attack infers, by its label; older results do not state it."""
    columns = secrets_of(document)
    labels = dict.fromkeys(str(case["attack"]) for case in document["cases"])
    kinds = {label: attack_facts(document, label).get("kind", "") for label in labels}
    quoted = {label: words.quoted(columns[label]) for label in labels if label in columns}
    return {label: SECRETS[kind] for label, kind in kinds.items() if kind in SECRETS} | quoted


def _first_fact(cases: Cases, key: str) -> Any:
    return next((case["ledger"][key] for case in cases if case["ledger"].get(key)), None)
