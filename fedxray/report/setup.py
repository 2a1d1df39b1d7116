"""The set-up of an audit: what was audited, attacker knowledge, failed cases, utility, references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.adversary.grants import GRANTS
from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.audit.judge.verdict import DECIDED
from fedxray.audit.recorded.describe import heading, measured_filters, place, recordings_of, shortcomings, whose
from fedxray.metrics import units
from fedxray.metrics.table import base_metric
from fedxray.report import overview, words
from fedxray.report.attacks import not_negative
from fedxray.report.rows import attack_facts, grouped, plan_of, shown_rows, table

MOST_NAMED = 12  # failed cases that are listed by id


def audited(document: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """Return a sentence for each plan, with its name where there are several."""
    return [(name, f"{words.capital(_trained(plan))}.") for name, plan in plans_of(document).items()]


def tried(document: Mapping[str, Any]) -> str:
    """Return which attacks were run by whom, in one sentence."""
    cases = document["cases"]
    attacks = words.count(len({case["attack"] for case in cases}), "attack")
    roles = list(dict.fromkeys(words.role_words(case["role"]) for case in cases))
    total = words.count(len(cases), "case")
    return f"{attacks} by {words.listed(roles)}: {total} (one attack on one client in one run each)."


def _trained(plan: Mapping[str, Any]) -> str:
    data, model, federation = (table(plan, key) for key in ("data", "model", "federation"))
    source, algorithm = _source(data), federation.get("algorithm")
    if "transcript" in plan:
        network = model.get("name") or model.get("factory") or ""
        return f"a recording of the model {network}, against the node's own records in {source}"
    clients, rounds = _number(data, "clients", "client"), _number(federation, "rounds", "round")
    clauses = [
        f"the model {model.get('name') or model.get('factory') or ''}".strip() + " trained",
        f"on {source}" if source else "",
        f"by {clients}" if clients else "",
        f"in {rounds}" if rounds else "",
        f"with {algorithm}" if algorithm else "",
    ]
    return " ".join(clause for clause in clauses if clause)


def setups(document: Mapping[str, Any]) -> list[tuple[str | None, list[tuple[str, str]]]]:
    """Return the set-up plan by plan: its name where there are several, then pairs of a term and its value."""
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
        ("Predicts", overview.learns(plan, cases)),
        ("Must not leak", overview.must_not_leak(document, plan, cases)),
        ("Split", _split(plan, cases)),
        ("Model", _joined(model.get("name") or model.get("factory"), _hidden(model))),
        ("Training", _training(federation)),
        ("Attacks", _names(case["attack"] for case in cases)),
        ("Roles", _names(words.role_words(case["role"]) for case in cases)),
        ("Defences", "; ".join(dict.fromkeys(_defence(plan, case["defence"]) for case in cases))),
        ("Third-party code", _third_party(document)),
        ("Runs", _runs(plan, cases)),
        ("Size", f"{words.count(len(cases), 'case')} (one attack on one client in one run)"),
    ]
    return [(name, value) for name, value in facts if value]


def _third_party(document: Mapping[str, Any]) -> str:
    """Return the plug-ins that were used, each with its package."""
    line = "{kind} {name} (from {distribution} {version})"
    return ", ".join(line.format(**plugin) for plugin in document.get("third_party") or ())


def _defence(plan: Mapping[str, Any], name: str) -> str:
    """Return a defence with its settings."""
    known = next((part for part in parts(plan, "defence") if label_of(part) == name), {})
    settings = [
        f"{key} {value}"
        for part in (known, table(known, "settings"))
        for key, value in part.items()
        if key not in ("name", "label", "deployed", "settings", "factory") and value is not None
    ]
    return words.defence_words(name) + (f" ({', '.join(settings)})" if settings else "")


def _split(plan: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> str:
    """Return how records were divided: by a column, by the recorded node, or at random."""
    data = table(plan, "data")
    by_column = f"by the column `{data['use']}`" if data.get("use") else ""
    counts = [one["records"] for one in recordings_of({"cases": cases}) if one.get("records")]
    numbers = ["{:,} training, {:,} held out, {:,} public".format(*three) for three in counts]
    if by_column or "transcript" in plan:
        return ": ".join(part for part in (by_column, "; ".join(numbers)) if part)
    return _joined(data.get("partition"), _share(data, "holdout"), _share(data, "public"))


def _runs(plan: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the seeds of simulated runs."""
    if not cases or "transcript" in plan:
        return ""
    return f"seeds {_names(str(case['seed']) for case in cases)}"


