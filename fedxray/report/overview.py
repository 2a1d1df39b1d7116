"""The first screen: headline, a card per defence, next steps, warnings, and what is at risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.judge.gate import UTILITY, label_of, learned, parts, plans_of
from fedxray.audit.judge.results import failure_line
from fedxray.audit.judge.verdict import DECIDED, is_bounded
from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.describe import (
    IDLE,
    NOT_KNOWN,
    TOGETHER,
    measured_filters,
    place,
    recordings_of,
    shortcomings,
    spoken,
    unlike,
    whose,
)
from fedxray.metrics import units
from fedxray.metrics.table import BY_PERSON
from fedxray.report import states, words
from fedxray.report.rows import Row, attack_facts, deployed, grouped, judged, plan_of, table, utilities

Document = Mapping[str, Any]
Cases = Sequence[Mapping[str, Any]]

# The headline, and a card per defence: the worst row decides

FROM = "fedxray sets the margin of each metric; limits of your own: [[gate]] in the plan."


@dataclass(frozen=True, kw_only=True)
class Card:
    """One defence, ready to print: its worst row in sentences, and one line for each other row."""

    plan: str | None  # where results of several plans stand together
    name: str
    deployed: bool
    state: str
    headline: str
    secret: str | None  # what is at risk, in words
    attack: str
    sentence: str
    facts: tuple[tuple[str, str], ...]  # term and text
    step: str
    command: str  # that carries the step out; empty where none does
    first: str | None  # the defence whose own step comes before this one, if any
    others: tuple[tuple[str, str, str], ...]  # attack, its numbers, state
    row: Row


def cards(document: Document) -> list[Card]:
    """Return a card per defence; deployed ones first, then the worst."""
    used, secrets, rows = deployed(document), secret_words(document), judged(document)
    columns = secrets_of(document)
    groups = grouped(rows, lambda row: (plan_of(row), row["defence"]))
    made = []
    for (plan, name), own in groups.items():
        worst, *others = sorted(own, key=states.severity)
        step, command, first = _step(document, worst, rows, columns.get(worst["attack"]))
        card = Card(
            plan=plan,
            name=name,
            deployed=(plan, name) in used,
            state=worst["state"],
            headline=_all_clear(own) if worst["state"] == "no leak found" else states.headline(worst),
            secret=secrets.get(worst["attack"]),
            attack=_attack(worst),
            sentence=states.measured(worst, secrets.get(worst["attack"])),
            facts=(*_knows(document, worst), *_facts(worst)),
            step=step,
            command=command,
            first=first,
            others=tuple((_attack(row), _numbers(row), row["state"]) for row in others),
            row=worst,
        )
        made.append(card)
    return sorted(made, key=lambda card: (not card.deployed, states.severity(card.row)))


def _all_clear(rows: Sequence[Row]) -> str:
    """Return the headline of a defence under which no attack leaks."""
    attacks = len({(row["attack"], row["role"]) for row in rows})
    if attacks == 1:
        return states.headline(rows[0])
    return f"No leak found, by {attacks} attacks that each detect a planted one."


def _attack(row: Row) -> str:
    aware = words.aware_words(row)
    return f"{row['attack']}, run by {words.role_words(row['role'])}" + (f" ({aware})" if aware else "")


def _numbers(row: Row) -> str:
    """Return the numbers of a row: gain, score and floor; where no leak was found, the detection limit."""
    gain, score, floor = _values(row)
    limit = f"; detection limit {states.size(row['seen'], row)}" if states.limit(row) else ""
    return f"{gain} ({words.metric_name(row['metric'])} {score}, floor {floor}{limit})"


def _values(row: Row) -> tuple[str, str, str]:
    metric = row["metric"]
    gain = units.value(row["difference"], metric, sign=True)
    return gain, units.value(row["mean"], metric), units.value(row["floor"], metric)


def _knows(document: Document, row: Row) -> tuple[tuple[str, str], ...]:
    """Return what the attacker of a row knows beforehand; whether it knows the defence stands beside its name."""
    key = (plan_of(row), row["attack"], row["role"], row["defence"])
    cases = [
        case["ledger"]
        for case in document["cases"]
        if (plan_of(case), case["attack"], case["role"], case["defence"]) == key and case["ledger"]
    ]
    grants = dict.fromkeys(str(grant) for ledger in cases for grant in ledger.get("grants") or ())
    known = words.grant_words([grant for grant in grants if grant != "defence"], row["public"], row["metric"])
    return (("Attacker knows", known),) if cases else ()


def _facts(row: Row) -> tuple[tuple[str, str], ...]:
    """Return what to know about a row, as pairs of a term and a sentence."""
    facts = (
        ("Evidence", states.evidence(row)),
        ("Detection limit", states.limit(row)),
        ("Margin", f"{states.margin(row)} {FROM}" if states.margin(row) else ""),
        ("Clients" if row["scope"] is None else "Holds for", states.scope(row)),
        ("Level", words.level_words(row) if row["verdict"] == "leaks" else ""),
        ("Most exposed", _most_exposed(row) if row["verdict"] == "leaks" else ""),
    )
    return tuple((term, text) for term, text in facts if text)


def _most_exposed(row: Row) -> str:
    """Return the most exposed unit in a sentence; empty where none is known."""
    worst = worst_words(row)
    if worst is None:
        return ""
    whole = row["worst"]["client"] is not None and row["worst"]["record"] is None
    share = words.SHARE_OF.get(row["metric"]) if whole else None
    return f"{words.capital(worst[1])}: {worst[0]}" + (f" of its {share}." if share else ".")


def worst_words(row: Row) -> tuple[str, str] | None:
    """Return the most exposed unit of a row: its score, and where it is."""
    worst = row["worst"]
    if worst is None:
        return None
    name = f" ({worst['name']})" if worst.get("name") else ""
    ends = {"client": name, "seed": "", "record": ""}
    located = [f"{part} {worst[part]}{end}" for part, end in ends.items() if worst[part] is not None]
    return units.value(worst["value"], row["metric"]), ", ".join(located)


# Of one card its own headline stands; of several, these with the number of defences.
OVERALL: Mapping[str, str] = {
    "leaks": "It leaks",
    "suspected": "A leak is suspected",
    "small": "It leaks a little, less than the margin",
    "trace": "The messages reveal something (trace)",
    "stopped": "The leak is stopped, as far as these attacks show,",
    "no leak found": "No leak found",
}
COUNTED: Mapping[str, str] = {"small": "a small leak", "trace": "a trace", "stopped": "the leak stopped"}


def overall(made: Sequence[Card]) -> tuple[str, str]:
    """Return the worst state of an audit's cards and its headline."""
    if not made:
        return "open", "Nothing was measured."
    worst = min(made, key=lambda card: states.severity(card.row))
    if len(made) == 1:
        return worst.state, worst.headline
    groups = grouped(made, lambda card: _group(card.state))
    first = _group(worst.state)
    leaks = {states.it_leaks(card.row) + states.here(card.row) for card in groups[first]}
    said = OVERALL.get(first, "Not decided")
    said = leaks.pop() if first == "leaks" and len(leaks) == 1 else said
    clauses = [f"{said} {_where(groups[first], made)}"]
    others = [name for name in GROUPS if name != first and name in groups]
    clauses += [f"{COUNTED.get(name, name)} {_where(groups[name], made)}" for name in others]
    return worst.state, "; ".join(clauses) + "."


