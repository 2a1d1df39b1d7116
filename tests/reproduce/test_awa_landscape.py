"""How soon an update stops resembling the true one: against a step of SGD, and by what must hold at no noise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedxray.federation.setting import Federation
from fedxray.params import parameters_of
from fedxray.reproduce import awa, awa_noise
from fedxray.reproduce.awa import SETTINGS_MODELS
from fedxray.reproduce.base import Request, find
from fedxray.seeds import fork


def federation(norm: str = "running") -> Federation:
    """Two groups of four digits and a narrow network."""
    plan: dict[str, Any] = {
        "data": {"name": "digits", "clients": 2, "limit": 4},
        "model": {"name": "resnet9", "width": 4, "norm": norm, "stem": "cifar"},
        "federation": {"rounds": 1, "epochs": 1, "batch_size": 4, "learning_rate": 0.01},
        "attack": [{"name": "dlg"}],
    }
    return awa_noise.prepared(plan, 0)


def update_by_sgd(made: Federation, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    network = copy.deepcopy(made.model).train()
    before = torch.cat([value.reshape(-1).clone() for value in parameters_of(network).values()])
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    functional.cross_entropy(network(x), y).backward()
    optimiser.step()
    return torch.cat([value.reshape(-1) for value in parameters_of(network).values()]) - before


@pytest.mark.parametrize("norm", ["running", "batch"])
def test_the_distance_is_that_of_two_steps_of_sgd(norm: str) -> None:
    made = federation(norm)
    records = made.clients[1]
    found = awa_noise.distances(made, 1, 5, awa.NOISES)
    drawn = torch.randn(records.x.shape, generator=fork(5, "landscape", 1))
    true = update_by_sgd(made, records.x, records.y)
    for size in awa.NOISES:
        near = made.space.from_pixels((made.space.to_pixels(records.x) + size * drawn).clamp(0, 1))
        apart = update_by_sgd(made, near, records.y) - true
        expected = float(apart.square().sum() / true.square().sum())
        assert found[size] == pytest.approx(expected, rel=1e-3)


def test_without_noise_there_is_no_distance_and_more_noise_goes_further() -> None:
    found = list(awa_noise.distances(federation(), 0, 0, (0.0, *awa.NOISES)).values())
    assert 0 == found[0] < found[1] < found[2] < found[3]


def test_the_model_is_left_as_it_was() -> None:
    made = federation("batch")
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    awa_noise.distances(made, 0, 0, (0.1,))
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items())


def test_rows_are_networks_of_the_table_of_settings_and_every_group_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(awa.LANDSCAPE_ROWS) <= set(SETTINGS_MODELS)
    monkeypatch.setattr(awa, "plan_settings", lambda request, row: {"seeds": [0]})
    made = federation()
    monkeypatch.setattr(awa_noise, "prepared", lambda plan, seed: made)
    found = awa.measure_landscape(Request(scale="paper", clients=2), "running")
    assert [one.column for one in found] == [column.name for column in find("awa-landscape").columns]
    assert all([unit.client for unit in one.units] == [0, 1] for one in found)