def _source(data: Mapping[str, Any]) -> object:
    """Return the name of the data."""
    schema = data.get("schema")
    return data.get("name") or data.get("path") or (f"synthetic records of {schema}" if schema else None)


def _recording(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return owner, rounds, gaps and recorder position of every recording."""
    return [
        fact
        for recording in recordings_of({"cases": cases})
        for fact in (
            ("Recording", heading(recording)),
            ("Owner of the node", whose(recording)),
            ("Position of the recorder", place(recording)),
            *((words.capital(what), text) for what, text in [*shortcomings(recording), *measured_filters(recording)]),
        )
    ]


def _training(federation: Mapping[str, Any]) -> str:
    algorithm, rounds = federation.get("algorithm"), _number(federation, "rounds", "round")
    if algorithm == "fedsgd":
        return _joined(algorithm, rounds, "one gradient of all examples")
    size = f"batches of {federation['batch_size']}" if federation.get("batch_size") is not None else ""
    return _joined(algorithm, rounds, _number(federation, "epochs", "local epoch"), size)


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def _number(settings: Mapping[str, Any], key: str, noun: str) -> str:
    number = settings.get(key)
    return words.count(number, noun) if isinstance(number, int) else ""


def _share(settings: Mapping[str, Any], key: str) -> str:
    texts = {"holdout": "held out of training", "public": "public"}
    share = settings.get(key)
    if not isinstance(share, float) or not 0 < share < 1:
        return ""
    return f"{100 * share:.0f}{units.GLUE}% {texts[key]}"


def _hidden(model: Mapping[str, Any]) -> str:
    settings = model.get("settings")
    hidden = model.get("hidden") or (settings.get("hidden") if isinstance(settings, Mapping) else None)
    return f"hidden layers {hidden}" if hidden else ""


def _names(names: Any) -> str:
    return ", ".join(dict.fromkeys(names))


# Attacker knowledge


def ledger(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what attackers see and are granted, one line per attack, role and list of grants.

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
    """Return what every attacker knows, each sentence once."""
    sentences = (case["ledger"].get("common_knowledge") for case in document["cases"])
    return list(dict.fromkeys(str(text) for text in sentences if text))


def _ledger_line(case: Mapping[str, Any], entry: Mapping[str, Any], grants: Sequence[str]) -> dict[str, Any]:
    rounds = [number for number in entry.get("rounds_seen") or () if isinstance(number, int)]
    counts = [
        ("single_replies", "single reply", "single replies"),
        ("sums", "sum of replies", "sums of replies"),
        ("global_models", "global model", "global models"),
        ("public_records", "public record", "public records"),
    ]
    read = [words.count(entry[key], *nouns) for key, *nouns in counts if entry.get(key)]
    read += [f"the network's buffer {name}, which changes with the records" for name in entry.get("data_buffers") or ()]
    return {
        "attack": case["attack"],
        "role": words.role_words(case["role"]),
        "sees": entry.get("sees") or "",
        "rounds": words.ranges(rounds),
        "read": read,
        "grants": [(grant, GRANTS.get(grant, ""), grant.startswith("oracle-")) for grant in grants],
        "active": bool(entry.get("active")),
        "rounds_spent": case["rounds_spent"],
        "oracle": case["oracle"],
        "left_out": [words.CONTROLS.get(name, name) for name in entry.get("controls_left_out") or ()],
        "defences": {},
        "knows_defence": set(),
        "spent": {},  # by defence, the largest epsilon of a client
    }


# Failed cases and utility


def failures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return cases that failed or were cut off, grouped by attack, role, defence, status and reason."""
    names = ("attack", "role", "defence", "status", "reason")
    failed = [case for case in document["cases"] if case["status"] != "ok"]
    groups = grouped(failed, lambda case: tuple(case[name] for name in names))
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
    """Return the utility of the trained model under each defence."""
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
            "description": _utility_words(row["metric"], plan_of(row) in scaled),
            "value": units.value(row["value"], row["metric"]),
            "spread": units.between(not_negative(row["low"]), row["high"], row["metric"]),
            "n": row["n"],
            "epsilon": None if row["epsilon"] is None else f"{row['epsilon']:.3g}",
        }
        for row in document["utility"]
    ]