def _where(chosen: Sequence[Card], made: Sequence[Card]) -> str:
    """Return the defences of some cards in words; no defence is not counted as one."""
    if len({card.plan for card in made}) > 1:
        return (
            f"in all {len(made)} settings" if len(chosen) == len(made) else f"in {len(chosen)} of {len(made)} settings"
        )
    names, total = [card.name for card in chosen if card.name != "none"], sum(card.name != "none" for card in made)
    number = f"{len(names)} of {total}" if len(names) < total else "both" if total == 2 else f"all {total}"
    under = f"under {names[0]}" if len(names) == 1 else f"under {number} defences"
    without = len(names) < len(chosen)
    return " and ".join((["without a defence"] if without else []) + ([under] if names else []))


GROUPS = ("leaks", "suspected", "small", "trace", "not decided", "stopped", "no leak found")


def _group(state: str) -> str:
    return "not decided" if state in states.UNDECIDED else state


def strongest(made: Sequence[Card]) -> str:
    """Return the numbers of the worst row in one sentence; empty where no gain is shown."""
    worst = min(made, key=lambda card: states.severity(card.row), default=None)
    if worst is None or worst.state not in ("leaks", "suspected"):
        return ""
    gain, score, floor = _values(worst.row)
    attack = f"{worst.row['attack']}, {words.defence_words(worst.name)}"
    what = f"{worst.secret} ({attack})" if worst.secret else attack
    return f"Largest: {what}: {score}; without any message {floor} would be possible ({gain})."


