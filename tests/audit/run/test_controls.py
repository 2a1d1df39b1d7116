"""A plan may spare controls of an attack; results and report say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.preflight import SECONDS_PER_CASE, preflight
from fedxray.errors import BadInput
from fedxray.report import build_report
from tests.audit.plans import tiny


def attack(**more: Any) -> dict[str, Any]:
    return tiny(attack=[{"name": "attribute-from-model", **more}])


def test_only_the_chosen_controls_are_run_and_the_rest_is_said_to_be_missing(tmp_path: Path) -> None:
    plans = {name: make_plan(attack(**more), tmp_path) for name, more in CHOICES.items()}
    found = {name: run_audit(plan, tmp_path / name).document["cases"][0] for name, plan in plans.items()}
    assert set(found["all"]["controls"]) == {"held-out", "other-client", "global-model"}
    assert set(found["one"]["controls"]) == {"held-out"} and found["none"]["controls"] == {}
    assert found["one"]["controls"]["held-out"] == found["all"]["controls"]["held-out"]
    assert found["all"]["ledger"]["controls_left_out"] == []
    assert found["one"]["ledger"]["controls_left_out"] == ["other-client", "global-model"]
    page = build_report(tmp_path / "one").read_text(encoding="utf-8")
    assert "controls excluded by the plan: another client" in page
    assert "controls excluded" not in build_report(tmp_path / "all").read_text(encoding="utf-8")


CHOICES: dict[str, dict[str, Any]] = {"all": {}, "one": {"controls": ["held-out"]}, "none": {"controls": []}}


def test_a_control_that_the_attack_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Did you mean held-out"):
        make_plan(attack(controls=["hold-out"]), tmp_path)
    with pytest.raises(BadInput, match=r"attack\[0\].controls"):
        make_plan(attack(controls="held-out"), tmp_path)


def test_a_spared_control_is_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedxray.audit.run.preflight._step_seconds", lambda federation: 1.0)
    images = {
        "data": {"name": "digits", "clients": 2, "limit": 4},
        "model": {"name": "mlp", "hidden": [4]},
        "federation": {"rounds": 1, "epochs": 2, "batch_size": 2},
    }
    needed = [
        preflight(
            make_plan(
                {**images, "attack": [{"name": "inverting-gradients", "steps": 10, "targets": 1, **more}]}, tmp_path
            )
        ).seconds
        for more in ({}, {"controls": ["held-out"]})
    ]
    training, replayed = 2 * 4, 10 * 4 * 3  # two clients of four local steps; ten steps that replay four
    assert needed == pytest.approx([training + times * replayed + SECONDS_PER_CASE for times in (2, 1)])
