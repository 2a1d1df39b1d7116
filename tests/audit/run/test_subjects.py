"""Membership by person: scores by a slow version, people as what was drawn, and no identifier outside private/."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata

from fedxray.adversary.disclose import disclose, membership_records, records_in_question
from fedxray.attacks.evidence import of_images, of_membership
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.audit.judge.statistics import SplitUnit, split_facts, split_tests
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.comparisons import CaseContext
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.evaluate import evaluate, ranking_of
from fedxray.audit.run.power import plant_leak
from fedxray.audit.run.prepare import prepare, primary_metrics
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.metrics.records import by_subject
from fedxray.report import build_report

PEOPLE, VISITS = 24, 6


def write_visits(folder: Path) -> Path:
    """Visits of patients whose outcome is a coin of each visit: only training can tell."""
    draw = np.random.default_rng(0)
    lines = ["patient,age,dose,weight,ill"]
    for _ in range(VISITS):
        for person in range(PEOPLE):
            age, dose, weight = draw.standard_normal(3) + person / 8
            lines.append(f"id-{7919 * (person + 3)},{age:.4f},{dose:.4f},{weight:.4f},{draw.integers(0, 2)}")
    (folder / "visits.csv").write_text("\n".join(lines))
    return folder


def document(**changes: Any) -> dict[str, Any]:
    data = {"path": "visits.csv", "target": "ill", "subject": "patient", "subject_holdout": 0.3, "clients": 2}
    return {
        "name": "visits",
        "seeds": [0],
        "data": data | {"holdout": 0.4, "public": 0.1},
        "model": {"name": "mlp", "hidden": [64]},
        "federation": {"rounds": 6, "epochs": 20, "batch_size": 8, "learning_rate": 0.3},
        "attack": [{"name": "membership-loss"}],
    } | changes


def context(folder: Path, attack: dict[str, Any] | None = None, client: int | None = 1) -> CaseContext:
    plan = make_plan(document(attack=[attack or {"name": "membership-loss"}]), folder)
    transcript, truth = simulate(prepare(plan, "none", 0).federation, seed=0)
    part = plan.attacks[0]
    return CaseContext(
        part=part, attack=part.make(folder), transcript=transcript, truth=truth, client=client, aware=None
    )


def slow(scores: list[float], member: list[bool], subject: list[int]) -> float:
    normal = norm.ppf((rankdata(scores) - 0.5) / len(scores))
    people = sorted(set(subject))
    pooled = {one: np.mean([n for n, whose in zip(normal, subject, strict=True) if whose == one]) for one in people}
    inside = {whose for whose, is_in in zip(subject, member, strict=True) if is_in}
    wins = [
        float(pooled[one] > pooled[other]) + (pooled[one] == pooled[other]) / 2
        for one, other in itertools.product(inside, set(people) - inside)
    ]
    return float(np.mean(wins))


@pytest.mark.parametrize("client", [1, None])
def test_scores_by_person_equal_a_slow_version(tmp_path: Path, client: int | None) -> None:
    role = "server" if client is not None else "secure-aggregation"
    attack = {"name": "membership-loss", "model": {"name": "global-model"}, "role": role}
    made = context(write_visits(tmp_path), attack, client)
    found = evaluate(made)
    for name, rows in (("auc_subject", "train"), ("auc_subject_other", "others")):
        records, member = membership_records(made.truth, client, (), rows)
        view = made.view(made.attack, rows=rows)
        scores = made.infer(made.attack, view, own=True).tensors["scores"].tolist()
        assert records.subject is not None and len(scores) == len(member)
        expected = slow(scores, member.tolist(), records.subject.tolist())
        assert found.score.means[name] == pytest.approx(expected)
        assert found.floors["chance"][name] == 0.5
        people = by_subject(member.double(), member, records.subject)[1]
        inside, outside = int(people.sum()), int((~people).sum())
        assert found.record_variance[name] == pytest.approx((inside + outside + 1) / (12 * inside * outside))
    assert found.record_variance["auc"] == found.record_variance["auc_subject"]  # a person's records may score alike
    assert found.ledger["people_in_question"] == len(records_in_question(made.truth, client).subject.unique())


def test_people_are_what_was_drawn(tmp_path: Path) -> None:
    made = context(write_visits(tmp_path))
    found = evaluate(made)
    trained, held = (made.truth.train[1].subject, made.truth.holdout[1].subject)
    assert trained is not None and held is not None
    assert (found.split["n1"], found.split["n0"]) == (len(trained.unique()), len(held.unique()))
    assert found.split["u"] / (found.split["n1"] * found.split["n0"]) == pytest.approx(found.score.means["auc_subject"])
    assert found.score.means["auc_subject"] > found.score.means["auc"] > 0.6  # several records say more than one
    listed = found.exposed["auc_subject"]
    assert {entry["person"] for entry in listed} <= set(trained.tolist()) and "auc" not in found.exposed


def test_the_other_records_carry_the_verdict_where_a_plan_says_so(tmp_path: Path) -> None:
    made = context(write_visits(tmp_path), {"name": "membership-loss", "primary": "auc_subject_other"})
    found = evaluate(made)
    pairs = found.split["n1"] * found.split["n0"]
    assert found.split["u"] / pairs == pytest.approx(found.score.means["auc_subject_other"])
    plan = make_plan(document(attack=[{"name": "membership-loss"}, {"name": "membership-series"}]), tmp_path)
    assert primary_metrics(plan) == dict.fromkeys(("membership-loss", "membership-series"), "auc_subject")


def test_other_records_have_the_controls_of_the_attack(tmp_path: Path) -> None:
    made = context(write_visits(tmp_path), {"name": "membership-loss", "primary": "auc_subject_other"})
    found = evaluate(made)
    records, member = membership_records(made.truth, 1, (), "others")
    assert records.subject is not None
    alone = replace(made.attack, model=GlobalModel())  # type: ignore[call-arg]
    controls = {"other-client": (made.attack, 0), "global-model": (alone, 1)}
    for name, (attack, messages_of) in controls.items():
        view = made.view(attack, messages_of=messages_of, rows="others")
        scores = made.infer(attack, view, own=True).tensors["scores"].tolist()
        expected = slow(scores, member.tolist(), records.subject.tolist())
        assert found.controls[name]["auc_subject_other"] == pytest.approx(expected)
        assert set(found.controls[name]) == set(found.score.means)


def test_the_power_check_of_other_records_plants_copies_of_them(tmp_path: Path) -> None:
    attack = {"name": "membership-loss", "primary": "auc_subject_other"}
    plan = make_plan(document(attack=[attack]), write_visits(tmp_path))
    planted = plant_leak(prepare(plan, "none", 0).federation, "membership", clients=3, seed=0)
    for trained, held, others in zip(planted.clients, planted.holdout, planted.others, strict=True):
        known = {tuple(row) for row in [*trained.x.tolist(), *held.x.tolist()]}
        assert {tuple(row) for row in others.x.tolist()} == known and others.subject is not None
    transcript, truth = simulate(planted, seed=0)
    part = plan.attacks[0]
    made = CaseContext(part=part, attack=part.make(tmp_path), transcript=transcript, truth=truth, client=0, aware=None)
    found = evaluate(made)  # without others there would be nothing to judge, and no verdict but inconclusive
    assert found.score.means["auc_subject_other"] > 0.9 and found.floors["chance"]["auc_subject_other"] == 0.5


def test_other_records_are_of_people_and_never_trained_on(tmp_path: Path) -> None:
    truth = context(write_visits(tmp_path)).truth
    for client in range(2):
        trained, held = truth.train[client], truth.holdout[client]
        records, member = membership_records(truth, client, (), "others")
        assert records.subject is not None and trained.subject is not None and held.subject is not None
        assert set(records.subject[member].tolist()) == set(trained.subject.tolist())
        assert set(records.subject[~member].tolist()) == set(held.subject.tolist())
        rows = {tuple(row) for row in trained.x.tolist()}
        assert not rows & {tuple(row) for row in records.x.tolist()}


def test_an_adversary_is_not_told_whose_records_are_whose(tmp_path: Path) -> None:
    truth = context(write_visits(tmp_path)).truth
    names = ("target-records", "public-records", "own-data", "oracle-records", "oracle-groups")
    grants = disclose(truth, names, client=1, seats=(0,))
    assert "subject=tensor" not in repr(vars(grants)).replace(" ", "")
    assert grants.target_records is not None and grants.target_records.subject is None
    assert grants.public_records is not None and grants.public_records.subject is None


def test_images_and_rows_rank_people_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=draw.random((60, 5, 5)), y=np.arange(60) % 2, who=np.arange(60) % 15)
    data = {"path": "own.npz", "subject": "who", "clients": 1, "holdout": 0.4, "public": 0.0}
    attack: dict[str, Any] = {"name": "inverting-gradients", "steps": 1, "grants": ["recipe"]}
    for grants, people in ((["recipe"], 15), (["recipe", "labels"], None)):
        plan = make_plan(document(data=data, attack=[attack | {"grants": grants}]), tmp_path)
        transcript, truth = simulate(prepare(plan, "none", 0).federation, seed=0)
        part = plan.attacks[0]
        made = CaseContext(
            part=part, attack=part.make(tmp_path), transcript=transcript, truth=truth, client=0, aware=None
        )
        ranking = ranking_of(made, of_images(truth.train[0].x[:3]))
        assert (None if ranking is None else len(ranking.ranks)) == people


def test_no_identifier_leaves_the_private_part(tmp_path: Path) -> None:
    write_visits(tmp_path)
    plan = make_plan(document(seeds=[0, 1, 2]), tmp_path)
    lines = "\n".join(understood(prepare(plan, "none", 0)))
    assert "24, with 6 to 6 records each" in lines
    out = tmp_path / "out"
    run_audit(plan, out)
    build_report(out)
    texts = [
        path.read_text(errors="ignore") for path in out.rglob("*") if path.is_file() and "private" not in path.parts
    ]
    assert len(texts) > 2 and not any(
        "id-" + str(7919 * (person + 3)) in text for text in texts for person in range(PEOPLE)
    )
    results = json.loads((out / "results.json").read_text())
    [row] = [row for row in results["summary"] if row["primary"]]
    assert (row["metric"], row["test"], row["state"]) == ("auc_subject", "split", "leaks")
    page = (out / "report.html").read_text()
    assert "Most exposed people" in page and "people with records in training" in page
    assert "people whose records were trained on score above" in page and "held-out people" in row["reason"]


def test_the_test_over_people_is_calibrated_and_one_over_records_would_not_be() -> None:
    draw = np.random.default_rng(1)
    by_person, by_record = [], []
    for _ in range(400):  # scores depend on the person and not on training
        subject = np.repeat(np.arange(30), draw.integers(1, 9, 30))
        scores = torch.from_numpy(draw.standard_normal(30)[subject] + 0.5 * draw.standard_normal(len(subject)))
        member = torch.from_numpy(draw.permutation(30) < 20)[torch.from_numpy(subject)]
        pooled, inside, _ = by_subject(scores, member, torch.from_numpy(subject))
        for values, labels, found in ((pooled, inside, by_person), (scores, member, by_record)):
            facts = split_facts(values.tolist(), labels.int().tolist())
            assert facts is not None
            found.append(split_tests([[SplitUnit(seed=0, client=0, split=facts)]], 0)[0])
    called = [sum(p <= 0.05 for p in found if p is not None) / 400 for found in (by_person, by_record)]
    assert 0.025 <= called[0] <= 0.08 and called[1] > 0.15


def test_pooling_at_the_edges() -> None:
    score = torch.tensor([float("inf"), 0.0, -float("inf"), 0.0, float("nan")])
    member = torch.tensor([True, True, False, False, True])
    pooled, inside, people = by_subject(score, member, torch.tensor([5, 5, 2, 2, 9]))
    assert people.tolist() == [2, 5, 9] and inside.tolist() == [False, True, True]
    assert bool(torch.isfinite(pooled).all()) and pooled[2] == pooled.min()
    even = by_subject(torch.zeros(5), member, torch.tensor([5, 5, 2, 2, 9]))[0]
    assert even.tolist() == [0.0, 0.0, 0.0]


def test_no_people_at_all_is_as_before(tmp_path: Path) -> None:
    write_visits(tmp_path)
    data = {name: value for name, value in document()["data"].items() if not name.startswith("subject")}
    plan = make_plan(document(data=data | {"drop": ["patient"]}), tmp_path)
    transcript, truth = simulate(prepare(plan, "none", 0).federation, seed=0)
    part = plan.attacks[0]
    made = CaseContext(part=part, attack=part.make(tmp_path), transcript=transcript, truth=truth, client=0, aware=None)
    count = len(membership_records(truth, 0)[1])
    assert set(made.score(of_membership(torch.arange(count).double())).scores.means) == {"auc"}
    assert "people_in_question" not in evaluate(made).ledger
    with pytest.raises(BadInput, match="subject_holdout"):
        prepare(make_plan(document(data=data | {"drop": ["patient"], "subject_holdout": 0.2}), tmp_path), "none", 0)


def test_a_planted_leak_is_scored_by_person_too(tmp_path: Path) -> None:
    federation = prepare(make_plan(document(), write_visits(tmp_path)), "none", 0).federation
    planted = plant_leak(federation, "membership", clients=3, seed=0)
    assert all(records.subject is not None for records in (*planted.clients, *planted.holdout))
    assert len(planted.others) == len(planted.clients) == 3