# "May we go on?": one answer, the findings behind it, and what to do next

ANSWERS: Mapping[str, str] = {
    "leaks": "No, not as it is: it leaks.",
    "suspected": "Not yet: a leak is suspected, and not settled.",
    "small": "With care: it leaks a little, less than the margin.",
    "trace": "Not yet: the messages reveal something, and a stronger attack may use it.",
    "stopped": "Yes, as far as these attacks show: what leaks without the defence is stopped.",
    "no leak found": "Yes, as far as these attacks show: no leak was found.",
}
CLEAR: Mapping[str, str] = {"stopped": "this attack is stopped", "no leak found": "no leak was found"}
NOT_DECIDED = "Not yet: it is not decided."
CAN_LEAK = f"No, not as it is: it can leak ({states.SYNTHETIC})."
NOT_MEASURED = "Not yet: nothing was measured."
MOST_FINDINGS, MOST_STEPS = 3, 4


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One row behind the answer: its state, the setting and attack, and what was measured."""

    state: str
    title: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether to go on in one sentence, the strongest findings with settled ones first, and steps with commands."""

    state: str
    text: str
    findings: tuple[Finding, ...]
    more: int  # rows that are not among the findings
    steps: tuple[tuple[str, str], ...]


def answer(document: Document, made: Sequence[Card]) -> Answer:
    """Return the answer of an audit's cards; deployed defences decide, or all where none is marked."""
    deciding = [card for card in made if card.deployed] or list(made)
    worst = min(deciding, key=lambda card: states.severity(card.row), default=None)
    text = ANSWERS.get(worst.state, NOT_DECIDED) if worst else NOT_DECIDED
    if all(row["mean"] is None for row in judged(document)):
        text = NOT_MEASURED
    if worst and worst.row.get("synthetic"):
        text = CAN_LEAK if worst.state == "leaks" else f"{text.rstrip('.')} ({states.SYNTHETIC})."
    clear = [card for card in made if worst and card.plan == worst.plan and card.state in CLEAR and card.name != "none"]
    if worst and worst.state not in CLEAR and clear:
        text += f" With {clear[0].name} {CLEAR[clear[0].state]}."
    rows = _telling(document, made)
    secrets = secret_words(document)
    several = len({(card.plan, card.name) for card in made}) > 1
    findings = tuple(
        Finding(state=row["state"], title=_title(row, several=several), sentence=_said(row, secrets.get(row["attack"])))
        for row in rows[:MOST_FINDINGS]
    )
    of_rows = {_key(card.row): card for card in made}
    asked = [*(of_rows[_key(row)] for row in rows[:MOST_FINDINGS] if _key(row) in of_rows), *deciding]
    by_name = {(card.plan, card.name): card for card in made}
    asked = [one for card in asked for one in (card, by_name.get((card.plan, card.first or ""))) if one is not None]
    special = _steps_of([card for card in asked if card.step != states.NO_STEP], made)[:MOST_FINDINGS]
    general = [(step, "") for step in general_steps(document, made)]
    chosen = [*([(failed(document), "")] if failed(document) else []), *special, *general][:MOST_STEPS] or [
        (states.NO_STEP, "")
    ]
    return Answer(
        state=worst.state if worst else "open",
        text=text,
        findings=findings,
        more=max(len(rows) - MOST_FINDINGS, 0),
        steps=tuple(chosen),
    )


def _said(row: Row, secret: str | None) -> str:
    """Return what was measured, why the state is another than the interval suggests, and the detection limit."""
    return " ".join(part for part in (states.measured(row, secret), states.despite(row), states.limit(row)) if part)


def _key(row: Row) -> tuple[Any, ...]:
    return (plan_of(row), row["defence"], row["attack"], row["role"])


def _of_attack(row: Row) -> tuple[Any, ...]:
    return (plan_of(row), row["attack"], row["role"])


