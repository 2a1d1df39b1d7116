"""Nothing is computed twice: what knowledge of the defence cannot change, networks, and Zest's solvers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.attacks import floors
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.audit.plan import make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.audit import run_audit
from fedxray.metrics import models
from fedxray.seeds import fork
from tests.adversary.clinics import played
from tests.audit.plans import tiny


def cases_of(folder: Path, monkeypatch: pytest.MonkeyPatch, attacked: list[bool | None]) -> list[dict[str, Any]]:
    """The cases of an audit under a defence, without times; `attacked` gets the awareness of all that were run."""
    evaluate = execute.evaluate

    def noted(context: Any) -> Any:
        attacked.append(context.aware)
        return evaluate(context)

    monkeypatch.setattr(execute, "evaluate", noted)
    defence = [{"name": "none"}, {"name": "gaussian-noise", "scale": 0.1}]
    attack = [{"name": "attribute-from-model"}, {"name": "membership-loss"}]
    plan = make_plan(tiny(defence=defence, attack=attack), folder)
    cases = run_audit(plan, folder / "out", power=False).document["cases"]
    monkeypatch.setattr(execute, "evaluate", evaluate)
    return [{key: value for key, value in case.items() if "seconds" not in key} for case in cases]


def test_an_attack_that_cannot_adapt_runs_once_for_both_attackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked: list[bool | None] = []
    found = cases_of(tmp_path / "once", monkeypatch, attacked)
    assert len(found) == 12 and sorted(attacked, key=str) == [False] * 4 + [None] * 4
    monkeypatch.setattr(execute, "_as_unaware", lambda *_: None)
    assert cases_of(tmp_path / "twice", monkeypatch, attacked) == found and attacked.count(True) == 4
    aware = [case for case in found if case["aware"]]
    assert all("defence" in case["ledger"]["grants"] and case["ledger"]["adapts"] is False for case in aware)


def test_the_imputation_floor_is_fitted_once_for_all_clients_and_defences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[str] = []
    real = floors._linear

    def noted(goal: Any) -> Any:
        fitted.append(goal)
        return real(goal)

    monkeypatch.setattr(floors, "_linear", noted)
    floors._fitted.clear()
    defence = [{"name": "none"}, *({"name": "quantise", "bits": bits, "label": f"{bits} bits"} for bits in (2, 4, 8))]
    plan = make_plan(tiny(defence=defence), tmp_path)
    assert len(run_audit(plan, tmp_path / "out", power=False).document["cases"]) == 14
    assert sorted(fitted) == ["balanced", "classes"]


def test_the_network_is_copied_once_for_all_candidate_values(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript, truth = played()
    grants = disclose(truth, AttributeFromModel().own_grants(), client=1)
    copied: list[Any] = []
    deepcopy = copy.deepcopy
    monkeypatch.setattr(copy, "deepcopy", lambda value, *more: (copied.append(value), deepcopy(value, *more))[1])
    AttributeFromModel().run(roles.server(transcript, client=1, grants=grants), generator=fork(0))
    assert sum(isinstance(value, nn.Module) for value in copied) == 1


def test_zest_solves_for_the_masks_of_a_question_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []
    pinv = torch.linalg.pinv
    monkeypatch.setattr(torch.linalg, "pinv", lambda matrix: (solved.append(1), pinv(matrix))[1])
    truth = played()[1]
    question = models.ask(truth.train[1].x, truth.train[1].x, truth.space, fork(0))
    first, second = (models.signature(lambda x: x.sum(1, keepdim=True), question) for _ in range(2))
    assert torch.equal(first, second) and len(solved) == len(question.masks)
