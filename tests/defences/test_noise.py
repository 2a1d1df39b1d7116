"""Gaussian noise: its scale, its place, and that it depends on the generator alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fedxray.defences.base import ExampleGradients, Work
from fedxray.defences.noise import GaussianNoise
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.params import flatten, subtract
from fedxray.seeds import fork
from tests.federation.runs import federation

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


def assert_normal(sample: torch.Tensor, scale: float) -> None:
    """Mean, deviation, and shares within one and two deviations, each within 5 standard errors."""
    count = sample.numel()
    assert abs(float(sample.mean())) < 5 * scale / math.sqrt(count)
    assert abs(float(sample.std()) / scale - 1) < 5 / math.sqrt(2 * count)
    for width in (1, 2):
        share = math.erf(width / math.sqrt(2))
        found = float((sample.abs() < width * scale).double().mean())
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize("scale", [0.03, 2.0])
def test_noise_on_the_update_has_the_scale(scale: float) -> None:
    hook = GaussianNoise(scale=scale).hooks(WORK).outgoing
    assert hook is not None
    update = {"a": torch.full((200, 100), 3.0), "b": torch.full((20_000,), -1.0)}
    noised, state = hook(update, None, fork(0, "noise"))
    assert state is None
    for name, value in update.items():
        assert_normal(noised[name] - value, scale)
    together = torch.stack([(noised[name] - value).flatten() for name, value in update.items()])
    assert abs(float(torch.corrcoef(together)[0, 1])) < 5 / math.sqrt(20_000)


def test_noise_on_gradients_is_drawn_for_every_example() -> None:
    hook = GaussianNoise(scale=0.5, at="gradients").hooks(WORK).gradients
    assert hook is not None
    value = ExampleGradients(each={"w": torch.zeros(50, 40, 10)}, divisor=torch.tensor(50.0))
    noised, _ = hook(value, None, fork(0, "noise"))
    assert_normal(noised.each["w"], 0.5)
    assert_normal(noised.combined()["w"], 0.5 / math.sqrt(50))
    assert value.each["w"].abs().max() == 0


def test_the_update_of_a_run_is_the_plain_one_plus_noise() -> None:
    """One round from the same start: what differs is noise of the scale asked for, other for every client."""
    wide = torch.nn.Sequential(torch.nn.Linear(5, 400), torch.nn.Linear(400, 3))
    plain = simulate(federation((8, 4), model=wide, rounds=1))[0]
    noisy = simulate(federation((8, 4), model=wide, rounds=1, defence=GaussianNoise(scale=0.2)))[0]
    draws = [
        flatten(subtract(noisy.shelf.get(key).params, plain.shelf.get(key).params))
        for key in ("reply/0/0", "reply/0/1")
    ]
    for draw in draws:
        assert_normal(draw, 0.2)
    assert abs(float(torch.corrcoef(torch.stack(draws))[0, 1])) < 0.1


def test_noise_follows_the_generator_and_the_round() -> None:
    run = federation((8, 4), defence=GaussianNoise(scale=0.2))
    first, again, other = (simulate(run, seed=seed)[0].shelf.get("reply/1/0").params for seed in (0, 0, 1))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_noise_cannot_be_subtracted_by_an_attack_that_finds_the_seed() -> None:
    """Drawn from the seed alone it could be drawn again; the records of all clients enter, which no adversary holds."""
    defence = GaussianNoise(scale=0.2)
    wide = torch.nn.Sequential(torch.nn.Linear(5, 400), torch.nn.Linear(400, 3))
    hook = defence.hooks(WORK).outgoing
    assert hook is not None
    plain, noisy = (
        simulate(federation((8, 4), model=wide, rounds=1, **more), seed=3)[0].shelf.get("reply/0/0").params
        for more in ({}, {"defence": defence})
    )
    drawn_again, _ = hook(dict(plain), None, fork(3, "client", 0, 0))
    assert (
        abs(float(torch.corrcoef(torch.stack([flatten(subtract(one, plain)) for one in (noisy, drawn_again)]))[0, 1]))
        < 0.1
    )


def test_noise_of_zero_changes_nothing() -> None:
    for at in ("update", "gradients"):
        plain, still = (
            simulate(federation((8, 4), dtype=torch.float64, **more))[0].shelf.get("global/2").params
            for more in ({}, {"defence": GaussianNoise(scale=0, at=at)})  # type: ignore[arg-type]
        )
        for name, value in plain.items():
            torch.testing.assert_close(still[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [-0.1, float("nan"), float("inf"), 1e300, 10**400, "much", True])
def test_scale_out_of_range(scale: Any) -> None:
    with pytest.raises(BadInput, match="scale: expected a number from 0 to 1e\\+12"):
        GaussianNoise(scale=scale)


def test_unknown_place() -> None:
    with pytest.raises(BadInput, match="at: expected one of"):
        GaussianNoise(scale=1.0, at="inputs")  # type: ignore[arg-type]


def test_description() -> None:
    assert GaussianNoise(scale=0.1).describe() == "Gaussian noise of standard deviation 0.1 on the update"
    assert "every example" in GaussianNoise(scale=0.1, at="gradients").describe()
