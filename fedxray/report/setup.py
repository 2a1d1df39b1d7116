"""What a page says besides the results: what was audited, who saw what, what failed, what a defence costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.audit.recorded.describe import heading, place, recordings_of, shortcomings, whose
from fedxray.report import overview, words
from fedxray.report.attacks import not_negative
from fedxray.report.rows import attack_facts, plan_of, table

MOST_NAMED = 12


def audited(document: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """What was audited, a sentence for each plan, with its name where there are several."""
    return [(name, f"{words.capital(_trained(plan))}.") for name, plan in plans_of(document).items()]


def tried(document: Mapping[str, Any]) -> str:
    """Who attacked it, in one sentence."""
    cases = document["cases"]
    attacks = words.count(len({case["attack"] for case in cases}), "attack")
    roles = list(dict.fromkeys(words.role_words(case["role"]) for case in cases))
    times = words.count(len(cases), "time")
    return f"Tried: {attacks}, run by {words.listed(roles)}, {times} in all (one attack on one client in one run each)."


def _trained(plan: Mapping[str, Any]) -> str:
    data, model, federation = (table(plan, key) for key in ("data", "model", "federation"))
    source, algorithm = _source(data), federation.get("algorithm")
    if "transcript" in plan:
        network = model.get("name") or model.get("factory") or ""
        return f"a recording of the model {network}, against the node's own records in {source}"
    clients, rounds = _number(data, "clients", "client"), _number(federation, "rounds", "round")
    parts = [
        f"the model {model.get('name') or model.get('factory') or ''}".strip() + " trained",
        f"on {source}" if source else "",
        f"by {clients}" if clients else "",
        f"in {rounds}" if rounds else "",
        f"with {algorithm}" if algorithm else "",
    ]
    return " ".join(part for part in parts if part)


def setups(document: Mapping[str, Any]) -> list[tuple[str | None, list[tuple[str, str]]]]:
    """What was audited, plan by plan: its name where there are several, then pairs of a word and its value."""
    return [
        (name, _facts(document, plan, [case for case in document["cases"] if plan_of(case) == name]))
        for name, plan in plans_of(document).items()
    ]


def _facts(
    document: Mapping[str, Any], plan: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    data, model, federation = (table(plan, key) for key in ("data", "model", "federation"))
    facts = [
        ("Data", _joined(_source(data), _number(data, "clients", "client"))),
        *_recording(cases),
        ("Learns", overview.learns(plan, cases)),
        ("Must not leak", overview.must_not_leak(document, plan, cases)),
        ("Split", _split(plan, cases)),
        ("Model", _joined(model.get("name") or model.get("factory"), _hidden(model))),
        ("Training", _training(federation)),
        ("Attacks", _names(case["attack"] for case in cases)),
        ("Seats", _names(words.role_words(case["role"]) for case in cases)),
        ("Defences", "; ".join(dict.fromkeys(_defence(plan, case["defence"]) for case in cases))),
        ("Third-party code", _third_party(document)),
        ("Runs", _runs(plan, cases)),
        ("Size", f"{words.count(len(cases), 'case')} (one attack on one client in one run)"),
    ]
    return [(name, value) for name, value in facts if value]


def _third_party(document: Mapping[str, Any]) -> str:
    """The plug-ins that were used, each with its package."""
    line = "{kind} {name} (from {distribution} {version})"
    return ", ".join(line.format(**plugin) for plugin in document.get("third_party") or ())


def _defence(plan: Mapping[str, Any], name: str) -> str:
    """A defence with its settings."""
    known = next((part for part in parts(plan, "defence") if label_of(part) == name), {})
    settings = [
        f"{key} {value}"
        for part in (known, table(known, "settings"))
        for key, value in part.items()
        if key not in ("name", "label", "deployed", "settings", "factory") and value is not None
    ]
    return words.defence_words(name) + (f" ({', '.join(settings)})" if settings else "")


def _split(plan: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> str:
    """How records were divided: as a column says, or as a recording's node did, or drawn."""
    data = table(plan, "data")
    told = f"as the column `{data['use']}` says" if data.get("use") else ""
    counts = [one["records"] for one in recordings_of({"cases": cases}) if one.get("records")]
    numbers = ["{:,} trained on, {:,} held out, {:,} public".format(*one) for one in counts]
    if told or "transcript" in plan:
        return ": ".join(part for part in (told, "; ".join(numbers)) if part)
    return _joined(data.get("partition"), _share(data, "holdout"), _share(data, "public"))


