"""Laplace noise: its scale, its shape, its places."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats

from fedxray.defences.base import ExampleGradients, Work
from fedxray.defences.noise import LaplaceNoise, laplace_like
from fedxray.errors import BadInput
from fedxray.seeds import fork

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


def assert_laplace(sample: torch.Tensor, scale: float) -> None:
    """Mean, mean magnitude, and the whole distribution by Kolmogorov and Smirnov."""
    count = sample.numel()
    assert abs(float(sample.mean())) < 5 * scale * math.sqrt(2 / count)
    assert abs(float(sample.abs().mean()) / scale - 1) < 5 / math.sqrt(count)
    assert stats.kstest(sample.flatten().double().numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-4


def test_noise_on_the_update_has_the_scale() -> None:
    hooks = LaplaceNoise(scale=0.3).hooks(WORK)
    assert hooks.outgoing is not None and hooks.known is not None
    noised, _ = hooks.outgoing({"a": torch.full((200, 100), 3.0)}, None, fork(0, "noise"))
    assert_laplace(noised["a"] - 3.0, 0.3)
    assert hooks.known.update_variance == pytest.approx(float((noised["a"] - 3.0).var()), rel=0.1)


def test_noise_on_gradients_is_drawn_for_every_example() -> None:
    hooks = LaplaceNoise(scale=0.5, at="gradients").hooks(WORK)
    assert hooks.gradients is not None and hooks.known is not None
    value = ExampleGradients(each={"w": torch.zeros(4, 100, 40)}, divisor=torch.tensor(4.0))
    noised, _ = hooks.gradients(value, None, fork(0, "noise"))
    assert_laplace(noised.each["w"], 0.5)
    assert hooks.known.step_variance == pytest.approx(float(noised.combined()["w"].var()), rel=0.1)


def test_draws_follow_the_tensor_and_are_finite() -> None:
    drawn = laplace_like(torch.zeros(1000, dtype=torch.float16), fork(0))
    assert drawn.dtype == torch.float16 and bool(drawn.isfinite().all())
    assert torch.equal(drawn, laplace_like(drawn, fork(0)))


@pytest.mark.parametrize("settings", [{"scale": -1.0}, {"scale": 1.0, "at": "inputs"}])
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        LaplaceNoise(**settings)


def test_description() -> None:
    assert LaplaceNoise(scale=0.1).describe() == "Laplace noise of scale 0.1 on the update"
