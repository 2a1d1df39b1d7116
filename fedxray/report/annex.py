"""The annex of a data-protection impact assessment: what was tested and found, on a few pages for a signature.

`privacy_card` gathers the facts from results.json and the files beside it; `annex.html` prints them, and
`privacy-card.json` holds the same for programs (shares are 0 to 1, never percent).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedxray.audit.judge.claims import claims_of
from fedxray.audit.judge.gate import judge_gates, plans_of
from fedxray.audit.judge.results import RESULTS, read_results
from fedxray.errors import BadInput
from fedxray.metrics import units
from fedxray.report import ci, overview, setup, states, words
from fedxray.report.rows import Row, attack_facts, deployed, grouped, judged, placed, plan_of, table

ANNEX, CARD = "annex.html", "privacy-card.json"
FORMAT = 1
HASHED = (RESULTS, "plan.toml")
MOST_EXPOSED = 3
DATA = "the data"
SET_UP = ("Data", "Recording", "Predicts", "Must not leak", "Split", "Runs")  # facts of the set-up in the annex

# The kinds of attacks that opinion 28/2024 of the European Data Protection Board lists for the testing of AI models,
# with the kinds of fedxray that test each, and what to say where none can.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "Attribute inference": ("attributes",),
    "Membership inference": ("membership", "sources"),
    "Model inversion": ("class-images",),
    "Reconstruction of training data": ("images", "rows", "labels"),
    "Exfiltration": (),
    "Regurgitation of training data": (),
}
NEVER: Mapping[str, str] = {
    "Exfiltration": "fedxray tests what messages and models reveal, not whether stored data or models can be stolen",
    "Regurgitation of training data": "the audited models predict a target, they generate no records",
}
BY_DATA: Mapping[str, str] = {  # why a kind cannot apply
    "attributes": "no column is marked as sensitive, or the data are images",
    "class-images": "the data are no images",
}
NOT_LOOKED_AT = (
    "Other attacks, roles, grants, data and training than those listed.",
    "Logs, error messages, timing, and storage or access control of sites and server.",
    "Use of the trained model after the federation, beyond what the roles above see.",
)
AGAIN = (
    "the data, its columns or the participants change",
    "the network, the training or the defence changes",
    "a new attack of a listed kind is published, or a year has passed",
)


def privacy_card(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the facts of an audit for those who sign, as JSON."""
    made = overview.cards(document)
    found = overview.answer(document, made)
    return {
        "format": FORMAT,
        "name": str(document["plan"].get("name") or "audit"),
        "answer": {"state": found.state, "text": found.text},
        "next_steps": ["\n".join(part for part in step if part) for step in found.steps],
        "audited": [": ".join(part for part in pair if part) for pair in setup.audited(document)],
        "records": _records(document),
        "set_up": _set_up(document),
        "when": _when(folder),
        "versions": dict(document["versions"]),
        "sha256": _digests(document, folder),
        "units_of_protection": _units(document),
        "threat_models": _threats(document),
        "families": _families(document),
        "results": [_result(document, row) for row in judged(document)],
        "controls_show": [text for name, text in words.CONTROLS_SHOW.items() if name in _controls(document)],
        "limits": _limits(document),
        "most_exposed": _exposed(document),
        "subgroups": _subgroups(document),
        "epsilon": _epsilons(document),
        "utility": [
            {name: row.get(name) for name in ("defence", "metric", "value", "low", "high", "guess")}
            for row in document["utility"]
        ],
        "leaves_a_site": _leaves(document),
        "failed_cases": sum(case["status"] not in ("ok", "undetermined") for case in document["cases"]),
        "residual_risk": _residual(document, made),
        "not_looked_at": list(NOT_LOOKED_AT),
        "test_again_when": list(AGAIN),
    }


def write_annex(folder: Path) -> tuple[Path, Path]:
    """Write annex.html and privacy-card.json into an audit's folder."""
    from markupsafe import Markup

    from fedxray.report.build import environment_of, template, write_page

    document = placed(read_results(folder), folder)
    card = privacy_card(document, folder)
    environment = environment_of()
    environment.filters |= {
        "value": units.value,
        "between": units.between,
        "limit": _limit,
        "defence": words.defence_words,
        "role": words.role_words,
        "metric": words.metric_name,
        "control": lambda name: words.SHORT_CONTROLS.get(name, name),
    }
    page = environment.get_template("annex.html").render(style=Markup(template("annex.css")), card=card)
    content = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_page(folder / ANNEX, page), write_page(folder / CARD, content)


def _when(folder: Path) -> dict[str, str] | None:
    """Return first and last time of the audit's log; None where it has none."""
    file = folder / "log"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    times = [line[:20] for line in lines if len(line) > 20 and line[19] == "Z"]
    return {"first": times[0], "last": times[-1]} if times else None


