"""'May we go on?': one answer, the findings behind it with settled ones first, and the next steps."""

from __future__ import annotations

from typing import Any

import pytest

from fedxray.report import states
from fedxray.report.overview import Answer, answer, cards, overall
from tests.report.states import make_results, make_row

NOISE, MEMBERSHIP = {"defence": "gaussian-noise", "aware": True}, {"attack": "membership-loss", "metric": "auc"}


def answered(*rows: dict[str, Any], deployed: str | None = None) -> Answer:
    document = make_results(*rows)
    if deployed is not None:
        document["plan"]["defence"] = [
            {"name": name, "deployed": name == deployed} for name in dict.fromkeys(row["defence"] for row in rows)
        ]
    return answer(document, cards(document))


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("leaks", "No, "),
        ("suspected", "Not yet: a leak is suspected"),
        ("small", "With care: "),
        ("trace", "Not yet: the messages reveal something"),
        ("stopped", "Yes, as far as these attacks show: what leaks without the defence is stopped."),
        ("coarse", "Not yet: it is not decided."),
        ("open", "Not yet: it is not decided."),
        ("no leak found", "Yes, as far as these attacks show"),
    ],
)
def test_every_state_has_its_answer(kind: str, first: str) -> None:
    found = answered(make_row(kind))
    assert found.text.startswith(first) and found.state == kind
    assert len(found.findings) == 1 and found.more == 0 and found.steps
    assert (found.steps == ((states.NO_STEP, ""),)) == (kind == "no leak found")


@pytest.mark.parametrize(
    ("kind", "text", "headline"),
    [
        ("leaks", "No, not as it is: it can leak (synthetic records).", "It can leak (synthetic records)."),
        ("no leak found", "Yes, as far as these attacks show: no leak was found (synthetic records).", "No leak found"),
    ],
)
def test_of_synthetic_records_answer_and_headline_say_so(kind: str, text: str, headline: str) -> None:
    document = make_results(make_row(kind))
    document["plan"]["data"] = {"schema": "cols.toml"}
    made = cards(document)
    assert answer(document, made).text == text and overall(made)[1].startswith(headline)
    both = make_results(make_row(), make_row("no leak found", **NOISE)) | {"plan": document["plan"]}
    assert overall(cards(both))[1].startswith("It can leak (synthetic records) without a defence; ")


def test_a_defence_under_which_no_leak_was_found_is_named() -> None:
    found = answered(make_row("leaks"), make_row("no leak found", **NOISE))
    assert found.text == "No, not as it is: it leaks. With gaussian-noise no leak was found."


def test_the_deployed_defence_decides_and_comes_first() -> None:
    rows = make_row("leaks"), make_row("no leak found", **NOISE)
    found = answered(*rows, deployed="gaussian-noise")
    assert found.text.startswith("Yes") and [one.state for one in found.findings] == ["no leak found", "leaks"]
    assert answered(*rows, deployed="none").text.startswith("No, ")


def test_settled_findings_come_before_stronger_signs_that_are_not_settled() -> None:
    rows = make_row("suspected"), make_row("no leak found", **MEMBERSHIP), make_row("trace", role="eavesdropper")
    found = answered(*rows, make_row("open", **NOISE))
    assert found.findings[0].state == "no leak found" and len(found.findings) == 3 and found.more == 1
    assert found.text.startswith("Not yet: a leak is suspected")


def test_steps_are_few_without_repeats_and_have_commands() -> None:
    rows = [make_row("suspected", defence=name) for name in ("none", "a", "b", "c", "d")]
    found = answered(*rows)
    assert len(found.steps) == 1, "equal steps of five cards stand once"
    assert found.steps[0][1] == "fedxray audit PLAN.toml --resume --seeds 5"


def test_a_finding_says_why_its_state_is_not_what_its_interval_suggests() -> None:
    assert answered(make_row("leaks", low=0.01)).findings[0].sentence.endswith("the interval is for other runs.")


def test_nothing_measured_is_no_yes() -> None:
    document = make_results() | {"cases": [], "summary": [], "utility": []}
    assert answer(document, cards(document)).text == "Not yet: nothing was measured."


def test_failed_cases_are_the_first_step() -> None:
    document = make_results(make_row("open"))
    for case in document["cases"][:3]:
        case.update(status="diverged", reason="training diverged", scores={})
    first = answer(document, cards(document)).steps[0][0]
    assert "cases failed" in first or "diverged" in first


def test_an_audit_without_any_score_says_so() -> None:
    empty = make_row("open", mean=None, difference=None, low=None, high=None, upper=None, more_seeds=None)
    assert answered(empty).text == "Not yet: nothing was measured."
