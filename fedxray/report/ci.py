"""Judged limits for CI: JUnit XML and SARIF 2.1.0, in which no name is interpreted as markup."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from xml.etree import ElementTree

from fedxray.audit.judge.gate import CHANCE, Judged
from fedxray.metrics import units
from fedxray.report.words import metric_name, role_words

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"fail": ("fail", "error"), "inconclusive": ("fail", "warning"), "pass": ("pass", "none")}
# Characters that XML 1.0 cannot contain, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(judged: Sequence[Judged], suite: str) -> bytes:
    """Return one test case per limit: a failed one is a failure, an inconclusive one an error."""
    outcomes = [limit.outcome for limit in judged]
    counts = {
        "tests": str(len(judged)),
        "failures": str(outcomes.count("fail")),
        "errors": str(outcomes.count("inconclusive")),
    }
    root = ElementTree.Element("testsuites", counts)
    group = ElementTree.SubElement(root, "testsuite", {"name": _xml(f"fedxray gate: {suite}"), **counts})
    for limit in judged:
        attributes = {"classname": _xml(f"fedxray.{limit.defence}"), "name": _xml(limit.title), "time": "0"}
        case = ElementTree.SubElement(group, "testcase", attributes)
        if limit.outcome != "pass":
            tag, kind = ("failure", "leak") if limit.outcome == "fail" else ("error", "inconclusive")
            problem = ElementTree.SubElement(case, tag, {"type": kind, "message": _xml(limit.reason)})
            problem.text = _xml(f"{measured(limit)}, {state(limit)}")
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(f"{measured(limit)}, {state(limit)}")
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def sarif(judged: Sequence[Judged], uri: str, lines: Sequence[int] = ()) -> bytes:
    """Return one result per limit, located at `uri`: an error where it failed, a warning where inconclusive.

    `lines` are those of the limits in the file at `uri`; where their number is another one, no line is stated.
    """
    rules = list(dict.fromkeys((limit.attack, limit.metric) for limit in judged))
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
    places = [_place(uri, line) for line in lines] if len(lines) == len(judged) else [_place(uri)] * len(judged)
    found = [_result(limit, rules, place) for limit, place in zip(judged, places, strict=True)]
    run = {"tool": {"driver": driver}, "results": found}
    log = {"$schema": SARIF, "version": "2.1.0", "runs": [run]}
    return (json.dumps(log, indent=1) + "\n").encode("ascii")


def _place(uri: str, line: int | None = None) -> dict[str, object]:
    """Return a location in a file, with its line where that is known."""
    region = {} if line is None else {"region": {"startLine": line}}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **region}}


def _result(limit: Judged, rules: Sequence[tuple[str, str]], place: dict[str, object]) -> dict[str, object]:
    kind, level = LEVELS[limit.outcome]
    text = f"{limit.outcome}: {limit.title}. Measured: {measured(limit)}: {limit.reason}"
    # Independent of how sentences write numbers, so that the same limit keeps its history.
    role = f", seat {limit.asked}" if limit.asked else ""
    same = f"{limit.attack}: {limit.metric} at most {limit.limit:g} under {limit.defence}{role}"
    fingerprint = hashlib.sha256(same.encode()).hexdigest()
    return {
        "ruleId": _rule(limit.attack, limit.metric),
        "ruleIndex": rules.index((limit.attack, limit.metric)),
        "kind": kind,
        "level": level,
        "message": {"text": _plain(text)},
        "locations": [place],
        "partialFingerprints": {"fedxrayGate/v1": fingerprint},
        "properties": {
            "outcome": limit.outcome,
            "state": limit.state,
            "value": limit.value,
            "low": limit.low,
            "high": limit.high,
        },
    }


def measured(limit: Judged) -> str:
    """Return the measured score or gain with its interval, and who measured it."""
    if limit.value is None:
        return "nothing"
    sign = limit.metric.endswith(units.OVER_FLOOR)  # a gain: in points, with its sign
    metric = limit.measured or limit.metric.removesuffix(units.OVER_FLOOR)
    score = units.value(limit.value, metric, sign=sign)
    spread = units.between(limit.low, limit.high, metric, sign=sign, floor=CHANCE.get(metric, limit.floor))
    ends = "" if limit.low is None else f" (95 % interval {spread})"
    aware = {None: "", True: ", who knows the defence", False: ", who does not know the defence"}
    return f"{metric_name(metric)} {score}{ends} by {role_words(str(limit.role))}{aware[limit.aware]}"


def state(limit: Judged) -> str:
    """Return the state, with its metric where another one was limited."""
    of = "" if limit.primary == limit.measured else f" of {metric_name(limit.primary)}"
    return f"state{of} {limit.state or 'unknown'}"


def _rule(attack: str, metric: str) -> str:
    """Return an identifier of plain letters that is different for different limits."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{attack}.{metric}").strip("-")[:80]
    return f"{short}-{hashlib.sha256(json.dumps([attack, metric]).encode()).hexdigest()[:8]}"


def _xml(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _plain(text: str) -> str:
    """Return text in which SARIF finds neither a link, as [text](target), nor a placeholder, as {0}."""
    safe = re.sub(r"[\x00-\x1f\x7f]", " ", text).replace("](", "] (")
    return re.sub(r"\{(\d+)\}", r"{ \1 }", safe)