def _records(document: Mapping[str, Any]) -> int | None:
    """Return the number of records of the user's own file; None where the results do not state it."""
    records = table(document, "data").get("records")
    return records if isinstance(records, int) else None


def _set_up(document: Mapping[str, Any]) -> list[str]:
    """Return data with clients, target, secret, split, runs and seeds, in a line for each plan and fact."""
    lines = []
    for plan, facts in setup.setups(document):
        cases = [case for case in document["cases"] if plan_of(case) == plan]
        seeds = sorted({case["seed"] for case in cases})
        runs = f"{words.count(len(seeds), 'run')} of each defence"
        shown = {name: value for name, value in facts if name in SET_UP}
        shown |= {"Runs": f"{runs}, seeds {words.ranges(seeds)}"} if "Runs" in shown else {}
        lines += [f"{'' if plan is None else f'{plan}: '}{name}: {value}." for name, value in shown.items()]
    return lines


def _digests(document: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the digests of the audit's files, and of the user's own records where the results hold one."""
    files = {name: folder / name for name in HASHED if (folder / name).is_file()}
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    data = table(document, "data").get("sha256")
    return digests | ({DATA: data} if isinstance(data, str) else {})


# Threat models and kinds of attacks


def _units(document: Mapping[str, Any]) -> list[str]:
    """Return whom the verdicts are about: a record, a person, a site."""
    named = {"person" if table(plan, "data").get("subject") else "record" for plan in plans_of(document).values()}
    kinds = {attack_facts(document, row["attack"]).get("kind") for row in judged(document)}
    clients = any(row["unit"] == "client" for row in document.get("canaries") or ())
    return [*sorted(named), *(["site"] if clients or kinds & {"model", "labels"} else [])]


def _threats(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for every role what it sees, what it was granted, and which attacks it ran."""
    groups = grouped([line for line in setup.ledger(document) if not line["oracle"]], lambda line: line["role"])
    return [
        {
            "role": role,
            "sees": lines[0]["sees"],
            "granted": sorted({grant for line in lines for grant, _, _ in line["grants"]}),
            "may_know_the_defence": any(True in line["knows_defence"] for line in lines),
            "attacks": list(dict.fromkeys(line["attack"] for line in lines)),
        }
        for role, lines in groups.items()
    ]


def _families(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for every kind of attack of the opinion whether it was tested, with which result, or why not."""
    rows = judged(document)
    tabular = all(case["ledger"].get("target_column") for case in document["cases"])
    secret = any(case["ledger"].get("sensitive") for case in document["cases"])
    missing = {"attributes": not secret, "class-images": tabular}
    families = []
    for name, kinds in FAMILIES.items():
        own = [row for row in rows if attack_facts(document, row["attack"]).get("kind") in kinds]
        attacks, found = list(dict.fromkeys(row["attack"] for row in own)), [row["state"] for row in own]
        if own:
            outcome, reason = "tested", ""
        elif name in NEVER:
            outcome = "not tested" if name == "Exfiltration" else "not applicable"
            reason = NEVER[name]
        elif all(missing.get(kind, False) for kind in kinds):
            outcome, reason = "not applicable", BY_DATA[kinds[0]]
        else:
            outcome, reason = "not tested", "the plan has no attack of this kind"
        worst = states.worst_state(found) if found else None
        families.append({"family": name, "outcome": outcome, "reason": reason, "attacks": attacks, "worst": worst})
    return families


# Results


def _result(document: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return one judged row with its floor, controls and the smallest leak that would have been detected."""
    names = ("attack", "role", "defence", "aware", "metric", "state", "low", "high", "margin", "runs", "reason")
    return {
        **{name: row[name] for name in names},
        "plan": plan_of(row),
        "deployed": (plan_of(row), row["defence"]) in deployed(document),
        "score": row["mean"],
        "floor": row["floor"],
        "floor_is": words.floor_words(row["over"], row["public"]),
        "gain": row["difference"],
        "level": words.level(row) if row["verdict"] == "leaks" else None,
        "controls": {name: control["mean"] for name, control in row["controls"].items()},
        "detection_limit": row["seen"],
    }


def _controls(document: Mapping[str, Any]) -> set[str]:
    return {name for row in judged(document) for name in row["controls"]}


def _limits(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return every limit of the plan with its outcome, as `fedxray gate` judges it; none where the plan has none."""
    if not any(plan.get("gate") for plan in plans_of(document).values()):
        return []
    try:
        return [
            {"limit": one.title, "outcome": one.outcome, "measured": ci.measured(one), "reason": one.reason}
            for one in judge_gates(document)
        ]
    except BadInput as refused:  # such as no defence that is marked as deployed
        return [{"limit": "Limits of the plan", "outcome": "not judged", "measured": "nothing", "reason": str(refused)}]


def _limit(result: Row) -> str:
    """Return the detection limit of a result in words."""
    limit, metric = result["detection_limit"], result["metric"]
    if limit is None:
        return "–"
    possible = units.possible_gain(limit, metric, result["floor"]) >= limit
    return units.amount(limit, metric) if possible else "none: more than is possible"


def _exposed(document: Mapping[str, Any]) -> list[str]:
    """Return the most exposed unit of the worst rows that leak; records by their index, never by content."""
    rows = sorted((row for row in judged(document) if row["verdict"] == "leaks"), key=states.severity)
    found = [(row, overview.worst_words(row)) for row in rows]
    return [f"{_whose(row)}: {worst[1]} ({worst[0]})" for row, worst in found if worst][:MOST_EXPOSED]


def _whose(row: Row) -> str:
    """Return the attack of a row, the defence, and whether the attacker knows it."""
    parts = (row["attack"], words.defence_words(row["defence"]), words.aware_words(row))
    return ", ".join(part for part in parts if part)


def _subgroups(document: Mapping[str, Any]) -> list[str]:
    """Return by row that leaks the class with the largest mean, where classes were scored apart."""
    texts = []
    for row in sorted((row for row in judged(document) if row["verdict"] == "leaks"), key=states.severity):
        means: dict[str, list[float]] = {}
        for case in filter(partial(_is_of, row), document["cases"]):
            for name, part in ((case.get("by_class") or {}).get(row["metric"]) or {}).items():
                if part.get("mean") is not None:
                    means.setdefault(name, []).append(part["mean"])
        if len(means) > 1:
            average = {name: sum(values) / len(values) for name, values in means.items()}
            worst = (min if units.is_down(row["metric"]) else max)(average, key=lambda name: average[name])
            texts.append(f"{_whose(row)}: {words.class_words(worst)} ({units.value(average[worst], row['metric'])})")
    return texts[:MOST_EXPOSED]


def _is_of(row: Mapping[str, Any], case: Mapping[str, Any]) -> bool:
    """Whether a case belongs to a row; one row stands for both attackers where they have the same results."""
    same = all(case[name] == row[name] for name in ("attack", "role", "defence")) and plan_of(case) == plan_of(row)
    return same and (not isinstance(row["aware"], bool) or case["aware"] is row["aware"])


def _epsilons(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return epsilon as configured, accounted and measured by canaries, by defence and unit of protection."""
    return [
        {
            "defence": claim.subject,
            "unit": claim.unit,
            "delta": claim.delta,
            "configured": claim.configured,
            "accounted": claim.accounted,
            "measured_at_least": max((row["low"] for row in claim.measured if row["low"] is not None), default=None),
            "sentence": claim.sentence,
        }
        for claim in claims_of(document)
    ]


def _leaves(document: Mapping[str, Any]) -> list[str]:
    """Return what else than updates leaves a site, as far as the plan and the cases state it."""
    plans, cases = plans_of(document).values(), document["cases"]
    federations = [table(plan, "federation") for plan in plans]
    simulated = [table(plan, "federation") for plan in plans if not plan.get("transcript")]
    found = []
    if any(part.get("weighting", "examples") == "examples" for part in simulated):
        found.append("The number of training records, by which the server weights updates.")
    if len(simulated) < len(federations):
        found.append("The number of training records, if the recorded framework sends it: Flower does, NVFlare not.")
    if any(part.get("batch_norm", "shared") == "shared" for part in federations):
        found.append(
            "Running statistics of BatchNorm layers, where the network has any: they are sent with every reply."
        )
    buffers = dict.fromkeys(name for case in cases for name in case["ledger"].get("data_buffers") or ())
    found += [f"The buffer {name} of the network, which changes with the records." for name in buffers]
    readers = dict.fromkeys(case["attack"] for case in cases if "metrics" in (case["ledger"].get("grants") or ()))
    attacked = f"were attacked by {', '.join(readers)}" if readers else "were not attacked"
    return [*found, f"Metrics that clients report (loss, accuracy) {attacked}; report few and rounded ones."]


def _residual(document: Mapping[str, Any], made: Sequence[overview.Card]) -> list[str]:
    """Return what remains after the deployed defence, or after every one where none is marked."""
    chosen = [card for card in made if card.deployed] or list(made)
    lines = []
    for card in chosen:
        where = ", ".join(part for part in (card.plan, words.defence_words(card.name)) if part)
        lines.append(f"{where}: {card.state} ({states.MEANINGS[card.state]}). {card.sentence}")
    failed = overview.outcome(document)
    return [*lines, *([f"{failed} They never count as safety."] if failed else [])]
