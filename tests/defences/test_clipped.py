"""Clip and noise: no example counts more than the clip, and the noise is as large as asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedxray.defences.base import ExampleGradients, Work, example_norms
from fedxray.defences.clipped import ClippedNoise, clip_examples
from fedxray.errors import BadInput
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import parameters_of
from fedxray.seeds import fork
from tests.defences.test_noise import assert_normal
from tests.federation.runs import network, records

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


@given(
    rows=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=5, max_size=5), min_size=1, max_size=4),
    clip=st.floats(1e-3, 1e4),
)
def test_no_example_is_longer_than_the_clip_and_directions_stay(rows: list[list[float]], clip: float) -> None:
    table = torch.tensor(rows, dtype=torch.float64)
    gradients = {"w": table[:, :4].reshape(-1, 2, 2), "b": table[:, 4:]}
    clipped = clip_examples(gradients, clip)
    before, after = example_norms(gradients), example_norms(clipped)
    assert bool((after <= clip * (1 + 1e-9)).all())
    for row, (old, new) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        if old <= clip:
            assert all(torch.equal(value[row], gradients[name][row]) for name, value in clipped.items())
        else:
            assert new == pytest.approx(clip, rel=1e-9)
            for name, value in clipped.items():
                torch.testing.assert_close(
                    value[row] * old / clip, gradients[name][row], rtol=1e-9, atol=1e-9
                )


def test_a_gradient_of_zero_stays_zero() -> None:
    assert torch.equal(clip_examples({"w": torch.zeros(2, 3)}, 1.0)["w"], torch.zeros(2, 3))


def step(defence: ClippedNoise, seed: int = 0) -> dict[str, torch.Tensor]:
    """The update of one step at a learning rate of one, which is minus the gradient that was used."""
    model, data = network("mlp", torch.float64), records(6, dtype=torch.float64)
    recipe = Recipe(learning_rate=1.0)
    batch, evaluate = Batch(x=data.x, y=data.y), objective(model, recipe.loss)
    return local_update(
        parameters_of(model), {}, [batch], recipe, evaluate, seams=defence.seams(WORK), generator=fork(seed, "draw")
    ).update  # fmt: skip


def test_a_step_equals_a_loop_over_the_examples() -> None:
    model, data, clip = network("mlp", torch.float64), records(6, dtype=torch.float64), 0.4
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    cut = 0
    for x, y in zip(data.x, data.y, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        length = torch.cat(
            [value.grad.flatten() for value in model.parameters() if value.grad is not None]
        ).norm()
        cut += int(length > clip)
        for name, value in model.named_parameters():
            assert value.grad is not None
            total[name] += value.grad * min(1.0, clip / float(length))
    assert cut > 0
    found = step(ClippedNoise(clip=clip))
    for name, value in total.items():
        torch.testing.assert_close(found[name], -value / 6, rtol=1e-10, atol=1e-12)


def test_a_large_clip_without_noise_is_plain_training() -> None:
    model, data = network("mlp", torch.float64), records(6, dtype=torch.float64)
    recipe, batch = Recipe(learning_rate=1.0), Batch(x=data.x, y=data.y)
    plain = local_update(parameters_of(model), {}, [batch], recipe, objective(model, recipe.loss)).update
    for name, value in step(ClippedNoise(clip=1e9)).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-10, atol=1e-12)


def test_the_noise_is_drawn_once_per_step_for_the_sum() -> None:
    seam = ClippedNoise(clip=2.0, noise_multiplier=1.5).seams(WORK).gradients
    assert seam is not None
    value = ExampleGradients(each={"w": torch.zeros(10, 200, 100)}, divisor=torch.tensor(10.0))
    noised, _ = seam(value, None, fork(0, "noise"))
    assert noised.extra is not None
    assert_normal(noised.extra["w"], 3.0)
    assert_normal(noised.combined()["w"], 0.3)
    twice, _ = seam(noised, None, fork(1, "noise"))
    assert twice.extra is not None
    assert_normal(twice.extra["w"], 3.0 * 2**0.5)


def test_noise_follows_the_generator() -> None:
    noisy = ClippedNoise(clip=1.0, noise_multiplier=1.0)
    first, again, other = step(noisy, 0), step(noisy, 0), step(noisy, 1)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["0.weight"], other["0.weight"])


@pytest.mark.parametrize(
    "settings",
    [{"clip": 0.0}, {"clip": -1.0}, {"clip": float("nan")}, {"clip": 1.0, "noise_multiplier": -1.0}],
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        ClippedNoise(**settings)


def test_description() -> None:
    text = ClippedNoise(clip=2.0, noise_multiplier=1.5).describe()
    assert text == "example gradients clipped to norm 2, noise of 1.5 times that on their sum"
