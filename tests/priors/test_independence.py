"""HSIC against a slow version by numpy, and what it must be for halves that are alike or unrelated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedxray.priors import hsic
from fedxray.seeds import fork


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


def drawn(seed: int, n: int = 12) -> torch.Tensor:
    return torch.randn((n, 2, 3), generator=fork(seed, "hsic"), dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
def test_it_is_the_formula(sigma: float) -> None:
    x, y = drawn(0), drawn(1)
    assert float(hsic(x, y, sigma)) == pytest.approx(by_hand(x.numpy(), y.numpy(), sigma), rel=1e-6)


def test_it_is_largest_where_one_half_follows_from_the_other() -> None:
    x, y = drawn(0), drawn(1)
    same, turned, other = float(hsic(x, x, 0.5)), float(hsic(x, 1 - x, 0.5)), float(hsic(x, y, 0.5))
    assert same == pytest.approx(turned) and same > other > 0
    assert same <= len(x) - 1
    assert float(hsic(x, y, 0.5)) == pytest.approx(float(hsic(y, x, 0.5)))
    constant = torch.ones_like(x)
    assert abs(float(hsic(x, constant, 0.5))) < 1e-9


def test_its_slope_is_that_of_differences() -> None:
    x, y = drawn(2, n=5).requires_grad_(), drawn(3, n=5)
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
