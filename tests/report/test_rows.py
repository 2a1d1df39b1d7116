"""Rows of attacks that make no use of knowing the defence."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fedxray.report.attacks import attack_sections
from fedxray.report.overview import cards
from fedxray.report.rows import judged, shown_rows
from fedxray.report.terminal import primary_tables
from tests.report.synthetic import STORIES, make_cases, make_document

SAME = "with or without knowledge of the defence"


@pytest.fixture(scope="module")
def doubled() -> dict[str, Any]:
    """Membership under three defences, where the attacker who knows the defence gets what the other gets."""
    cases = make_cases(STORIES[2:3])
    plain = {(case["defence"], case["seed"], case["client"]): case for case in cases if not case["aware"]}
    for case in cases:
        twin = plain[case["defence"], case["seed"], case["client"]]
        for name in ("scores", "floors", "controls", "worst_record", "status", "reason"):
            case[name] = copy.deepcopy(twin[name])
    return make_document(cases)


def test_equal_rows_stand_once_and_count_once(doubled: dict[str, Any]) -> None:
    assert len(doubled["summary"]) == 10
    assert [row["aware"] for row in shown_rows(doubled)] == [None, None, *["either"] * 4]
    (section,) = attack_sections(doubled)
    assert [one["aware"] for one in section.measures] == ["", SAME, SAME] * 2
    assert [row["metric"] for row in judged(doubled)] == ["auc"] * 3
    assert len(primary_tables(doubled)[0][1]) == 3
    assert sum(SAME in card.attack for card in cards(doubled)) == 2 and not any(card.others for card in cards(doubled))


def test_one_different_number_keeps_both(doubled: dict[str, Any]) -> None:
    changed = copy.deepcopy(doubled)
    changed["summary"][-1]["mean"] += 1e-9
    assert sorted(str(row["aware"]) for row in shown_rows(changed)) == sorted(
        ["None", "None", *["either"] * 3, "False", "True"]
    )


def test_a_report_says_why_it_shows_no_true_positive_rate(doubled: dict[str, Any]) -> None:
    """A rate at 1 % false positives needs 1,000 non-members; without it the AUC's chart says so, with it nothing."""
    fewer = {**doubled, "summary": [row for row in doubled["summary"] if row["metric"] == "auc"]}
    (section,), (alone,) = attack_sections(doubled), attack_sections(fewer)
    assert not any("1,000 non-members" in chart.subtitle for chart in section.charts)
    assert ["1,000 non-members" in chart.subtitle for chart in alone.charts] == [True]
