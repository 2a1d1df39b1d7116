from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fedxray.priors import EPOCH_PRIORS, EpochPrior, random_kernel

NAMES = sorted(EPOCH_PRIORS)


def drawn(seed: int, epochs: int = 3, images: int = 4, channels: int = 2, side: int = 5) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(epochs, images, channels, side, side, generator=source, dtype=torch.float64)


def kernel(x: Tensor) -> Tensor:
    return random_kernel(x, torch.Generator().manual_seed(0))


def slow(name: str, x: Tensor, weight: Tensor) -> float:
    """Epoch by epoch, image by image, pair by pair."""
    distance, summary, *conv = name.split("-")
    summaries = []
    for epoch in x:
        features = [
            functional.conv2d(image[None], weight, padding=1)[0] if conv else image for image in epoch
        ]
        total = features[0]
        for one in features[1:]:
            total = torch.maximum(total, one) if summary == "max" else total + one
        summaries.append(total if summary == "max" else total / len(epoch))
    values = []
    for left in summaries:
        for right in summaries:
            apart = left - right
            values.append(float((apart**2 if distance == "l2" else apart.abs()).mean()))
    return sum(values) / len(values)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_every_choice_against_loops(name: str, epochs: int) -> None:
    x = drawn(epochs, epochs=epochs)
    assert float(EPOCH_PRIORS[name](x, kernel(x))) == pytest.approx(slow(name, x, kernel(x)), abs=1e-12)


def test_there_are_eight_choices() -> None:
    assert len(NAMES) == len(set(EPOCH_PRIORS.values())) == 8
    assert EPOCH_PRIORS["l2-mean"] == EpochPrior(distance="l2", summary="mean", convolved=False)
    assert EPOCH_PRIORS["l1-max-conv"] == EpochPrior(distance="l1", summary="max", convolved=True)


@settings(max_examples=25)
@given(
    name=st.sampled_from(NAMES), seed=st.integers(0, 99), epochs=st.integers(1, 4), images=st.integers(1, 5)
)
def test_the_order_within_an_epoch_does_not_matter(name: str, seed: int, epochs: int, images: int) -> None:
    x, prior = drawn(seed, epochs=epochs, images=images), EPOCH_PRIORS[name]
    source = torch.Generator().manual_seed(seed)
    turned = torch.stack([epoch[torch.randperm(images, generator=source)] for epoch in x])
    here = float(prior(x, kernel(x)))
    assert here >= 0 and (epochs > 1 or here < 1e-20)
    assert float(prior(turned, kernel(x))) == pytest.approx(here, abs=1e-12)


@settings(max_examples=25)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 99), images=st.integers(1, 5))
def test_epochs_that_are_permutations_of_each_other_cost_nothing(name: str, seed: int, images: int) -> None:
    x, source = drawn(seed, epochs=1, images=images)[0], torch.Generator().manual_seed(seed)
    epochs = torch.stack([x[torch.randperm(images, generator=source)] for _ in range(4)])
    assert float(EPOCH_PRIORS[name](epochs, kernel(epochs))) == pytest.approx(0, abs=1e-15)
    other = torch.cat([epochs[:3], epochs[3:] + 1])
    assert float(EPOCH_PRIORS[name](other, kernel(epochs))) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_differentiated(name: str) -> None:
    x = drawn(1, epochs=2, images=2, channels=1, side=3).requires_grad_()
    weight = kernel(x.detach())[:2]
    assert torch.autograd.gradcheck(lambda point: EPOCH_PRIORS[name](point, weight), (x,))


def test_the_kernel_is_lecun_normal_and_of_the_images_type() -> None:
    like = torch.zeros(3, 8, 8, dtype=torch.float64)
    found = random_kernel(like, torch.Generator().manual_seed(3))
    assert found.shape == (96, 3, 3, 3) and found.dtype == torch.float64
    assert float(found.std()) == pytest.approx(27**-0.5, rel=0.05) and abs(float(found.mean())) < 0.02
    assert float(found.abs().max()) <= 2 * 27**-0.5 / 0.8796 + 1e-6
    assert torch.equal(found, random_kernel(like, torch.Generator().manual_seed(3)))
    assert math.isfinite(float(found.sum()))
