"""Penalties against slow loops, their slopes, and what they must not notice."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedxray.priors import box_penalty, clip, l2, squared_total_variation, total_variation
from fedxray.seeds import fork

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
