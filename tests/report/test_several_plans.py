"""Results of several plans in one document, each row with its plan's name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.audit.judge.gate import plans_of
from fedxray.report import build_report, summary_lines
from fedxray.report.overview import cards
from fedxray.report.rows import deployed
from fedxray.report.setup import audited, tried
from tests.report.reading import read_page
from tests.report.synthetic import STORIES, make_cases, make_document


@pytest.fixture(scope="module")
def joined() -> dict[str, Any]:
    first, second = make_document(make_cases(STORIES[1:2])), make_document(make_cases(STORIES[2:3]))
    for name, part in (("one", first), ("two", second)):
        part["plan"] = {**part["plan"], "name": name}
        for rows in ("cases", "summary", "utility"):
            part[rows] = [{**row, "plan": name} for row in part[rows]]
    second["plan"]["defence"] = [{"name": "none", "deployed": True}]
    whole = {key: first[key] + second[key] for key in ("cases", "summary", "utility")}
    plans = {"name": "both", "plans": [first["plan"], second["plan"]]}
    return copy.deepcopy({"format": 1, "plan": plans, "versions": first["versions"], **whole})


def test_plans_are_distinguished(joined: dict[str, Any]) -> None:
    assert list(plans_of(joined)) == ["one", "two"]
    assert deployed(joined) == {("one", "dp-sgd"), ("two", "none")}
    assert [name for name, _ in audited(joined)] == ["one", "two"]
    assert tried(joined).startswith("2 attacks by a network eavesdropper and the server: ")


def test_a_deployed_defence_of_the_users_own_is_named_as_in_its_rows() -> None:
    document = {"plan": {"defence": [{"factory": "mine:build", "deployed": True}, {"name": "none"}]}}
    assert deployed(document) == {(None, "mine:build")}


def test_the_same_defence_of_two_plans_has_two_verdicts(joined: dict[str, Any]) -> None:
    found = [(card.plan, card.name, card.deployed) for card in cards(joined)]
    assert sorted(found) == [
        ("one", "dp-sgd", True),
        ("one", "gaussian-noise", False),
        ("one", "none", False),
        ("two", "dp-sgd", False),
        ("two", "gaussian-noise", False),
        ("two", "none", True),
    ]
    assert [deployed for *_, deployed in found[:2]] == [True, True]
    assert any(line.startswith("  - two, no defence: ") for line in summary_lines(joined))


def test_the_page_names_both(tmp_path: Path, joined: dict[str, Any]) -> None:
    results.write(joined, tmp_path)
    page = read_page(build_report(tmp_path).read_text())
    assert page.text.count("No defence") == 2
    assert "one : The model" in page.text and "two : The model" in page.text
