"""Settings of an attack that make it another one keep the promises of the contract too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedxray.attacks.attributes.from_gradients import AttributeFromGradients
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Attack
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.local_model.active import LocalModelActive
from fedxray.audit.judge.statistics import interval, paired
from fedxray.audit.run.comparisons import declared_grants
from fedxray.metrics.scoring import score
from fedxray.metrics.table import MAIN_METRIC, METRICS
from tests.contract import worlds
from tests.contract.test_contract import RECORDS_ASKED, blind_view, floor_value, run, same, tensors_of

VARIANTS: dict[str, tuple[Attack, str]] = {
    "iterative gradients": (
        AttributeFromGradients(method="iterative", steps=6, learning_rates=(1e2, 1e4)),
        "eavesdropper",
    ),
    "l-bfgs gradients": (AttributeFromGradients(method="l-bfgs", steps=6, learning_rates=(0.1,)), "eavesdropper"),
    "shares of rounds": (AttributeFromGradients(shares=(0.0, 0.5, 1.0), pick="own-objective"), "eavesdropper"),
    "active search": (LocalModelActive(active_rounds=4, tune="search", trials=3, trial_rounds=2), "active-server"),
    "model with a prior": (AttributeFromModel(prior="floor"), "eavesdropper"),
    "gradients with a prior": (AttributeFromGradients(prior="floor"), "eavesdropper"),
    "labels with a prior": (LabelsDlf(prior="floor"), "server"),
    "signs with a prior": (LabelsIdlg(prior="floor"), "server"),
    "active gradients": (AttributeFromGradients(active_rounds=3, with_recorded=True), "active-server"),
}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> tuple[Attack, str]:
    """An attack with other settings, and its seat."""
    return VARIANTS[request.param]


def test_same_seed_same_answer_wherever_new_tensors_go(variant: tuple[Attack, str]) -> None:
    attack, role = variant
    view = worlds.view_of(attack, worlds.world_of(attack), role=role)
    before = [value.clone() for value in tensors_of(view)]
    first = run(attack, view)
    with torch.device("meta"):
        assert same(first, run(attack, view))
    assert all(torch.equal(old, new) for old, new in zip(before, tensors_of(view), strict=True))


def test_what_the_seat_cannot_see_does_not_matter(variant: tuple[Attack, str]) -> None:
    attack, role = variant
    if role in ("active-server", "server"):  # it reads every message
        return
    world = worlds.world_of(attack)
    view = worlds.view_of(attack, world, role=role)
    assert same(run(attack, view), run(attack, blind_view(attack, world, role)))


def test_keeps_the_type_of_its_inputs(variant: tuple[Attack, str]) -> None:
    attack, role = variant
    view = worlds.view_of(attack, worlds.float32_world_of(attack), role=role)
    torch.set_default_dtype(torch.float64)
    try:
        evidence = run(attack, view)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not [name for name, value in evidence.tensors.items() if value.dtype == torch.float64]


def test_permuting_the_records_permutes_the_answer(variant: tuple[Attack, str]) -> None:
    attack, role = variant
    view = worlds.view_of(attack, worlds.world_of(attack), role=role)
    if attack.kind not in RECORDS_ASKED:
        return
    field = RECORDS_ASKED[attack.kind]
    granted = getattr(view.grants, field)
    turned = replace(granted, x=granted.x.flip(0), y=granted.y.flip(0))
    other = run(attack, replace(view, grants=replace(view.grants, **{field: turned})))
    for key, value in run(attack, view).tensors.items():
        assert torch.allclose(value.flip(0), other.tensors[key], atol=1e-6), key


def test_noise_gives_nothing(variant: tuple[Attack, str]) -> None:
    attack, role = variant
    assert not any(name.startswith("oracle-") for name in declared_grants(attack))
    metric, differences = MAIN_METRIC[attack.kind], []
    for seed in (0, 1):
        world = worlds.world_of(attack, seed)
        seen = worlds.noised(world, reader=None, seed=seed)
        for client in range(worlds.CLIENTS):
            found = run(attack, worlds.view_of(attack, seen, client=client, role=role))
            floors = [floor_value(name, attack.kind, world, client, metric, role) for name in attack.floors]
            means = score(found, world.truth, client=client).means
            down = METRICS[metric].down
            differences += paired([means[metric]], [min(floors) if down else max(floors)], down=down)
    assert interval(differences, range(len(differences))).mean <= METRICS[metric].margin, differences
