"""What the model predicts and what must not leak, wherever the report states it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.catalog import ATTACKS, attack_facts, make_attack
from fedxray.audit.judge import results
from fedxray.report import build_report, states
from fedxray.report.attacks import attack_sections
from fedxray.report.overview import SECRETS, cards, secrets_of
from fedxray.report.setup import setups, utility
from fedxray.report.words import NO_LEVEL
from tests.report.reading import read_page
from tests.report.synthetic import STORIES, make_cases, make_document

FACTS = {"sensitive": "smoker", "target_column": "bill", "target_standardised": True}


@pytest.fixture(scope="module")
def clinic() -> dict[str, Any]:
    """Attributes and membership in a table whose ledger names its columns."""
    cases = make_cases(STORIES[1:3])
    for case in cases:
        case["ledger"] |= FACTS
    made = make_document(cases)
    made["utility"] = [
        {**one, "metric": "loss", "value": 0.4, "low": -0.1, "high": 0.9, "epsilon": None} for one in made["utility"]
    ]
    return made


def facts(document: dict[str, Any]) -> dict[str, str]:
    return dict(setups(document)[0][1])


def test_the_facts_name_both(clinic: dict[str, Any]) -> None:
    assert facts(clinic)["Predicts"] == "“bill”"
    assert facts(clinic)["Must not leak"] == "“smoker”; which records were trained on"


def test_the_plan_is_used_where_the_ledger_is_empty(clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    for case in changed["cases"]:
        case["ledger"] = {}
    assert "Predicts" not in facts(changed) and "the sensitive column" in facts(changed)["Must not leak"]
    changed["plan"]["data"] |= {"target": "bill", "sensitive": "age"}
    assert facts(changed)["Predicts"] == "“bill”" and facts(changed)["Must not leak"].startswith("“age”")


@pytest.mark.parametrize("metric", ["auc_subject", "auc_subject_other"])
def test_people_are_named_where_they_are_judged(clinic: dict[str, Any], metric: str) -> None:
    changed = copy.deepcopy(clinic)
    changed["summary"] = [row for row in changed["summary"] if row["attack"] == "membership-loss" and row["primary"]]
    for row in changed["summary"]:
        row |= {"metric": metric, "kind": "record", "state": "leaks", "verdict": "leaks"}
    for case in changed["cases"]:
        case["ledger"] |= {"grants": ["target-records"]}
    assert facts(changed)["Must not leak"] == "“smoker”; who is in the training data"
    assert {one["level"] for part in attack_sections(changed) for one in part.measures} == {"person-level"}
    for card in cards(changed):
        assert card.secret == "who is in the training data"
        known = dict(card.facts)["Attacker knows"]
        assert ("all that the client trained on" in known) is (metric == "auc_subject")
        assert ("none of them trained on; of some people other records were" in known) is (metric != "auc_subject")
    changed["summary"][0] |= {"state": "no leak found", "verdict": "no leak found"}
    said = states.evidence(changed["summary"][0])
    assert ("whether it recognises a person by other records was not tested" in said) is (metric != "auc_subject")


def test_records_without_columns_have_classes(clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    for case in changed["cases"]:
        case["ledger"] |= {"target_column": None}
    assert facts(changed)["Predicts"] == "the class of each record"


def test_findings_and_headings_of_attributes_name_the_column(clinic: dict[str, Any]) -> None:
    assert secrets_of(clinic) == {"attribute-from-model": "smoker"}
    first, second = attack_sections(clinic)
    assert first.charts[0].title == "accuracy: share of records whose “smoker” is inferred correctly"
    assert "smoker" not in second.charts[0].title
    alone = {**clinic, "summary": [row for row in clinic["summary"] if row["attack"] == "attribute-from-model"]}
    assert any("infers “smoker” correctly for 95" in card.sentence for card in cards(alone))


@pytest.mark.parametrize(
    ("restore", "label"),
    [
        ("ddrm", "attribute-from-model+ddrm"),
        ([{"name": "gan"}, {"name": "ddrm", "label": "mine"}], "attribute-from-model+mine"),
    ],
)
def test_restored_sections_state_what_was_done(clinic: dict[str, Any], restore: Any, label: str) -> None:
    changed = copy.deepcopy(clinic)
    changed["plan"]["attack"] = [{"name": "attribute-from-model", "restore": restore}]
    for one in (*changed["cases"], *changed["summary"]):
        one["attack"] = label if one["attack"] == "attribute-from-model" else one["attack"]
    changed["attacks"][label] = changed["attacks"].pop("attribute-from-model")
    plain, restored = attack_sections(clinic)[0].about, attack_sections(changed)[0].about
    assert plain and restored and restored.startswith(f"{plain} Its images were then restored by ddrm")
    assert secrets_of(changed) == {label: "smoker"}
    for broken in (3, [None], {"prior": "p"}, {"name": 3}):
        changed["plan"]["attack"] = [{"name": "attribute-from-model", "restore": broken}]
        assert attack_sections(changed)[0].about == plain


def test_a_label_of_its_own_changes_nothing(clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    changed["plan"]["attack"] = [{"name": "attribute-from-model", "label": "mine"}]
    for one in (*changed["cases"], *changed["summary"]):
        one["attack"] = "mine" if one["attack"] == "attribute-from-model" else one["attack"]
    changed["attacks"]["mine"] = changed["attacks"].pop("attribute-from-model")
    assert secrets_of(changed) == {"mine": "smoker"}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_of_the_catalogue_has_a_kind_and_a_secret(name: str) -> None:
    facts = attack_facts(make_attack(name, {}))
    assert facts["kind"] == "attributes" or facts["kind"] in SECRETS
    assert facts["about"] and facts["source"] == "built-in" and facts["name"] == name


def test_older_results_without_facts_of_attacks_stay_readable(clinic: dict[str, Any], tmp_path: Path) -> None:
    older = {key: value for key, value in clinic.items() if key != "attacks"}
    results.validate(older)
    assert attack_sections(older)[0].about is None and secrets_of(older) == {}
    assert "Must not leak" not in facts(older)
    results.write(older, tmp_path)
    assert build_report(tmp_path).is_file()


def test_third_party_code_is_marked(clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    changed["attacks"]["membership-loss"]["source"] = "third-party, from toys 1.2"
    changed["third_party"] = [{"kind": "attack", "name": "membership-loss", "distribution": "toys", "version": "1.2"}]
    results.validate(changed)
    assert str(attack_sections(changed)[1].about).endswith("Third-party, from toys 1.2.")
    assert facts(changed)["Third-party code"] == "attack membership-loss (from toys 1.2)"
    assert "Third-party code" not in facts(clinic)


def test_one_gradient_is_not_called_an_epoch(clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    changed["plan"]["federation"] |= {"algorithm": "fedsgd", "rounds": 2}
    assert facts(changed)["Training"] == "fedsgd, 2 rounds, one gradient of all examples"


def test_the_loss_of_a_standardised_target_has_a_yardstick(clinic: dict[str, Any]) -> None:
    first = utility(clinic)[0]
    assert first["description"].endswith("(1 = predicting the mean)")
    assert first["spread"] == "0.000 to 0.900"
    plain = copy.deepcopy(clinic)
    for case in plain["cases"]:
        case["ledger"]["target_standardised"] = False
    assert utility(plain)[0]["description"] == "loss on held-out records, less is better"


def test_the_page_leaves_out_what_nothing_has(tmp_path: Path, clinic: dict[str, Any]) -> None:
    results.write(clinic, tmp_path)
    page = read_page(build_report(tmp_path).read_text())
    legend = page.text[page.text.index("Each line is one defence") :][:900]
    assert "a leak starts here" in legend and "control: another client's messages" in legend
    assert "no leak found" not in legend and "upper bound" not in legend
    assert "Privacy budget" not in page.text and "ε" not in page.text
    parts = page.all("details")
    opened = [part for part in parts if "open" in part]
    assert len(opened) == 1 and len(parts) > 10, (
        "parts are closed; in them only the strongest of where it leaks is open"
    )


def test_a_leak_without_a_level_is_not_called_a_population_leak(tmp_path: Path, clinic: dict[str, Any]) -> None:
    changed = copy.deepcopy(clinic)
    for one in changed["summary"]:
        one["kind"] = None
    results.write(changed, tmp_path)
    page = read_page(build_report(tmp_path).read_text())
    before_method = page.text[: page.text.rindex("How to read this report")]
    assert "population" not in before_method.lower() and "people like these" not in before_method
    assert NO_LEVEL in before_method