def _runs(plan: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> str:
    """The seeds of simulated runs."""
    if not cases or "transcript" in plan:
        return ""
    return f"seeds {_names(str(case['seed']) for case in cases)}"


def _source(data: Mapping[str, Any]) -> object:
    """What the records are called."""
    made = data.get("schema")
    return data.get("name") or data.get("path") or (f"records made up by {made}" if made else None)


def _recording(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Whose recording it is, which rounds it holds, what is not in it, and where the recorder stood."""
    return [
        fact
        for told in recordings_of({"cases": cases})
        for fact in (
            ("Recording", heading(told)),
            ("Whose node", whose(told)),
            ("Recorder's place", place(told)),
            *((words.capital(word), text) for word, text in shortcomings(told)),
        )
    ]


def _training(federation: Mapping[str, Any]) -> str:
    algorithm, rounds = federation.get("algorithm"), _number(federation, "rounds", "round")
    if algorithm == "fedsgd":
        return _joined(algorithm, rounds, "one gradient of all examples")
    batches = _labelled(federation, "batch_size", "batches of")
    return _joined(algorithm, rounds, _number(federation, "epochs", "local epoch"), batches)


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def _number(settings: Mapping[str, Any], key: str, noun: str) -> str:
    found = settings.get(key)
    return words.count(found, noun) if isinstance(found, int) else ""


def _labelled(settings: Mapping[str, Any], key: str, text: str) -> str:
    return f"{text} {settings[key]}" if settings.get(key) is not None else ""


def _share(settings: Mapping[str, Any], key: str) -> str:
    texts = {"holdout": "held out of training", "public": "public"}
    found = settings.get(key)
    return (
        f"{100 * found:.0f}{words.GLUE}% {texts[key]}" if isinstance(found, float) and 0 < found < 1 else ""
    )


def _hidden(model: Mapping[str, Any]) -> str:
    settings = model.get("settings")
    found = model.get("hidden") or (settings.get("hidden") if isinstance(settings, Mapping) else None)
    return f"hidden layers {found}" if found else ""


def _names(names: Any) -> str:
    return ", ".join(dict.fromkeys(names))


def ledger(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Who saw what and was told what, one line per attack, seat and list of grants.

    Attackers who know the defence and attackers who do not share a line.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for case in document["cases"]:
        entry = case["ledger"]
        if not entry:
            continue
        granted = [str(grant) for grant in entry.get("grants") or ()]
        grants = tuple(grant for grant in granted if grant != "defence")
        line = lines.setdefault((case["attack"], case["role"], grants), _ledger_line(case, entry, grants))
        line["defences"] |= {words.defence_words(case["defence"]): None}
        line["knows_defence"] |= {"defence" in granted} if case["defence"] != "none" else set()
        spent = (entry.get("privacy") or {}).get("epsilon")
        if spent is not None:
            name = words.defence_words(case["defence"])
            line["spent"][name] = max(spent, line["spent"].get(name, 0.0))
    return list(lines.values())


def common_knowledge(document: Mapping[str, Any]) -> list[str]:
    """What everybody knows, each sentence once."""
    told = (case["ledger"].get("common_knowledge") for case in document["cases"])
    return list(dict.fromkeys(str(text) for text in told if text))


def _ledger_line(case: Mapping[str, Any], entry: Mapping[str, Any], grants: Sequence[str]) -> dict[str, Any]:
    rounds = [number for number in entry.get("rounds_seen") or () if isinstance(number, int)]
    counts = [
        ("single_replies", "single reply", "single replies"),
        ("sums", "sum of replies", "sums of replies"),
        ("global_models", "global model", "global models"),
        ("public_records", "public record", "public records"),
    ]
    read = [words.count(entry[key], *nouns) for key, *nouns in counts if entry.get(key)]
    return {
        "attack": case["attack"],
        "role": words.role_words(case["role"]),
        "sees": entry.get("sees") or "",
        "rounds": words.ranges(rounds),
        "read": read,
        "grants": [(grant, words.GRANTS.get(grant, ""), grant.startswith("oracle-")) for grant in grants],
        "active": bool(entry.get("active")),
        "rounds_spent": case["rounds_spent"],
        "oracle": case["oracle"],
        "left_out": [words.CONTROLS.get(name, name) for name in entry.get("controls_left_out") or ()],
        "defences": {},
        "knows_defence": set(),
        "spent": {},  # the largest epsilon that a client spent, by defence
    }


def failures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cases that did not end well, drawn together where attack, defence, status and reason agree."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for case in document["cases"]:
        if case["status"] != "ok":
            key = (case["attack"], case["role"], case["defence"], case["status"], case["reason"])
            groups.setdefault(key, []).append(case)
    return [
        {
            "attack": attack,
            "role": words.role_words(role),
            "defence": words.defence_words(defence),
            "status": status,
            "meaning": words.STATUSES.get(status, ""),
            "reason": reason or "no reason was recorded",
            "count": len(cases),
            "ids": [case["id"] for case in cases[:MOST_NAMED]],
            "more": max(0, len(cases) - MOST_NAMED),
        }
        for (attack, role, defence, status, reason), cases in groups.items()
    ]


def utility(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How well the trained model works under each defence."""
    scaled = {
        name
        for name in plans_of(document)
        if overview.standardised([case for case in document["cases"] if plan_of(case) == name])
    }
    return [
        {
            "plan": plan_of(row),
            "defence": words.defence_words(row["defence"]),
            "metric": row["metric"],
            "words": _utility_words(row["metric"], plan_of(row) in scaled),
            "value": words.value(row["value"], row["metric"]),
            "spread": words.between(not_negative(row["low"]), row["high"], row["metric"]),
            "n": row["n"],
            "epsilon": None if row["epsilon"] is None else f"{row['epsilon']:.3g}",
        }
        for row in document["utility"]
    ]


def privacy(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What every promised budget rests on, by defence."""
    told = {row["defence"]: row["privacy"] for row in document["utility"] if row.get("privacy")}
    return list(told.items())


def _utility_words(metric: str, standardised: bool) -> str:
    key = "standardised loss" if metric == "loss" and standardised else metric
    return words.UTILITY.get(key, "")


def marks(document: Mapping[str, Any]) -> set[str]:
    """The verdicts, controls and other marks that occur in the charts, for their legend."""
    rows = document["summary"]
    found = {name for row in rows for name in (row["verdict"], *row["controls"])}
    return found | ({"ceiling"} if any(row["ceiling"] is not None for row in rows) else set())


def pretty(value: Any) -> str:
    """Plain values as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


# --- Where attacks, measures, defences and statistics come from, for the method notes of a report.


METRIC_PAPERS: Mapping[str, str] = {
    "ssim": "Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural "
    "Similarity. IEEE Transactions on Image Processing 13, 2004.",
    "class_ssim": "Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural "
    "Similarity. IEEE Transactions on Image Processing 13, 2004.",
    "lpips": "Zhang, Isola, Efros, Shechtman, Wang: The Unreasonable Effectiveness of Deep Features as a Perceptual "
    "Metric. CVPR 2018.",
    "tpr_at_1pct_fpr": "Carlini, Chien, Nasr, Song, Terzis, Tramèr: Membership Inference Attacks From First "
    "Principles. IEEE Symposium on Security and Privacy 2022.",
    "zest": "Jia, Chen, Guan, Shamsabadi, Papernot: A Zest of LIME: Towards Architecture-Independent Model Distances. "
    "ICLR 2022.",
}
DEFENCE_PAPERS: Mapping[str, str] = {
    "dp-sgd": "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy. "
    "CCS 2016.",
    "mixup": "Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization. ICLR 2018.",
    "local-bn": "Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch "
    "Normalization. ICLR 2021.",
}
STATISTICS = (
    "Student: The Probable Error of a Mean. Biometrika 6, 1908.",
    "Efron, Tibshirani: An Introduction to the Bootstrap. Chapman and Hall, 1993.",
    "Cameron, Gelbach, Miller: Bootstrap-Based Improvements for Inference with Clustered Errors. Review of Economics "
    "and Statistics 90, 2008.",
    "Holm: A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6, 1979.",
)


def references(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Pairs of what was used and the papers behind it, as far as there are any."""
    found: list[tuple[str, list[str]]] = []
    for label in dict.fromkeys(case["attack"] for case in document["cases"]):
        paper = attack_facts(document, label).get("paper")
        found.append((label, [paper] if paper else []))
    defences = [
        str(part.get("name")) for plan in plans_of(document).values() for part in parts(plan, "defence")
    ]
    for part in dict.fromkeys(one for name in defences for one in name.split("+")):
        found.append((part, [DEFENCE_PAPERS[part]] if part in DEFENCE_PAPERS else []))
    for metric in dict.fromkeys(words.base_metric(row["metric"] or "") for row in document["summary"]):
        found.append((metric, [METRIC_PAPERS[metric]] if metric in METRIC_PAPERS else []))
    return [(name, papers) for name, papers in found if papers] + [
        ("intervals and verdicts", list(STATISTICS))
    ]