def _telling(document: Document, made: Sequence[Card]) -> list[Row]:
    """Return the worst row of each attack under each defence: deployed first, settled first, those of cards first.

    Of several plans the first row of each leads.
    """
    rows = [min(own, key=states.severity) for own in grouped(judged(document), _key).values()]
    used, first = {(card.plan, card.name) for card in made if card.deployed}, {_key(card.row) for card in made}

    def order(row: Row) -> tuple[Any, ...]:
        here = (plan_of(row), row["defence"]) not in used, row["state"] not in DECIDED, _key(row) not in first
        return (*here, states.severity(row)[0], row["defence"] != "none", states.severity(row))

    by_plan = grouped(sorted(rows, key=order), plan_of)
    leading = [by_plan[name][0] for name in plans_of(document) if name in by_plan]
    return [*leading, *sorted((row for row in rows if not any(row is one for one in leading)), key=order)]


def _title(row: Row, *, several: bool) -> str:
    parts = (plan_of(row), words.defence_words(row["defence"]) if several else None, row["attack"])
    return ", ".join(part for part in parts if part)


def outcome(document: Document) -> str:
    """Return how many cases failed or were cut off, and why; empty where all ended."""
    return failure_line(document["cases"]) or ""


def failed(document: Document) -> str:
    """Return what is to be known of cases that failed; empty where all ended."""
    return f"{outcome(document)} They never count as safety." if outcome(document) else ""


# Next steps


def _steps_of(chosen: Sequence[Card], made: Sequence[Card]) -> list[tuple[str, str]]:
    """Return the steps of cards with their commands; equal ones once, and of those that add seeds the largest alone."""

    def what(card: Card) -> tuple[str, str]:
        start, more, _ = card.command.rpartition(f"{states.MORE_SEEDS} ")
        return (start, more) if more else (card.step, card.command)

    steps = []
    once = {(card.plan, card.name): card for card in chosen if card.step}
    for (_, end), own in grouped(once.values(), what).items():
        adds = end.startswith(states.MORE_SEEDS)
        most = max(own, key=lambda card: int(card.command.rpartition(" ")[2])) if adds else own[0]
        steps.append((_of_cards(own, made) + most.step, most.command))
    return steps


def _of_cards(own: Sequence[Card], made: Sequence[Card]) -> str:
    """Return which cards a step is of, where there are several; nothing where it is of all."""
    if len(own) == len(made):
        return ""
    names = [", ".join(part for part in (card.plan, words.defence_words(card.name)) if part) for card in own]
    return f"{words.listed(names)}: "


def general_steps(document: Document, made: Sequence[Card]) -> list[str]:
    """Return what to do about failed cases, and how to set limits where something leaks."""
    steps = []
    if {case["status"] for case in document["cases"]} & {"failed", "truncated"}:
        steps.append("Failed or cut-off cases: fix the cause and repeat the command with --resume.")
    if any(card.state == "leaks" and not card.row["recorded"] for card in made):
        limited = any(plan.get("gate") for plan in plans_of(document).values())
        limits = "With the limits of the plan" if limited else "Set limits ([[gate]] in the plan)"
        steps.append(f"{limits}: fedxray recommend selects a defence, fedxray gate checks it.")
    return steps


# Attacks of a kind that read single replies and complement one another, the strongest first.
ATTACKS: Mapping[str, Sequence[str]] = {
    "attributes": ("attribute-from-gradients", "attribute-from-model", "attribute-from-updates"),
    "membership": ("membership-best", "membership-from-updates"),
    "rows": ("tabular-inversion",),
    "images": ("inverting-gradients", "dlf", "gradinversion"),
    "class-images": ("fedinverse", "model-inversion"),
    "sources": ("source-from-updates", "source-from-model", "source-majority"),
    "labels": ("labels-dlf", "labels-ilrg"),
    "model": ("local-model-heuristic", "local-model-linear"),
}
# Attacks for which prior = "floor" is proposed (for labels it was never better), and floors whose knowledge it uses.
PRIOR = ("attribute-from-gradients", "attribute-from-model")
INFORMED = ("majority", "imputation")
SUMS = ("secure-aggregation", "curious-client")  # roles that read no single reply


def _step(document: Document, row: Row, rows: Sequence[Row], column: str | None) -> tuple[str, str, str | None]:
    """Return what to do about a row, and what to type: what helps against a leak, or what would settle the row.

    Last comes the defence whose own step is to be followed first, if any.
    """
    if row["state"] != "leaks":
        own = [case for case in document["cases"] if plan_of(case) == plan_of(row)]
        seeds = {case["seed"] for case in own}
        seconds = sum(case["seconds"] or 0.0 for case in own) / max(len(seeds), 1)
        ways = _untried(document, row, own), _without_prior(document, row), _unanswered(document, row, own)
        return *states.settle(row, seconds, *ways), None
    helps = words.help_words(row, column, _clients(document), _audited(document, row, rows))
    return _defence_step(row, rows, utilities(document, plan_of(row)), helps)


