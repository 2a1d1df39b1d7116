"""Planted leaks: what is planted, that public records do not show it, and that the rest stays as the plan has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from fedxray.attacks.evidence import Kind
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.grid import Run, planted_run_id
from fedxray.audit.run.power import CHANGES, prepare_for
from fedxray.audit.run.prepare import prepare
from fedxray.data.dataset import Records
from fedxray.defences.base import NoDefence
from fedxray.federation.setting import Federation
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]
DIGITS = {"name": "digits", "clients": 2, "limit": 6, "records": None, "sensitive": None, "partition": "iid"}


def plan_of(**changes: Any) -> Plan:
    return make_plan(tiny(**changes), HERE)


def digits(**changes: Any) -> Plan:
    data = {key: value for key, value in DIGITS.items() if value is not None}
    return make_plan(
        tiny(data=None, model=None, attack=[{"name": "inverting-gradients"}])
        | {"data": data, "model": {"name": "mlp", "hidden": [4]}}
        | changes,
        HERE,
    )


def planted(plan: Plan, kind: str, seed: int = 0) -> Federation:
    run = Run(id=planted_run_id(kind, seed), defence=plan.defences[0].title, seed=seed, plant=kind)
    return prepare_for(plan, run).federation


def test_network_recipe_and_rounds_stay_and_the_defence_goes() -> None:
    plan = plan_of(defence=[{"name": "gaussian-noise", "scale": 0.5}], federation={"participation": 0.5})
    own = prepare(plan, "gaussian-noise", 0).federation
    found = planted(plan, "attributes")
    assert found.recipe == own.recipe and found.rounds == own.rounds and found.record == own.record
    assert all(torch.equal(a, b) for a, b in zip(found.model.parameters(), own.model.parameters(), strict=True))
    assert found.defence == NoDefence() and found.participation == 1.0
    assert len(found.clients) == 6 and len(own.clients) == 2


def test_a_planted_attribute_follows_from_the_target_of_clients_and_from_nothing_in_public() -> None:
    plan = plan_of(data={"records": 200})
    found = planted(plan, "attributes")
    column = found.space.column("smoker")
    for records in (*found.clients, *found.holdout):
        level = records.x[:, column.positions[0]]
        for value in level.unique():
            assert len(records.y[level == value].unique()) == 1
        counts = torch.unique(level, return_counts=True)[1]
        assert int(counts.max() - counts.min()) <= 1
    assert found.public is not None
    secret = found.public.x[:, column.positions[0]]
    assert abs(float(torch.corrcoef(torch.stack([secret, found.public.y]))[0, 1])) < 0.1
    own = prepare(plan, "none", 0).federation.public
    assert own is not None and torch.equal(found.public.y, own.y)
    assert not torch.equal(found.clients[0].x, found.clients[2].x)  # one client's records, planted anew


def test_planted_members_are_few_and_repeated_and_others_are_drawn_in_the_same_way() -> None:
    plan = plan_of()
    found, own = planted(plan, "membership"), prepare(plan, "none", 0).federation
    for records in found.clients:
        assert len(torch.unique(torch.cat([records.x, records.y[:, None]], 1), dim=0)) <= 4
    assert [len(one) for one in found.clients[:2]] == [len(one) for one in own.clients]
    inside, outside = (torch.cat([one.y for one in part]).unique() for part in (found.clients, found.holdout))
    assert torch.equal(inside, outside) and len(inside) == 2  # as far above the mean as below it


def test_planted_sources_have_a_target_of_their_own() -> None:
    found = planted(plan_of(), "sources")
    reported = [one.y.unique() for one in found.clients]
    assert all(len(one) == 1 for one in reported) and len({float(one) for one in reported}) == len(reported)


def test_planted_labels_are_rare_in_public() -> None:
    found = planted(digits(), "labels")
    assert found.public is not None
    counts = torch.bincount(found.public.y, minlength=10)
    for records in found.clients:
        own = torch.bincount(records.y, minlength=10)
        assert counts[own.argmax()] == counts.min() and len(records) == 6 and int(own.max()) == 5


@pytest.mark.parametrize("kind", ["images", "rows"])
def test_one_record_unlike_the_public_ones(kind: str) -> None:
    found = planted(digits() if kind == "images" else plan_of(), kind)
    assert [len(one) for one in found.clients] == [1] * 6 and found.public is not None
    x = torch.cat([one.x for one in found.clients])
    assert len(torch.unique(x.flatten(1), dim=0)) == 6
    low, high = found.space.bounds(x)
    assert bool(((x >= low - 1e-5) & (x <= high + 1e-5)).all())
    if kind == "images":
        pixels = found.space.to_pixels(x)
        nearest = torch.cdist(pixels.flatten(1), found.space.to_pixels(found.public.x).flatten(1)).amin(1)
        assert float(nearest.square().min() / pixels[0].numel()) > 0.03  # no better than 15 dB


def test_batch_norm_gets_company() -> None:
    plan = digits(model={"name": "resnet9", "norm": "batch", "width": 4}, federation={"rounds": 1, "batch_size": 3})
    found = planted(plan, "images")
    assert [len(one) for one in found.clients] == [3] * 6


def test_images_of_a_class_are_one_picture() -> None:
    found = planted(digits(), "class-images")
    for label in range(10):
        same = torch.cat([one.x[one.y == label] for one in found.clients])
        assert len(torch.unique(same.flatten(1), dim=0)) <= 1


def test_every_client_has_a_rule_of_its_own() -> None:
    found = planted(plan_of(), "model")
    again = planted(plan_of(), "model")
    assert all(torch.equal(a.y, b.y) for a, b in zip(found.clients, again.clients, strict=True))
    assert torch.equal(found.clients[0].x, found.clients[2].x)
    share = (found.clients[0].y == found.clients[2].y).double().mean()
    assert float(share) < 0.95


def test_a_regression_is_planted_in_the_spread_of_its_target() -> None:
    plan = make_plan(
        tiny(data=None) | {"data": {"name": "diabetes", "clients": 2, "sensitive": "sex", "limit": 30}}, HERE
    )
    own = torch.cat([one.y for one in prepare(plan, "none", 0).federation.clients])
    for kind in ("attributes", "membership", "sources", "model", "rows"):
        made = torch.cat([one.y for one in planted(plan, kind).clients])
        assert made.dtype == own.dtype and bool(torch.isfinite(made).all())
        assert float(made.std()) < 4 * float(own.std())


def test_sums_are_over_no_more_clients_than_the_plan_has() -> None:
    plan = plan_of(attack=[{"name": "membership-loss", "role": "secure-aggregation"}])
    assert len(planted(plan, "membership").clients) == 2


def test_a_curious_client_keeps_its_seat() -> None:
    plan = plan_of(data={"clients": 3}, attack=[{"name": "membership-loss", "role": "curious-client", "seat": 2}])
    assert len(planted(plan, "membership").clients) == 7


def test_every_kind_of_attack_has_a_plant() -> None:
    assert set(CHANGES) == set(get_args(Kind))


def test_a_planted_number_follows_from_the_target_of_clients_alone() -> None:
    found = planted(plan_of(data={"records": 200, "sensitive": "age"}), "attributes")
    place = found.space.column("age").positions[0]

    def related(records: Records | None) -> float:
        assert records is not None
        return abs(float(torch.corrcoef(torch.stack([records.x[:, place], records.y]))[0, 1]))

    assert related(found.clients[0]) > 0.99 and related(found.public) < 0.2
