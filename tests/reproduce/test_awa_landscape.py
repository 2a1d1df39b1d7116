"""The distance of updates under noise: compared with steps of SGD, and zero without noise."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedxray.attacks.inversion.awa import Awa
from fedxray.errors import BadInput
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


# Pairs of images


def many_digits() -> Federation:
    plan: dict[str, Any] = {
        "data": {"name": "digits", "clients": 2, "limit": 30},
        "model": {"name": "resnet9", "width": 4, "norm": "running", "stem": "cifar"},
        "federation": {"rounds": 1, "epochs": 1, "batch_size": 4, "learning_rate": 0.01},
        "attack": [{"name": "dlg"}],
    }
    return measurements.landscape_federation(plan, 0)


def test_a_pair_is_the_first_of_one_class_or_of_two() -> None:
    labels = torch.tensor([4, 4, 7, 1, 7])
    assert measurements.pair_of(labels, alike=True) == (0, 1)
    assert measurements.pair_of(labels, alike=False) == (0, 2)
    assert measurements.pair_of(labels[1:], alike=True) == (1, 3)
    with pytest.raises(BadInput, match="two images of one class"):
        measurements.pair_of(torch.tensor([1, 2]), alike=True)


@pytest.mark.parametrize("alike", [True, False])
def test_distances_of_a_pair_are_those_of_steps_of_sgd(alike: bool) -> None:
    setting = many_digits()
    chosen = list(measurements.pair_of(setting.clients[1].y, alike=alike))
    x, y = setting.clients[1].x[chosen], setting.clients[1].y[chosen]
    assert (len(set(y.tolist())) == 1) == alike
    step = 0.05 * torch.randn(x.shape[1:], generator=fork(3, "pairs", 1))
    mean = torch.stack([(x[0] + x[1]) / 2] * 2)
    ways = {
        "together": (x, x + step),
        "apart": (x, torch.stack([x[0] + step, x[1] - step])),
        "mean": (x, mean),
        "mean-together": (mean, mean + step),
        "mean-apart": (mean, torch.stack([mean[0] + step, mean[0] - step])),
    }
    distances = measurements.pair_distances(setting, 1, 3, 0.05, alike=alike)
    assert list(distances) == list(ways) == list(awa.PAIR_COLUMNS)
    for name, (before, after) in ways.items():
        true, near = (update_by_sgd(setting, images, y) for images in (before, after))
        expected = float((near - true).square().sum() / true.square().sum())
        assert distances[name] == pytest.approx(expected, rel=5e-3, abs=1e-9)


def test_splitting_a_mean_is_of_second_order_for_one_class_alone() -> None:
    setting = many_digits()
    orders = {}
    for alike in (True, False):
        long, short = (
            measurements.pair_distances(setting, 0, 0, noise, alike=alike)["mean-apart"] for noise in (0.02, 0.01)
        )
        orders[alike] = long / short
    assert orders[True] > 8 and orders[False] < 6  # 2^4 and 2^2 but for kinks of ReLU


def test_pairs_are_measured_for_every_client() -> None:
    assert awa.pairs_plan(Request(clients=16), awa.network())["data"]["clients"] == 16
    reproduction = find("awa-pairs")
    assert reproduction.measure is awa.measure_pairs and set(awa.PAIR_ROWS) == set(reproduction.rows)


def test_correlations_of_sum_and_difference_by_hand() -> None:
    draw = torch.Generator().manual_seed(0)
    true, noise = (torch.rand(2, 1, 4, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    mean = true.mean(0, keepdim=True)
    same = measurements.pair_correlations(true, 0.5 * true + 0.2)
    assert same == pytest.approx({"sum": 1.0, "difference": 1.0})
    split = torch.cat([mean + noise[:1], mean - noise[:1]])  # the sum is right, the difference is not
    parts = measurements.pair_correlations(true, split)
    expected = np.corrcoef((true[0] - true[1]).flatten(), (split[0] - split[1]).flatten())[0, 1]
    assert parts == pytest.approx({"sum": 1.0, "difference": expected}) and abs(expected) < 0.9


@pytest.mark.parametrize("alike", [True, False])
def test_an_attacked_pair_is_put_in_the_better_order(alike: bool) -> None:
    setting, attack = many_digits(), Awa(preset="ramp", steps=2)
    true, guess = measurements.pair_attacked(setting, 1, 0, attack, alike=alike)
    chosen = list(measurements.pair_of(setting.clients[1].y, alike=alike))
    assert torch.equal(true, setting.space.to_pixels(setting.clients[1].x[chosen]))
    assert float((guess - true).square().sum()) <= float((guess.flip(0) - true).square().sum())
