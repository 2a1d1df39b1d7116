"""Distance of models against slow loops."""

from __future__ import annotations

import math

import pytest
import torch

from fedxray.errors import BadInput
from fedxray.metrics.models import model_scores, parameter_distance
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
    assert model_scores(truth, truth).means == {"parameter_distance": 0.0}
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
    assert model_scores({}, {}).means == {}
    for other in ({"b": truth["a"]}, {"a": torch.zeros(3)}, {}):
        with pytest.raises(BadInput, match="architecture"):
            parameter_distance(other, truth)