def _audited(document: Document, row: Row, rows: Sequence[Row]) -> set[str]:
    """Return the names of the defences that a row's attack was tried under, of joined ones each."""
    tried = {other["defence"] for other in rows if _of_attack(other) == _of_attack(row)}
    given = parts(plans_of(document).get(plan_of(row), {}), "defence")
    joined = [str(part.get("name")) for part in given if label_of(part) in tried]
    return {name for names in joined for name in names.split("+")}


def _unanswered(document: Document, row: Row, cases: Cases) -> tuple[str, str] | None:
    """Return why cases of a row found no answer, and the remedy; None where all did."""
    mine = [case for case in cases if _key(case) == _key(row)]
    reasons = [case["reason"] for case in mine if case["status"] == "undetermined" and case.get("reason")]
    if not reasons:
        return None
    known = dict.fromkeys(str(grant) for case in mine for grant in (case["ledger"] or {}).get("grants") or ())
    facts = attack_facts(document, row["attack"])
    if facts.get("kind") != "images" or "labels" in known:
        return states.unanswered(row, reasons, len(mine))
    grants = [*(grant for grant in known if grant != "defence"), "labels"]
    table = states.attack_table(facts.get("name", row["attack"]), label=f"{row['attack']} with labels", grants=grants)
    return states.unanswered(row, reasons, len(mine), table)


def _clients(document: Document) -> int | None:
    """Return the number of clients, None where no case states it."""
    return next((case["ledger"]["clients"] for case in document["cases"] if "clients" in (case["ledger"] or {})), None)


def _untried(document: Document, row: Row, cases: Cases) -> str | None:
    """Return an attack of the row's kind that its plan lacks; None where there is none, or none for its role."""
    used = {attack_facts(document, str(case["attack"])).get("name") for case in cases}
    names = () if row["role"] in SUMS else ATTACKS.get(attack_facts(document, row["attack"]).get("kind", ""), ())
    return next((name for name in names if name not in used), None)


def _without_prior(document: Document, row: Row) -> str | None:
    """Return the row's attack where its plan never combines it with the floor; None where that is not possible."""
    name = attack_facts(document, row["attack"]).get("name", row["attack"])
    plans = plans_of(document).values()
    tried = any(
        part.get("prior") == "floor" and part.get("name") == name for plan in plans for part in parts(plan, "attack")
    )
    return name if name in PRIOR and row["over"] in INFORMED and row["role"] not in SUMS and not tried else None


def _defence_step(row: Row, rows: Sequence[Row], costs: Mapping[str, Row], helps: str) -> tuple[str, str, str | None]:
    """Return the audited defence that does most against a leak with its cost; if none stops it, what `helps`.

    Last comes the defence whose own step is to be followed first, if any.
    """
    mine = [other for other in rows if _of_attack(other) == _of_attack(row)]
    groups = grouped(mine, lambda other: other["defence"])
    tried = [min(own, key=states.severity) for name, own in groups.items() if name not in ("none", row["defence"])]
    if not tried:
        step, command = states.defend(row)
        return f"{helps} {step}".strip(), command, None
    useless = {name for name, utility in costs.items() if not learned(utility)}
    useless = set() if row["defence"] in useless else useless
    useful = [other for other in tried if other["defence"] not in useless]
    fitting = useful if any(map(_stops, useful)) else tried
    best = max(fitting, key=lambda other: (states.severity(other)[0], _utility(costs.get(other["defence"]))))
    if best["defence"] in useless and _stops(best):
        return _useless(best["defence"], costs[best["defence"]]), "", None
    name, cost = best["defence"], _cost(row, best, costs)
    gain = units.value(best["difference"], best["metric"], sign=True)
    if best["state"] == "no leak found":
        rest = {other["state"] for other in rows if (plan_of(other), other["defence"]) == (plan_of(best), name)}
        others = "" if len(rest) == 1 else f" Another attack under it: {states.worst_state(list(rest))}."
        return f"Use {name}: no leak found with it{cost}.{others}", "", None
    if best["state"] == "stopped":
        left = states.most(best)
        text = f"Use {name}: it stops this attack, at most {left} are left{cost}. Another attack may still succeed."
        return text, "", None
    if best["state"] == "leaks":
        text = f"No audited defence stops it: {name} leaves {gain}{cost}."
    elif best["state"] == "small" and is_bounded(best):
        return f"Use {name}: with it this attack leaks a little ({gain}), less than the margin{cost}.", "", None
    elif best["difference"] is None:
        text = f"No audited defence is shown to stop it. With {name} nothing was measured."
    else:
        state = f"{'but' if best['difference'] <= 0 else 'and'} the state is {best['state']}"
        text = f"No audited defence is shown to stop every attack. With {name} this one gains {gain}, {state}{cost}."
        return f"{text} First follow the step of {name}. {helps}".strip(), "", name
    return " ".join(part for part in (text, helps, states.STRONGER) if part), states.LIST, None


