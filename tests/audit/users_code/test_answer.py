"""What the audit does with the answer of a user's attack: it is checked here, and compared with every floor."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.adversary.view import Grants
from fedxray.attacks.evidence import Evidence, Kind, WrongEvidence, of_class_images, of_images, of_model
from fedxray.audit import catalog
from fedxray.audit.own_code.carry import checked, evidence_of, plain_facts
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.preflight import _repeats
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import Store
from fedxray.errors import BadInput
from fedxray.federation.setting import Federation
from tests.attacks.by_hand import linear, table, view_with
from tests.audit.plans import tiny
from tests.audit.stored import stored_evidence

OWN = "tests.audit.own_attacks"
HONEST = {"name": "membership-loss"}


@pytest.fixture(autouse=True)
def closed() -> None:
    execute._open_run.clear()


def audited(
    folder: Path, *attacks: dict[str, Any], resume: bool = False, **data: Any
) -> tuple[dict[str, dict[str, Any]], int]:
    """The case of every attack by its label, and the number of failed ones."""
    document = tiny(attack=[{"targets": [0], **attack} for attack in attacks], data={"holdout": 0.3, **data})
    done = run_audit(make_plan(document, folder), folder / "out", engine="inline", power=False, resume=resume)
    return {case["attack"]: case for case in done.document["cases"]}, done.failed


def answering(answer: str, **more: Any) -> dict[str, Any]:
    return {"factory": f"{OWN}:Answering", "answer": answer, "label": "own", **more}


def test_a_floor_offered_as_an_attack_meets_itself(tmp_path: Path) -> None:
    """It declares `majority` alone, which it beats."""
    labelled = {"factory": f"{OWN}:Borrowed", "label": "own"}
    data = {"records": 200, "public": 0.3}
    case = audited(tmp_path, labelled, **data)[0]["own"]
    assert set(case["floors"]) == {"majority", "imputation", "without-messages"}
    assert case["scores"] == case["floors"]["imputation"] == case["floors"]["without-messages"]
    needing = audited(tmp_path / "needing", labelled | {"needs_messages": True}, **data)[0]["own"]
    assert needing["status"] == "ok" and set(needing["floors"]) == {"majority", "imputation"}


def test_a_floor_is_ours_where_a_factory_returns_the_same_class(tmp_path: Path) -> None:
    """In the attacker's process that factory would return a worse one."""
    shared = {"targets": [0], "grants": ["public-attributes", "public-records"]}
    data = {"records": 200, "public": 0.3}
    own = {"factory": f"{OWN}:two_faced", "folder": str(tmp_path), "label": "own", **shared}
    honest = {"factory": f"{OWN}:Borrowed", "label": "honest"}
    cases, _ = audited(tmp_path, own, honest, **data)
    assert cases["own"]["floors"]["imputation"] == cases["honest"]["floors"]["imputation"]
    assert cases["own"]["scores"] != cases["own"]["floors"]["imputation"]


def test_a_users_attack_meets_every_control_of_its_kind_unless_the_plan_names_them(tmp_path: Path) -> None:
    """It declares none."""
    own, data = {"factory": f"{OWN}:Borrowed", "targets": [0]}, {"records": 200, "public": 0.3}
    cases, _ = audited(tmp_path, own | {"label": "all"}, own | {"label": "one", "controls": ["other-client"]}, **data)
    assert set(cases["all"]["controls"]) == {"held-out", "other-client"}
    assert cases["all"]["ledger"]["controls_left_out"] == []
    assert set(cases["one"]["controls"]) == {"other-client"}
    assert cases["one"]["ledger"]["controls_left_out"] == ["held-out"]
    (bare,) = audited(tmp_path / "bare", own | {"label": "all"}, **data | {"holdout": 0.0})[0].values()
    assert set(bare["controls"]) == {"other-client"}
    plans = [tiny(attack=[own | more], data=data | {"holdout": 0.3}) for more in ({}, {"controls": []})]
    repeats = [
        _repeats(plan, plan.attacks[0], plan.attacks[0].make(tmp_path), federation_of(plan))
        for plan in (make_plan(document, tmp_path) for document in plans)
    ]
    assert repeats == [2, 0]


def federation_of(plan: Plan) -> Federation:
    return prepare(plan, plan.defences[0].title, plan.seeds[0]).federation


