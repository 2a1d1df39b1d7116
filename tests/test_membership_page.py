"""The tables of docs/membership.md: what they say of membership-best follows from the measured numbers."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "_build" / "membership_page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    found = importlib.util.spec_from_file_location("membership_page", PAGE)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def cell(runs: int = 5, **aucs: float) -> dict[str, Any]:
    attacks = {
        name: {"auc": [mean, mean - 0.02, mean + 0.02], "tpr_at_1pct_fpr": [mean / 10]} for name, mean in aucs.items()
    }
    return {"runs": runs, "attacks": attacks, "utility": {"accuracy": [0.8, 0.7, 0.9]}}


def test_criteria_and_tables_of_made_up_numbers(page: ModuleType) -> None:
    content = {
        "adult": {"none": cell(loss=0.6, cosine=0.8, best=0.791), "mixup": cell(loss=0.6, cosine=0.8, best=0.63)},
        "acs-income": {"none": cell(loss=0.71, cosine=0.7, best=0.69)},
        "mnist": {"none": cell(loss=0.1, best=0.9)},  # on which parts were chosen
    }
    lines = page.criteria(content)
    assert [(line["setting"], line["defence"], line["within"], line["weak"], line["gains"]) for line in lines] == [
        ("adult", "none", True, True, True),
        ("adult", "mixup", False, True, False),
        ("acs-income", "none", False, False, False),
    ]
    said = page.sentence(content)
    assert said.startswith("Without a defence, ") and "in 1 of 1 where" in said
    assert "in 1 of 2 settings (farthest behind in ACS: 2.0 points)" in said
    assert said.endswith(
        " Under defences it is within 1 point in 0 of 1 settings (farthest behind in Adult,&nbsp;mixup: 17.0 points)."
    )
    text = page.tables(content)
    assert "|cosine|**0.80**±0.02|0.70±0.02|" in text and "|loss|6.0|**7.1**|" in text
    assert "|best|0.63±0.02|" in text and "mnist" not in text and "|accuracy|0.80±0.10|0.80±0.10|" in text


def test_under_defences_an_attack_without_a_row_of_its_own_may_be_the_strongest(page: ModuleType) -> None:
    hidden = cell(runs=4, loss=0.6, best=0.63) | {"utility": {}}
    hidden["attacks"]["logit-drop"] = {"auc": [0.7]}
    tables = page.tables({"adult": {"none": cell(loss=0.6, best=0.8), "mixup": hidden}})
    text = tables.partition("Under defences that the attacker does not use, AUC")[2]
    assert "|strongest&nbsp;single&nbsp;attack|logit-drop&nbsp;**0.70**|\n|runs|4|\n|accuracy|–|" in text
    assert text.count("**") == 2


def test_people_and_the_paper_of_fedmia_are_told_from_the_numbers(page: ModuleType) -> None:
    values = {"auc_subject_from_1": [0.861], "auc_subject_from_5": [0.9], "auc_subject": [1.0]}
    attacks = {name: values | {"auc_subject_other": [0.61, 0.53, 0.68]} for name in ("loss", "cosine", "from-updates")}
    said = page.people({"femnist": {"none": {"runs": 5, "attacks": attacks | {"best": attacks["loss"]}}}})
    assert said.startswith("FEMNIST by writer, 5 runs of 12 rounds, ") and "cosine 0.86, 0.90, 1.00;" in said
    assert "loss 0.61 (0.53–0.68), cosine" in said
    aucs = {"fedmia II": {"auc": [0.92]}, "cosine": {"auc": [0.94]}, "from-updates": {"auc": [1.0]}}
    told = page.compared({"cifar100-long": {"none": {"runs": 1, "attacks": aucs}}})
    assert "(1 run): fedmia II 0.92, cosine 0.94 and from-updates 1.00;" in told and page.compared({}) == ""


def test_the_command_prints_every_measured_setting(
    page: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["membership_page.py"])
    page.main()
    printed = capsys.readouterr().out
    measured = json.loads(page.MEASURED.read_text(encoding="utf-8"))
    assert printed.count(" runs  best ") == sum(len(measured[name]) for name in page.SETTINGS if name in measured)
    assert "within 1 point of the best single attack in" in printed
