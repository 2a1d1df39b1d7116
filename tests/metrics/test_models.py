"""Distance of models against slow loops."""

from __future__ import annotations

import math

import pytest
import torch

from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.metrics.models import distance_scores, fit_scores, parameter_distance
from fedxray.seeds import fork


def test_parameter_distance_equals_slow_loops() -> None:
    generator = fork(0)
    truth = {"a": torch.randn(3, 2, generator=generator), "b": torch.randn(4, generator=generator)}
    guess = {name: value + torch.randn(value.shape, generator=generator) for name, value in truth.items()}
    error = sum(
        (a - b) ** 2
        for n in truth
        for a, b in zip(guess[n].flatten().tolist(), truth[n].flatten().tolist(), strict=True)
    )
    size = sum(b**2 for n in truth for b in truth[n].flatten().tolist())
    assert parameter_distance(guess, truth) == pytest.approx(math.sqrt(error / size))
    assert parameter_distance(dict(reversed(guess.items())), truth) == pytest.approx(math.sqrt(error / size))
    assert distance_scores(truth, truth) == {"parameter_distance": 0.0}
    doubled = {name: 2 * value for name, value in truth.items()}
    assert parameter_distance(doubled, truth) == pytest.approx(1.0)
    assert parameter_distance(
        {name: 7 * value for name, value in guess.items()}, {name: 7 * value for name, value in truth.items()}
    ) == pytest.approx(math.sqrt(error / size), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_parameter_distance_at_the_edges(bad: float) -> None:
    truth = {"a": torch.tensor([1.0, 2.0])}
    assert parameter_distance({"a": torch.tensor([bad, 2.0])}, truth) == 1e10
    zero = {"a": torch.zeros(2)}
    assert parameter_distance(zero, zero) == 0.0 and parameter_distance(truth, zero) == 1e10
    assert distance_scores({}, {}) == {}
    for other in ({"b": truth["a"]}, {"a": torch.zeros(3)}, {}):
        with pytest.raises(BadInput, match="architecture"):
            parameter_distance(other, truth)


def test_fit_of_classes_by_hand() -> None:
    space = Space(kind="table", shape=(1,), target="classification", classes=("a", "b"))
    output, y = (
        torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [math.nan, 0.0]]),
        torch.tensor([0, 0, 0, 0]),
    )
    found = fit_scores(output[:3], y[:3], "cross-entropy", space, y)
    soft = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))]
    assert found == pytest.approx({"training_loss": sum(soft) / 3, "training_accuracy": 2 / 3}, rel=1e-6)
    broken = fit_scores(output, y, "cross-entropy", space, y)
    assert broken == {"training_loss": 1e10, "training_accuracy": 0.5}
    assert fit_scores(output[:0], y[:0], "cross-entropy", space, y) == {}


def test_fit_of_a_value_by_hand() -> None:
    """The loss is a share of the variance of everyone's targets; percentages are of raw and positive targets."""
    y, everyone = torch.tensor([1.0, -1.0]), torch.tensor([2.0, -2.0, 2.0, -2.0])
    output = torch.tensor([[2.0], [-1.0]])
    space = Space(kind="table", shape=(1,), target="regression", target_mean=100.0, target_std=10.0)
    found = fit_scores(output, y, "mse", space, everyone)
    assert found == pytest.approx({"training_loss": 0.5 / 4, "training_mape": (10 / 110) / 2})
    below = Space(kind="table", shape=(1,), target="regression", target_mean=10.0, target_std=10.0)
    assert fit_scores(output, y, "mse", below, y[:1]) == pytest.approx({"training_loss": 0.5})
