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
    return {"runs": runs, "attacks": attacks}


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
    assert "in 1 of 2 settings (farthest behind in ACS: 2.0 points)" in said and "in 1 of 1 where" in said
    text = page.tables(content)
    assert "|cosine|**0.80**±0.02|0.70±0.02|" in text and "|loss|6.0|**7.1**|" in text
    assert "|best|0.63±0.02|" in text and "mnist" not in text


def test_the_command_prints_every_measured_setting(
    page: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["membership_page.py"])
    page.main()
    printed = capsys.readouterr().out
    measured = json.loads(page.MEASURED.read_text(encoding="utf-8"))
    assert printed.count(" runs  best ") == sum(len(measured[name]) for name in page.SETTINGS if name in measured)
    assert "within 1 point of the best single attack in" in printed
