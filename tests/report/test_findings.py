"""The first screen: verdicts, worst findings and next steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fedxray.report.overview import defence_verdicts, next_steps, overall, worst_findings
from tests.report.synthetic import make_document


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return make_document()


def with_rows(made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(made)
    for row in changed["summary"]:
        row |= changes
    return changed


def test_one_verdict_per_defence_in_order_and_oracles_do_not_count(made: dict[str, Any]) -> None:
    verdicts = defence_verdicts(made)
    assert [one.name for one in verdicts] == ["none", "gaussian-noise", "dp-sgd"]
    assert [one.verdict for one in verdicts] == ["leaks", "leaks", "inconclusive"]
    assert [one.deployed for one in verdicts] == [False, False, True]
    assert "6 of 6 measurements" in verdicts[0].headline
    only_oracle = with_rows(made, verdict="inconclusive")
    only_oracle["summary"][-1]["verdict"] = "leaks"
    assert only_oracle["summary"][-1]["oracle"]
    assert {one.verdict for one in defence_verdicts(only_oracle)} == {"inconclusive"}
    assert worst_findings(only_oracle) == []


def test_one_leak_by_either_attacker_decides(made: dict[str, Any]) -> None:
    changed = with_rows(made, verdict="no leak found")
    assert {one.verdict for one in defence_verdicts(changed)} == {"no leak found"}
    row = next(row for row in changed["summary"] if row["defence"] == "dp-sgd" and row["aware"] is False)
    row["verdict"] = "inconclusive"
    assert defence_verdicts(changed)[2].verdict == "inconclusive"
    row["verdict"] = "leaks"
    assert defence_verdicts(changed)[2].verdict == "leaks"


def test_inconclusive_never_sounds_safe(made: dict[str, Any]) -> None:
    found = defence_verdicts(made)[2]
    assert found.headline == "Neither a leak nor safety was shown."
    assert any("without proof that the attack would detect a leak" in detail for detail in found.details)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mean": None}, "no completed case"),
        ({"floor": None}, "no floor to compare with"),
        ({"n": 4}, "too few client-runs"),
        ({"low": 0.2, "high": 0.3, "margin": 0.1}, "not after the correction"),
        ({"low": 0.0, "high": 0.3, "margin": 0.1}, "contain the margin"),
        ({"low": 0.0, "high": 0.05, "margin": 0.1}, "without proof"),
    ],
)
def test_every_doubt_has_its_words(made: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    (details,) = {one.details for one in defence_verdicts(with_rows(made, verdict="inconclusive", **changes))[:1]}
    assert len(details) == 1 and said in details[0]


def test_worst_findings_are_ranked_and_have_floor_and_interval(made: dict[str, Any]) -> None:
    findings = worst_findings(made)
    assert [one.title.split(",")[0] for one in findings] == [
        "inverting-gradients",
        "membership-loss",
        "attribute-from-model",
    ]
    assert "23.9\N{NO-BREAK SPACE}dB" in findings[0].sentence and "the nearest public image" in findings[0].sentence
    assert findings[1].meaning.startswith("Level: record.")
    assert findings[0].meaning.startswith("Level: client.")


def test_a_deployed_defence_comes_first_and_the_stronger_attacker_is_shown(made: dict[str, Any]) -> None:
    changed = copy.deepcopy(made)
    rows = [r for r in changed["summary"] if r["defence"] == "dp-sgd" and r["metric"] == "auc"]
    for row, low in zip(rows, (0.06, 0.07), strict=True):
        row |= {"verdict": "leaks", "low": low, "kind": "record"}
    first = worst_findings(changed)[0]
    assert first.title == "membership-loss, run by the server, against dp-sgd (attacker knows the defence)"


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([], "Nothing was measured."),
        (["leaks"], "It leaks."),
        (["no leak found"], "No leak found."),
        (["inconclusive"], "Inconclusive: neither a leak nor safety was shown."),
        (["leaks", "no leak found", "inconclusive"], "Leaks in 1 of 3 settings; no leak found in 1; 1 inconclusive."),
        (["leaks", "leaks"], "Leaks in all of 2 settings."),
        (["inconclusive", "inconclusive"], "No leak shown in any of 2 settings; 2 inconclusive."),
    ],
)
def test_everything_in_one_sentence(made: dict[str, Any], verdicts: list[str], said: str) -> None:
    changed = copy.deepcopy(made)
    names = dict(zip(("none", "gaussian-noise", "dp-sgd"), verdicts, strict=False))
    rows = [row for row in changed["summary"] if row["defence"] in names]
    changed["summary"] = [row | {"verdict": names[row["defence"]]} for row in rows]
    assert overall(changed) == said


def test_a_finding_says_what_leaks_and_images_in_shares_where_they_are(made: dict[str, Any]) -> None:
    assert [one.secret for one in worst_findings(made)] == [
        "the training images",
        "which records were trained on",
        "\N{LEFT DOUBLE QUOTATION MARK}smoker\N{RIGHT DOUBLE QUOTATION MARK}",
    ]
    changed = copy.deepcopy(made)
    row = next(row for row in changed["summary"] if row["metric"] == "psnr" and row["verdict"] == "leaks")
    changed["summary"].append(row | {"metric": "rec", "mean": 0.88, "floor": 0.0})
    assert worst_findings(changed)[0].sentence.startswith("The server reconstructs 88.0")
    changed["cases"] = [case | {"attack": "own-attack"} for case in changed["cases"]]
    changed["summary"] = [row | {"attack": "own-attack"} for row in changed["summary"]]
    assert {one.secret for one in worst_findings(changed)} == {None}, "its kind is unknown"


def test_a_population_leak_names_the_model_only_where_the_global_model_was_a_control(made: dict[str, Any]) -> None:
    population = with_rows(made, kind="population")
    by_attack = {one.title.split(",")[0]: one.meaning for one in worst_findings(population)}
    assert "Anyone who holds the trained model" in by_attack["membership-loss"]  # has the control global-model
    assert "Other clients' messages" in by_attack["attribute-from-model"]
    assert all(meaning.startswith("Level: population.") for meaning in by_attack.values())


def test_next_steps_follow_from_the_verdicts(made: dict[str, Any]) -> None:
    steps = " ".join(next_steps(made))
    assert "With dp-sgd neither a leak nor safety was shown" in steps and "fedxray recommend" in steps
    assert "--resume" not in steps, "a diverged case would diverge again"
    changed = copy.deepcopy(made)
    for row in changed["summary"]:
        row["verdict"] = "no leak found" if row["defence"] == "dp-sgd" else row["verdict"]
    assert "No leak found with dp-sgd" in next_steps(changed)[0]
    changed["cases"][0]["status"] = "truncated"
    assert "--resume" in next_steps(changed)[-1]
    assert next_steps(with_rows(made, verdict="no leak found")) == []
    alone = {**made, "summary": [row for row in made["summary"] if row["defence"] == "none"]}
    assert "fedxray list defences" in next_steps(alone)[0]
    stuck = next_steps(with_rows(made, verdict="leaks", kind="population"))
    assert "No audited defence stops the leak" in stuck[0] and "trained model itself" in stuck[1]
