"""Judged limits for machines: JUnit XML and SARIF 2.1.0, with names that cannot be taken for markup."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from xml.etree import ElementTree

from fedxray.audit.judge.gate import Judged

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"fail": ("fail", "error"), "inconclusive": ("fail", "warning"), "pass": ("pass", "none")}
# Characters that XML 1.0 cannot hold, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(judged: Sequence[Judged], suite: str) -> bytes:
    """One test case per limit: a failed one is a failure, an inconclusive one an error."""
    outcomes = [one.outcome for one in judged]
    counts = {
        "tests": str(len(judged)),
        "failures": str(outcomes.count("fail")),
        "errors": str(outcomes.count("inconclusive")),
    }
    root = ElementTree.Element("testsuites", counts)
    group = ElementTree.SubElement(root, "testsuite", {"name": _xml(f"fedxray gate: {suite}"), **counts})
    for one in judged:
        attributes = {"classname": _xml(f"fedxray.{one.defence}"), "name": _xml(one.title), "time": "0"}
        case = ElementTree.SubElement(group, "testcase", attributes)
        if one.outcome != "pass":
            tag, kind = ("failure", "leak") if one.outcome == "fail" else ("error", "inconclusive")
            told = ElementTree.SubElement(case, tag, {"type": kind, "message": _xml(one.reason)})
            told.text = _xml(measured(one))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(
                "\n".join([measured(one), *([f"doubt: {one.doubt}"] if one.doubt else [])])
            )
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def sarif(judged: Sequence[Judged], place: str) -> bytes:
    """One result per limit, shown at the file `place`; a failed one is an error, an inconclusive one a warning."""
    rules = list(dict.fromkeys((one.attack, one.metric) for one in judged))
    driver = {
        "name": "fedxray",
        "version": version("fedxray"),
        "rules": [
            {
                "id": _rule(attack, metric),
                "shortDescription": {"text": _plain(f"{attack}: {metric} stays within its limit")},
            }
            for attack, metric in rules
        ],
    }
    run = {"tool": {"driver": driver}, "results": [_result(one, rules, place) for one in judged]}
    made = {"$schema": SARIF, "version": "2.1.0", "runs": [run]}
    return (json.dumps(made, indent=1) + "\n").encode("ascii")


def _result(one: Judged, rules: Sequence[tuple[str, str]], place: str) -> dict[str, object]:
    kind, level = LEVELS[one.outcome]
    told = f"{one.outcome}: {one.title}. Measured: {measured(one)}: {one.reason}"
    print_of = hashlib.sha256(one.title.encode()).hexdigest()
    return {
        "ruleId": _rule(one.attack, one.metric),
        "ruleIndex": rules.index((one.attack, one.metric)),
        "kind": kind,
        "level": level,
        "message": {"text": _plain(told if one.doubt is None else f"{told}; doubt: {one.doubt}")},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": place}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"fedxrayGate/v1": print_of},
        "properties": {"outcome": one.outcome, "value": one.value, "low": one.low, "high": one.high},
    }


def measured(one: Judged) -> str:
    """What was measured, with its interval."""
    if one.value is None:
        return "nothing"
    spread = (
        "" if one.low is None or one.high is None else f" (95 % interval {one.low:.3g} to {one.high:.3g})"
    )
    told = {None: "", True: ", knowing the defence", False: ", not knowing the defence"}
    return f"{one.value:.3g}{spread} by {one.role}{told[one.aware]}"


def _rule(attack: str, metric: str) -> str:
    """An identifier of plain letters that is different for different limits."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{attack}.{metric}").strip("-")[:80]
    return f"{short}-{hashlib.sha256(json.dumps([attack, metric]).encode()).hexdigest()[:8]}"


def _xml(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _plain(text: str) -> str:
    """Text in which SARIF finds neither a link, as [text](target), nor a placeholder, as {0}."""
    safe = re.sub(r"[\x00-\x1f\x7f]", " ", text).replace("](", "] (")
    return re.sub(r"\{(\d+)\}", r"{ \1 }", safe)
