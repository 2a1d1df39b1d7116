"""What was at stake: what the clients learn together, and what must not leak while they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.report import words
from fedxray.report.catalogue import attack_kind
from fedxray.report.plans import attack_names, label, parts, plan_of, plans_of, table

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


def must_not_leak(plan: Mapping[str, Any], cases: Cases) -> str:
    """What the attacks of a plan are after."""
    names = {label(part): str(part.get("name")) for part in parts(plan, "attack")}
    kinds = dict.fromkeys(attack_kind(names.get(str(case["attack"]), str(case["attack"]))) for case in cases)
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
    names, found = attack_names(document), {}
    for plan_name, plan in plans_of(document).items():
        cases = [case for case in document["cases"] if plan_of(case) == plan_name]
        column = sensitive_column(plan, cases)
        for attack in dict.fromkeys(case["attack"] for case in cases):
            if column and attack_kind(names.get(attack, attack)) == "attributes":
                found[attack] = column
    return found


def secret_words(document: Mapping[str, Any]) -> dict[str, str]:
    """What each attack finds out, by its label; nothing of attacks that nobody knows."""
    names, columns = attack_names(document), secrets_of(document)
    labels = dict.fromkeys(str(case["attack"]) for case in document["cases"])
    kinds = {one: attack_kind(names.get(one, one)) or "" for one in labels}
    named = {one: words.quoted(columns[one]) for one in labels if one in columns}
    return {one: SECRETS[kind] for one, kind in kinds.items() if kind in SECRETS} | named


def _told(cases: Cases, key: str) -> Any:
    return next((case["ledger"][key] for case in cases if case["ledger"].get(key)), None)