def _stops(row: Row) -> bool:
    """Whether a defence may be proposed because of what this row shows."""
    return row["state"] in ("no leak found", "stopped") or (row["state"] == "small" and is_bounded(row))


def _useless(name: str, utility: Row) -> str:
    metric = utility["metric"]
    reached, guess = (units.value(utility[key], metric) for key in ("value", "guess"))
    than = f"better than a constant guess ({COSTS.get(metric, metric)} {reached} against {guess})"
    return f"{name} stops this leak, but the model is then not shown to be {than}: audit a weaker setting of it."


def _utility(utility: Row | None) -> float:
    """Return the utility of a defence, larger is better."""
    if utility is None:
        return float("-inf")
    return float(-utility["value"] if UTILITY[utility["metric"]] else utility["value"])


COSTS: Mapping[str, str] = {"mape": "mean relative error"}  # measures of utility that do not name themselves


def _cost(row: Row, best: Row, costs: Mapping[str, Row]) -> str:
    before, after = costs.get(row["defence"]), costs.get(best["defence"])
    if before is None or after is None:
        return ""
    metric, what = after["metric"], COSTS.get(after["metric"], after["metric"])
    old, new = units.value(before["value"], metric), units.value(after["value"], metric)
    if not learned(before):
        guess = f"{what} {old} against {units.value(before['guess'], metric)} of a constant guess"
        return f" (cost not measurable: the model has hardly learned, {guess})"
    return f" (cost: {what} {new} instead of {old})"


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
FILTERS = {IDLE: "A filter changed nothing.", TOGETHER: "Filters were measured together only."}
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


TWO = (
    "Secure aggregation among two protects neither from the other.",
    "Each subtracts its own update from the sum and has the other's: audit it with role server. The same holds for all "
    "but one that collude.",
)


def _of_two(case: Mapping[str, Any]) -> bool:
    """Return whether the case reads a sum of two clients."""
    return bool((case.get("ledger") or {}).get("smallest_sum") == 2)


def notices(document: Document) -> list[tuple[str, str]]:
    """Return warnings as pairs of a headline and its consequence."""
    synthetic = any("schema" in table(plan, "data") for plan in plans_of(document).values())
    recordings = [case["ledger"]["recording"] for case in document["cases"] if "recording" in case["ledger"]]
    return [
        *([("Results of an earlier format.", document["notice"])] if document.get("notice") else []),
        *_time_notices(document),
        *([TWO] if any(_of_two(case) for case in document["cases"]) else []),
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
    for what, headline in FILTERS.items():
        texts = dict.fromkeys(text for one in recordings for word, text in measured_filters(one) if word == what)
        warnings += [(headline, "; ".join(texts) + ".")] if texts else []
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
    "people": "who is in the training data",  # membership by person
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
    known = _kinds(document)
    kinds = dict.fromkeys(known[str(case["attack"])] for case in cases)
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
    columns, kinds = secrets_of(document), _kinds(document)
    quoted = {label: words.quoted(columns[label]) for label in kinds if label in columns}
    return {label: SECRETS[kind] for label, kind in kinds.items() if kind in SECRETS} | quoted


def _kinds(document: Document) -> dict[str, str]:
    """Return what kind of secret each attack infers, by its label: people where these are judged."""
    labels = dict.fromkeys(str(case["attack"]) for case in document["cases"])
    kinds = {label: str(attack_facts(document, label).get("kind", "")) for label in labels}
    by_person = {row["attack"] for row in judged(document) if row["metric"] in BY_PERSON}
    return {label: "people" if label in by_person and kind == "membership" else kind for label, kind in kinds.items()}


def _first_fact(cases: Cases, key: str) -> Any:
    return next((case["ledger"][key] for case in cases if case["ledger"].get(key)), None)