def privacy(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return delta and accountant behind every epsilon, by defence."""
    stated = {row["defence"]: row["privacy"] for row in document["utility"] if row.get("privacy")}
    return list(stated.items())


def _utility_words(metric: str, standardised: bool) -> str:
    key = "standardised loss" if metric == "loss" and standardised else metric
    return words.UTILITY.get(key, "")


def marks(document: Mapping[str, Any]) -> set[str]:
    """Return the states, controls and other marks that occur in the charts, for their legend."""
    rows = shown_rows(document)
    names = {name for row in rows for name in row["controls"]}
    judged = {row["state"] for row in rows if row["primary"]}
    names |= judged & set(DECIDED)
    names |= {"not decided"} if judged - set(DECIDED) else set()
    names |= set() if all(row["primary"] for row in rows) else {"not judged"}
    return names | ({"ceiling"} if any(row["ceiling"] is not None for row in rows) else set())


# References for attacks, metrics, defences and statistics

SSIM = (
    "Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural Similarity. IEEE "
    "Transactions on Image Processing 13, 2004."
)
LOW_RATES = (
    "Carlini, Chien, Nasr, Song, Terzis, Tramèr: Membership Inference Attacks From First Principles. IEEE Symposium on "
    "Security and Privacy 2022."
)
METRIC_PAPERS: Mapping[str, str] = {
    **dict.fromkeys(("ssim", "class_ssim"), SSIM),
    "lpips": "Zhang, Isola, Efros, Shechtman, Wang: The Unreasonable Effectiveness of Deep Features as a Perceptual "
    "Metric. CVPR 2018.",
    **dict.fromkeys(("tpr_at_1pct_fpr", "tpr_at_0p1pct_fpr"), LOW_RATES),
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
    "Fisher: The Design of Experiments. Oliver and Boyd, 1935.",
    "Mann, Whitney: On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other. Annals "
    "of Mathematical Statistics 18, 1947.",
    "Westfall, Young: Resampling-Based Multiple Testing. Wiley, 1993.",
    "Efron, Tibshirani: An Introduction to the Bootstrap. Chapman and Hall, 1993.",
    "Cameron, Gelbach, Miller: Bootstrap-Based Improvements for Inference with Clustered Errors. Review of Economics "
    "and Statistics 90, 2008.",
    "Holm: A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6, 1979.",
)


def references(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return pairs of what was used and its papers, where there are any."""
    cited: list[tuple[str, list[str]]] = []
    for label in dict.fromkeys(case["attack"] for case in document["cases"]):
        paper = attack_facts(document, label).get("paper")
        cited.append((label, [paper] if paper else []))
    defences = [str(part.get("name")) for plan in plans_of(document).values() for part in parts(plan, "defence")]
    for part in dict.fromkeys(one for name in defences for one in name.split("+")):
        cited.append((part, [DEFENCE_PAPERS[part]] if part in DEFENCE_PAPERS else []))
    for metric in dict.fromkeys(base_metric(row["metric"] or "") for row in document["summary"]):
        cited.append((metric, [METRIC_PAPERS[metric]] if metric in METRIC_PAPERS else []))
    return [(name, papers) for name, papers in cited if papers] + [("intervals and verdicts", list(STATISTICS))]
