"""Where a case leaks: records and classes against the truth worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.adversary.disclose import attribute_rows, membership_records
from fedxray.attacks.evidence import of_attributes, of_images, of_membership
from fedxray.audit.plan import make_plan
from fedxray.audit.run.comparisons import CaseContext, Scored
from fedxray.audit.run.evaluate import MOST_NAMED, by_class, exposed_records
from fedxray.audit.run.prepare import prepare
from fedxray.federation.round_loop import simulate
from fedxray.metrics.records import Scores, from_records
from fedxray.metrics.scoring import score
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def context() -> CaseContext:
    """A client of a small data set with classes."""
    plan = make_plan(
        tiny(data=None, attack=[{"name": "membership-loss"}]) | {"data": {"name": "digits", "clients": 2, "limit": 20}},
        HERE,
    )
    federation = replace(prepare(plan, "none", 0).federation, rounds=1)
    transcript, truth = simulate(federation, seed=0)
    part = plan.attacks[0]
    return CaseContext(part=part, attack=part.make(HERE), transcript=transcript, truth=truth, client=1, aware=None)


def images(context: CaseContext, **records: Any) -> Scored:
    guess = of_images(context.truth.train[1].x)
    return Scored(evidence=guess, scores=from_records({k: torch.tensor(v) for k, v in records.items()}))


def test_records_are_ranked_by_what_exposes_them(context: CaseContext) -> None:
    nan = float("nan")
    psnr, mse = [nan, *range(1, 20)], [nan, *(1 / place for place in range(1, 20))]
    hits = [1.0] * 20
    found = exposed_records(context, images(context, psnr=psnr, mse=mse, rec=hits))
    assert [one["record"] for one in found["psnr"]] == list(range(19, 19 - MOST_NAMED, -1))
    assert [one["record"] for one in found["mse"]] == list(range(19, 19 - MOST_NAMED, -1))
    assert found["psnr"][0] == {"record": 19, "value": 19.0}
    assert "rec" not in found  # hits and misses single nobody out


def test_no_record_is_named_without_a_score(context: CaseContext) -> None:
    assert exposed_records(context, images(context, psnr=[float("nan")] * 20)) == {}
    assert exposed_records(context, images(context, psnr=[1.0, 2.0])) == {}  # not about all of the records
    held = replace(images(context, psnr=[2.5] * 20), rows="holdout")
    assert exposed_records(context, held) == {} and by_class(context, held, {}) == {}


def test_classes_have_the_mean_of_their_records_beside_the_floors(context: CaseContext) -> None:
    labels = context.truth.train[1].y
    values = [float(place) for place in range(20)]
    floor = images(context, psnr=[2.0 * value for value in values])
    found = by_class(context, images(context, psnr=values), {"mean-image": floor, "x": images(context)})["psnr"]
    for label in labels.unique().tolist():
        own = [values[place] for place in range(20) if int(labels[place]) == label]
        mean = pytest.approx(sum(own) / len(own))
        assert found[label] == {"mean": mean, "n": len(own), "floors": {"mean-image": 2 * mean.expected}}


def test_members_are_named_by_their_place_before_the_mixing(context: CaseContext) -> None:
    asked, inside = membership_records(context.truth, 1)
    own = context.truth.train[1]
    wanted = 7
    scores = torch.zeros(len(inside))
    is_it = (asked.x.flatten(1) == own.x[wanted].flatten()).all(1) & inside
    scores[is_it] = 5.0
    guess = of_membership(scores)
    found = exposed_records(context, Scored(evidence=guess, scores=score(guess, context.truth, client=1)))["auc"]
    assert found[0] == {"record": wanted, "value": 1.0, "sure": 5.0} and found[1]["value"] == 0.5


def test_attributes_are_named_by_place_and_by_how_sure_the_attacker_is() -> None:
    plan = make_plan(tiny(), HERE)
    federation = prepare(plan, "none", 0).federation
    transcript, truth = simulate(federation, seed=0)
    part = plan.attacks[0]
    made = CaseContext(part=part, attack=part.make(HERE), transcript=transcript, truth=truth, client=0, aware=None)
    column = truth.space.column("smoker")
    rows, own = attribute_rows(truth, 0), truth.train[0]
    sure = torch.rand(len(rows), generator=torch.Generator().manual_seed(1))
    right = of_attributes(rows.x[:, list(column.positions)], sure)
    guess = Scored(evidence=right, scores=score(right, truth, client=0))
    found = exposed_records(made, guess)["accuracy"]
    best = int(sure.argmax())
    assert torch.equal(own.x[int(found[0]["record"])], rows.x[best]) and found[0]["value"] == 1.0
    assert [one["sure"] for one in found] == sorted((one["sure"] for one in found), reverse=True)
    assert by_class(made, guess, {}) == {}  # a regression has none
    blunt = replace(guess, evidence=of_attributes(rows.x[:, list(column.positions)]))
    assert exposed_records(made, blunt) == {}
    assert exposed_records(made, replace(guess, scores=Scores(means={}, records={}))) == {}
