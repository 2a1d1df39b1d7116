"""Limits for machines: JUnit and SARIF that can be read back, whatever names hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.gate import Judged
from fedxray.report.ci import junit, measured, sarif

PASSED = Judged(
    attack="a",
    metric="accuracy_over_floor",
    limit=0.1,
    defence="none",
    asked=None,
    role="server",
    aware=True,
    outcome="pass",
    value=0.02,
    low=-0.01,
    high=0.05,
    reason="the whole interval lies within 0.1",
)
FAILED = replace(PASSED, outcome="fail", value=0.3, low=0.2, high=0.4, reason="the whole interval lies above 0.1")
OPEN = replace(PASSED, outcome="inconclusive", value=None, low=None, high=None, reason="it was not measured")
MARKUP = '</testcase><script>alert("x")</script>&[link](https://example.org){0}\x1b\ufffe'


def test_every_outcome_has_its_element() -> None:
    root = ElementTree.fromstring(junit([PASSED, FAILED, OPEN], "pilot"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    cases = root.findall("./testsuite/testcase")
    assert [[child.tag for child in case] for case in cases] == [["system-out"], ["failure"], ["error"]]
    failure = cases[1].find("failure")
    assert failure is not None and failure.text == (
        "accuracy +30.0\N{NO-BREAK SPACE}points (95 % interval +20.0 to +40.0\N{NO-BREAK SPACE}points) "
        "by the server, who knows the defence, state unknown"
    )


def test_a_gain_over_chance_ends_at_what_chance_leaves() -> None:
    found = replace(PASSED, metric="auc_over_floor", low=0.101, high=0.873, floor=0.5)
    assert "+0.101 to +0.500)" in measured(found)


def test_a_gain_over_a_floor_ends_at_what_the_floor_leaves() -> None:
    found = replace(FAILED, low=0.241, high=0.296, floor=0.723)
    assert "+24.1 to +27.7\N{NO-BREAK SPACE}points)" in measured(found)


def test_the_state_is_carried() -> None:
    made = [replace(FAILED, state="leaks"), replace(OPEN, state="trace"), replace(PASSED, state="no leak found")]
    for state in (b"state leaks", b"state trace", b"state no leak found"):
        assert state in junit(made, "x")
    found = json.loads(sarif(made, "plan.toml"))["runs"][0]["results"]
    assert [one["properties"]["state"] for one in found] == ["leaks", "trace", "no leak found"]


def test_sarif_has_what_its_standard_asks_for() -> None:
    found = json.loads(sarif([PASSED, FAILED, OPEN], "out/plan.toml"))
    assert found["version"] == "2.1.0" and found["$schema"].endswith("sarif-2.1.0.json")
    run = found["runs"][0]
    assert run["tool"]["driver"]["name"] == "fedxray"
    assert [(one["kind"], one["level"]) for one in run["results"]] == [
        ("pass", "none"),
        ("fail", "error"),
        ("fail", "warning"),
    ]
    for one in run["results"]:
        assert run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
        place = one["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "out/plan.toml"}}


def test_a_result_has_the_line_of_its_limit_where_that_is_known() -> None:
    made = [PASSED, FAILED, OPEN]
    places = [
        [one["locations"][0]["physicalLocation"].get("region") for one in json.loads(log)["runs"][0]["results"]]
        for log in (sarif(made, "plan.toml", [4, 9, 20]), sarif(made, "plan.toml", [4, 9]))
    ]
    assert places == [[{"startLine": 4}, {"startLine": 9}, {"startLine": 20}], [None] * 3]


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object that has these properties and no others."""
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


TEXT = {"type": "string"}
MESSAGE = closed(["text"], text=TEXT)
PLACE = closed(
    ["artifactLocation"],
    artifactLocation=closed([], uri=TEXT),
    region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}),
)
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={"type": "array", "items": closed([], physicalLocation=PLACE)},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    properties={"type": "object"},
) | {"if": {"properties": {"kind": {"not": {"const": "fail"}}}}, "then": {"properties": {"level": {"const": "none"}}}}
RULE = closed(["id"], id=TEXT, shortDescription=MESSAGE)
DRIVER = closed(["name"], name=TEXT, version=TEXT, rules={"type": "array", "items": RULE, "uniqueItems": True})
# What the schema of SARIF 2.1.0 says of the parts that are written here: what must be there, and that there is no more.
LOG = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "items": closed(["tool"], tool=closed(["driver"], driver=DRIVER), results={"type": "array", "items": RESULT}),
    },
)


@pytest.mark.parametrize("name", ["inverting-gradients", MARKUP])
def test_sarif_fits_the_schema_of_its_standard(name: str) -> None:
    made = [replace(one, attack=name, defence=name) for one in (PASSED, FAILED, OPEN)]
    for lines in ([], [1, 2, 3]):
        jsonschema.validate(json.loads(sarif(made, "out/plan.toml", lines)), LOG)
    for broken in ({"runs": []}, {"version": "2.1.0", "runs": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, LOG)


def test_markup_in_names_stays_text() -> None:
    planted = replace(FAILED, attack=MARKUP, defence=MARKUP, reason=MARKUP)
    root = ElementTree.fromstring(junit([planted], MARKUP))
    assert [one.tag for one in root.iter()] == ["testsuites", "testsuite", "testcase", "failure"]
    text = json.loads(sarif([planted], "plan.toml"))["runs"][0]["results"][0]["message"]["text"]
    assert "](" not in text and "{0}" not in text and "\x1b" not in text and "<script>" in text


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_a_name_holds_it_can_be_read_back(attack: str, reason: str) -> None:
    made = [replace(OPEN, attack=attack, reason=reason)]
    root = ElementTree.fromstring(junit(made, attack))
    case = root.find("./testsuite/testcase")
    assert case is not None and [child.tag for child in case] == ["error"]
    json.loads(sarif(made, "plan.toml"))