def test_more_guesses_than_records_in_question_are_refused(tmp_path: Path) -> None:
    rows = {"factory": f"{OWN}:Rows"}
    cases, failed = audited(
        tmp_path, rows | {"label": "many", "number": 20000}, rows | {"label": "few", "number": 5}, HONEST
    )
    asked = cases["few"]["ledger"]["examples_in_question"]
    assert f"expected at most {asked} guesses, got 20000" in cases["many"]["reason"]
    assert cases["many"]["status"] == "failed" and failed == 1 and cases["few"]["status"] == "ok"
    marked = images(5, own=torch.tensor([True, True, False, False, False]))
    assert checked(marked, "images", IMAGE, 3)
    with pytest.raises(WrongEvidence, match="expected at most 2 guesses, got 3"):
        checked(marked, "images", IMAGE, 2)


def test_floors_and_controls_of_a_kind_are_those_that_our_attacks_of_it_declare() -> None:
    for name in catalog.ATTACKS:
        attack = catalog.resolve("attacks", name)
        assert set(attack.floors) <= set(catalog.floors_of_kind(attack.kind)), name
        assert set(attack.controls) <= {*catalog.controls_of_kind(attack.kind), "global-model"}, name


@pytest.mark.parametrize(
    ("factory", "words"), [("patched", "got attack besides"), ("Forgetful", "a dataclass whose fields")]
)
def test_an_attack_that_is_more_than_its_fields_is_refused(factory: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        audited(tmp_path, {"factory": f"{OWN}:{factory}"})


def test_what_a_factory_returns_is_the_users_whatever_its_class(tmp_path: Path) -> None:
    own = {"factory": "fedxray.attacks.membership:MembershipLoss", "label": "own"}
    cases, _ = audited(tmp_path, own, HONEST)
    assert cases["own"]["ledger"]["own_process"] and "own_process" not in cases["membership-loss"]["ledger"]
    assert cases["own"]["scores"] == cases["membership-loss"]["scores"]
    again, _ = audited(tmp_path / "again", HONEST)
    names = [set(stored_evidence(folder / "out", "membership-loss-")) for folder in (tmp_path, tmp_path / "again")]
    assert names[1] < names[0] and len(names[0]) == 2 * len(names[1])
    assert again["membership-loss"]["scores"] == cases["membership-loss"]["scores"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("status", "evidence.status: expected one of ok, undetermined, diverged, truncated"),
        ("refused", "evidence.status: expected one of ok"),
        ("rounds", "evidence.rounds_spent: expected a whole number from 0"),
        ("reason", "evidence.reason: expected a text, got another int"),
        ("curve", "evidence.curve: expected a tuple of numbers"),
        ("complex", "expected real numbers as 'scores', got torch.complex64"),
        ("kind", "evidence.kind: expected membership, as the attack declares, got sources"),
        ("short", r"expected 'scores' of shape \[\d\d\], got shape \[3\]"),
        ("square", r"expected 'scores' of shape \[\d\d\], got shape \[\d\d, 2\]"),
        ("missing", "expected a tensor 'scores' for membership"),
        ("plain", r"^WrongEvidence in own_attacks\.py, line \d+$"),  # raised in its own process
    ],
)
def test_a_wrong_answer_fails_its_case_alone(answer: str, words: str, tmp_path: Path) -> None:
    for resume in (False, True):
        cases, failed = audited(tmp_path, answering(answer), HONEST, resume=resume)
        assert cases["own"]["status"] == "failed" and failed == 1
        assert re.search(words, cases["own"]["reason"]), cases["own"]["reason"]
        assert cases["membership-loss"]["status"] == "ok"


def test_an_attack_that_returns_nothing_is_reported_as_its_mistake(tmp_path: Path) -> None:
    cases, _ = audited(tmp_path, answering("nothing", straight=False))
    assert re.search(r"^\w+ in [\w./]+, line \d+$", cases["own"]["reason"]), cases["own"]["reason"]
    stored = Store(tmp_path / "out").read_case(cases["own"]["id"])
    assert "attack: expected it to return an Evidence, got NoneType" in stored["traceback"]


def test_owners_that_do_not_exist_are_a_mistake_of_the_attack(tmp_path: Path) -> None:
    cases, _ = audited(tmp_path, {"factory": f"{OWN}:Owners", "answer": "kind", "label": "own"})
    assert "expected whole numbers from 0 to 1 as 'owners'" in cases["own"]["reason"]


@pytest.mark.parametrize("answer", ["infinite", "nan"])
@pytest.mark.parametrize("straight", [False, True])
def test_a_guess_that_is_not_finite_has_diverged_and_fails(answer: str, straight: bool, tmp_path: Path) -> None:
    """Whatever the attack states, and also where its own `run` leaves out the check."""
    cases, failed = audited(tmp_path, answering(answer, straight=straight))
    case = cases["own"]
    assert case["status"] == "diverged" and not case["scores"] and "split" not in case and failed == 1
    assert re.search(r"not finite: (\d+) of \1 entries of 'scores'", case["reason"])


