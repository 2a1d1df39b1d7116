"""Penalties, the epoch-order-invariant prior and HSIC against slow versions, with the properties each must have."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.nn import functional

from fedxray.priors import (
    EPOCH_PRIORS,
    EpochPrior,
    box_penalty,
    clip,
    hsic,
    l2,
    random_kernel,
    squared_total_variation,
    total_variation,
)
from fedxray.seeds import fork

# Pixel penalties

SHAPES = [(1, 1, 2, 2), (2, 3, 4, 5), (3, 1, 1, 4), (2, 2, 3, 1), (1, 1, 1, 1)]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=fork(seed), dtype=torch.float64)


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_total_variation_equals_slow_loops(shape: tuple[int, int, int, int]) -> None:
    x = drawn(shape)
    n, c, h, w = shape
    down = [
        abs(x[i, k, a + 1, b] - x[i, k, a, b]).item()
        for i in range(n)
        for k in range(c)
        for a in range(h - 1)
        for b in range(w)
    ]
    across = [
        abs(x[i, k, a, b + 1] - x[i, k, a, b]).item()
        for i in range(n)
        for k in range(c)
        for a in range(h)
        for b in range(w - 1)
    ]
    assert total_variation(x).item() == pytest.approx(mean(down) + mean(across))


@pytest.mark.parametrize("shape", SHAPES)
def test_squared_total_variation_equals_slow_loops(shape: tuple[int, int, int, int]) -> None:
    x = drawn(shape)
    n, c, h, w = shape
    total = 0.0
    for i, k, a, b in itertools.product(range(n), range(c), range(h), range(w)):
        total += (x[i, k, a, b] - x[i, k, (a + 1) % h, b]).item() ** 2
        total += (x[i, k, a, b] - x[i, k, a, (b + 1) % w]).item() ** 2
    assert squared_total_variation(x).item() == pytest.approx(total / n)


@given(seed=st.integers(0, 99), low=st.floats(-1, 0), width=st.floats(0, 2))
def test_box_equals_slow_loops(seed: int, low: float, width: float) -> None:
    x, high = drawn((3, 4), seed), low + width
    outside = [max(low - v, 0.0, v - high) ** 2 for v in x.flatten().tolist()]
    assert box_penalty(x, low, high).item() == pytest.approx(sum(outside) / 3, abs=1e-12)
    assert clip(x, low, high).flatten().tolist() == [min(max(v, low), high) for v in x.flatten().tolist()]


def test_box_takes_a_bound_for_each_entry_and_open_ends() -> None:
    x = torch.tensor([[-2.0, 5.0, 7.0]])
    low, high = torch.tensor([-1.0, -math.inf, 0.0]), torch.tensor([1.0, math.inf, 3.0])
    assert clip(x, low, high).tolist() == [[-1.0, 5.0, 3.0]]
    assert box_penalty(x, low, high).item() == 1.0 + 16.0


def test_l2_is_half_the_mean_square() -> None:
    x = drawn((3, 2, 4, 4))
    assert l2(x).item() == pytest.approx(sum(v**2 for v in x.flatten().tolist()) / x.numel() / 2)


PENALTIES = {
    "total_variation": total_variation,
    "squared_total_variation": squared_total_variation,
    "box": lambda x: box_penalty(x, -0.5, 0.5),
    "l2": l2,
}


@pytest.mark.parametrize("name", PENALTIES)
def test_slopes_equal_differences(name: str) -> None:
    x = drawn((2, 2, 3, 4)).requires_grad_()
    assert torch.autograd.gradcheck(PENALTIES[name], (x,))


@pytest.mark.parametrize("name", PENALTIES)
@given(seed=st.integers(0, 50))
def test_never_negative_and_blind_to_the_order_of_images(name: str, seed: int) -> None:
    x = drawn((4, 2, 3, 4), seed)
    assert PENALTIES[name](x).item() >= 0
    torch.testing.assert_close(PENALTIES[name](x), PENALTIES[name](x.flip(0)))


@pytest.mark.parametrize("name", PENALTIES)
def test_no_input_gives_zero_and_nothing_is_ambient(name: str) -> None:
    assert PENALTIES[name](torch.zeros(0, 1, 4, 4)).item() == 0.0
    x = drawn((2, 1, 4, 4)).float()
    usual = PENALTIES[name](x)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            elsewhere = PENALTIES[name](x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert usual.shape == () and elsewhere.dtype == torch.float32 and torch.equal(usual, elsewhere)


def test_smooth_images_have_no_variation() -> None:
    flat = torch.full((2, 3, 5, 5), 0.7)
    assert total_variation(flat).item() == squared_total_variation(flat).item() == 0.0
    x = drawn((2, 3, 5, 5))
    torch.testing.assert_close(total_variation(x + 3), total_variation(x))
    torch.testing.assert_close(total_variation(-2 * x), 2 * total_variation(x))
    torch.testing.assert_close(squared_total_variation(-2 * x), 4 * squared_total_variation(x))
    torch.testing.assert_close(squared_total_variation(x.roll(2, -1)), squared_total_variation(x))


# The epoch-order-invariant prior

NAMES = sorted(EPOCH_PRIORS)


def epochs_drawn(seed: int, epochs: int = 3, images: int = 4, channels: int = 2, side: int = 5) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(epochs, images, channels, side, side, generator=source, dtype=torch.float64)


def kernel(x: Tensor) -> Tensor:
    return random_kernel(x, torch.Generator().manual_seed(0))


def slow(name: str, x: Tensor, weight: Tensor) -> float:
    """Epoch by epoch, image by image, pair by pair."""
    distance, summary, *conv = name.split("-")
    summaries = []
    for epoch in x:
        features = [functional.conv2d(image[None], weight, padding=1)[0] if conv else image for image in epoch]
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
    x = epochs_drawn(epochs, epochs=epochs)
    assert float(EPOCH_PRIORS[name](x, kernel(x))) == pytest.approx(slow(name, x, kernel(x)), abs=1e-12)


def test_there_are_eight_choices() -> None:
    assert len(NAMES) == len(set(EPOCH_PRIORS.values())) == 8
    assert EPOCH_PRIORS["l2-mean"] == EpochPrior(distance="l2", summary="mean", convolved=False)
    assert EPOCH_PRIORS["l1-max-conv"] == EpochPrior(distance="l1", summary="max", convolved=True)


@settings(max_examples=25)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 99), epochs=st.integers(1, 4), images=st.integers(1, 5))
def test_the_order_within_an_epoch_does_not_matter(name: str, seed: int, epochs: int, images: int) -> None:
    x, prior = epochs_drawn(seed, epochs=epochs, images=images), EPOCH_PRIORS[name]
    source = torch.Generator().manual_seed(seed)
    turned = torch.stack([epoch[torch.randperm(images, generator=source)] for epoch in x])
    here = float(prior(x, kernel(x)))
    assert here >= 0 and (epochs > 1 or here < 1e-20)
    assert float(prior(turned, kernel(x))) == pytest.approx(here, abs=1e-12)


@settings(max_examples=25)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 99), images=st.integers(1, 5))
def test_epochs_that_are_permutations_of_each_other_cost_nothing(name: str, seed: int, images: int) -> None:
    x, source = epochs_drawn(seed, epochs=1, images=images)[0], torch.Generator().manual_seed(seed)
    epochs = torch.stack([x[torch.randperm(images, generator=source)] for _ in range(4)])
    assert float(EPOCH_PRIORS[name](epochs, kernel(epochs))) == pytest.approx(0, abs=1e-15)
    other = torch.cat([epochs[:3], epochs[3:] + 1])
    assert float(EPOCH_PRIORS[name](other, kernel(epochs))) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_differentiated(name: str) -> None:
    x = epochs_drawn(1, epochs=2, images=2, channels=1, side=3).requires_grad_()
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


# HSIC


def by_hand(x: np.ndarray, y: np.ndarray, sigma: float) -> float:
    n = len(x)
    centring = np.eye(n) - np.ones((n, n)) / n
    shares = []
    for part in (x, y):
        kernel = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                distance = ((part[i] - part[j]) ** 2).sum()
                kernel[i, j] = math.exp(-distance / (2 * sigma**2 * part[0].size))
        kernel = centring @ kernel @ centring
        shares.append(kernel @ np.linalg.inv(kernel + 1e-5 * n * np.eye(n)))
    return float(np.trace(shares[0] @ shares[1]))


def pairs_drawn(seed: int, n: int = 12) -> torch.Tensor:
    return torch.randn((n, 2, 3), generator=fork(seed, "hsic"), dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
def test_it_is_the_formula(sigma: float) -> None:
    x, y = pairs_drawn(0), pairs_drawn(1)
    assert float(hsic(x, y, sigma)) == pytest.approx(by_hand(x.numpy(), y.numpy(), sigma), rel=1e-6)


def test_it_is_largest_where_one_half_follows_from_the_other() -> None:
    x, y = pairs_drawn(0), pairs_drawn(1)
    same, turned, other = float(hsic(x, x, 0.5)), float(hsic(x, 1 - x, 0.5)), float(hsic(x, y, 0.5))
    assert same == pytest.approx(turned) and same > other > 0
    assert same <= len(x) - 1
    assert float(hsic(x, y, 0.5)) == pytest.approx(float(hsic(y, x, 0.5)))
    constant = torch.ones_like(x)
    assert abs(float(hsic(x, constant, 0.5))) < 1e-9


def test_its_slope_is_that_of_differences() -> None:
    x, y = pairs_drawn(2, n=5).requires_grad_(), pairs_drawn(3, n=5)
    assert torch.autograd.gradcheck(lambda value: hsic(value, y, 1.0), (x,))


def test_nothing_of_the_size_of_all_pairs_of_images_is_held() -> None:
    """Of n examples with many entries no more than n by n, and the examples themselves."""
    x = torch.randn((9, 40), generator=fork(4, "hsic"), dtype=torch.float64).requires_grad_()
    sizes = []

    def seen(value: torch.Tensor) -> torch.Tensor:
        sizes.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda value: value):
        hsic(x, x.detach().flip(0))
    assert max(sizes) == x.numel()
