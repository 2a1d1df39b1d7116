"""The distance of updates under noise: compared with steps of SGD, and zero without noise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedxray.federation.setting import Federation
from fedxray.params import parameters_of
from fedxray.reproduce import awa, measurements
from fedxray.reproduce.awa import SETTINGS_MODELS
from fedxray.reproduce.base import Request, find
from fedxray.seeds import fork


def federation(norm: str = "running") -> Federation:
    """Return two groups of four digits and a narrow network."""
    plan: dict[str, Any] = {
        "data": {"name": "digits", "clients": 2, "limit": 4},
        "model": {"name": "resnet9", "width": 4, "norm": norm, "stem": "cifar"},
        "federation": {"rounds": 1, "epochs": 1, "batch_size": 4, "learning_rate": 0.01},
        "attack": [{"name": "dlg"}],
    }
    return measurements.landscape_federation(plan, 0)


def update_by_sgd(made: Federation, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    network = copy.deepcopy(made.model).train()
    before = torch.cat([value.reshape(-1).clone() for value in parameters_of(network).values()])
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    functional.cross_entropy(network(x), y).backward()
    optimiser.step()
    return torch.cat([value.reshape(-1) for value in parameters_of(network).values()]) - before


@pytest.mark.parametrize("norm", ["running", "batch"])
def test_the_distance_is_that_of_two_steps_of_sgd(norm: str) -> None:
    setting = federation(norm)
    records = setting.clients[1]
    distances = measurements.landscape_distances(setting, 1, 5, awa.NOISES)
    drawn = torch.randn(records.x.shape, generator=fork(5, "landscape", 1))
    true = update_by_sgd(setting, records.x, records.y)
    for size in awa.NOISES:
        near = setting.space.from_pixels((setting.space.to_pixels(records.x) + size * drawn).clamp(0, 1))
        apart = update_by_sgd(setting, near, records.y) - true
        expected = float(apart.square().sum() / true.square().sum())
        assert distances[size] == pytest.approx(expected, rel=1e-3)


def test_the_distance_is_zero_without_noise_and_grows_with_it() -> None:
    distances = list(measurements.landscape_distances(federation(), 0, 0, (0.0, *awa.NOISES)).values())
    assert 0 == distances[0] < distances[1] < distances[2] < distances[3]


def test_the_model_is_unchanged() -> None:
    setting = federation("batch")
    before = {name: value.clone() for name, value in setting.model.state_dict().items()}
    measurements.landscape_distances(setting, 0, 0, (0.1,))
    assert all(torch.equal(value, before[name]) for name, value in setting.model.state_dict().items())


def test_rows_are_networks_of_the_table_of_settings_and_every_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(awa.LANDSCAPE_ROWS) <= set(SETTINGS_MODELS)
    monkeypatch.setattr(awa, "plan_settings", lambda request, row: {"seeds": [0]})
    setting = federation()
    monkeypatch.setattr(measurements, "landscape_federation", lambda plan, seed: setting)
    measured = awa.measure_landscape(Request(scale="paper", clients=2), "running")
    assert [one.column for one in measured] == [column.name for column in find("awa-landscape").columns]
    assert all([unit.client for unit in one.units] == [0, 1] for one in measured)