def test_the_facts_of_a_users_attack_stay_private(tmp_path: Path) -> None:
    cases, _ = audited(tmp_path, answering("facts"))
    assert cases["own"]["status"] == "ok" and "secret" not in (tmp_path / "out" / "results.json").read_text()
    assert any(b"secret" in content for content in stored_evidence(tmp_path / "out", "answering-").values())


def test_the_rounds_of_a_users_attack_are_counted_by_the_audit(tmp_path: Path) -> None:
    assert audited(tmp_path, answering("rounds claimed"))[0]["own"]["rounds_spent"] == 0


# Shapes by kind, on a view of two inputs


VIEW = replace(view_with(linear([[1.0, 2.0]]), table(2)), grants=Grants())
IMAGE = replace(
    VIEW, space=replace(VIEW.space, kind="image", shape=(1, 4, 4), target="classification", classes=("a", "b"))
)


def test_a_model_must_have_every_parameter_of_the_network() -> None:
    params = {name: value.detach() for name, value in VIEW.model.named_parameters()}
    model = replace(of_model(params), tensors={**of_model(params).tensors, "notes": torch.full((2,), torch.nan)})
    assert set(checked(model, "model", VIEW).tensors) == {f"param:{name}" for name in params}
    first = next(iter(params))
    with pytest.raises(WrongEvidence, match=f"a tensor 'param:{first}' for model"):
        checked(of_model({name: value for name, value in params.items() if name != first}), "model", VIEW)
    with pytest.raises(WrongEvidence, match=r"got shape \[7\]"):
        checked(of_model(params | {first: torch.zeros(7)}), "model", VIEW)


def images(count: int, **more: torch.Tensor) -> Evidence:
    return replace(of_images(torch.zeros(count, 1, 4, 4)), tensors={"inputs": torch.zeros(count, 1, 4, 4), **more})


@pytest.mark.parametrize(
    ("kind", "guess", "words"),
    [
        ("images", images(0), r"'inputs' of shape \[guesses, 1, 4, 4\], got shape \[0, 1, 4, 4\]"),
        ("images", images(3, labels=torch.zeros(2, dtype=torch.int64)), r"with 3 guesses, got shape \[2\]"),
        ("images", images(3, labels=torch.zeros(3)), "whole numbers from 0 to 1 as 'labels', got torch.float32"),
        ("images", images(3, own=torch.zeros(3)), "true or false as 'own'"),
        ("class-images", of_class_images(torch.zeros(2, 1, 4, 4), torch.tensor([0, 2])), "from 0 to 1 as 'labels'"),
        ("membership", Evidence(kind="membership", tensors={"scores": torch.ones(2)}), "the grant target-records"),
    ],
)
def test_shapes_and_values_of_a_guess(kind: Kind, guess: Evidence, words: str) -> None:
    with pytest.raises(WrongEvidence, match=words):
        checked(guess, kind, IMAGE)
    labels = torch.tensor([0, 1, 1])
    assert checked(images(3, labels=labels), "images", IMAGE).tensors["labels"] is labels


@pytest.mark.parametrize(
    ("kind", "words"),
    [("images", "images"), ("class-images", "images"), ("labels", "classes"), ("attributes", "a sensitive column")],
)
def test_a_guess_about_something_that_the_data_lack_is_a_mistake_of_the_attack(kind: Kind, words: str) -> None:
    with pytest.raises(WrongEvidence, match=f"data with {words} for {kind}"):
        checked(Evidence(kind=kind, tensors={}), kind, VIEW)
    with pytest.raises(WrongEvidence, match="data with columns for rows"):
        checked(Evidence(kind="rows", tensors={}), "rows", IMAGE)


def test_evidence_is_the_same_after_the_way_through_plain_values_and_others_are_refused() -> None:
    evidence = images(2)
    facts = json.loads(json.dumps(plain_facts(replace(evidence, curve=(1.0, float("nan")), seats=(1,)))))
    found = evidence_of(evidence.tensors, facts)
    assert found.seats == (1,) and found.curve[0] == 1.0 and found.kind == "images"
    for broken in ({}, facts | {"more": 1}, facts | {"curve": 3}, facts | {"seats": None}):
        with pytest.raises(WrongEvidence, match="evidence: expected the fields"):
            evidence_of({}, broken)
