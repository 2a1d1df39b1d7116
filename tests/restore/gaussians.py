"""Gaussian images, of which everything is known in closed form, as a prior."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedxray.restore.base import Diffusion
from fedxray.seeds import fork

SHAPE = (1, 4, 4)
PIXELS = 16


def smooth_covariance() -> Tensor:
    """Neighbours alike: 0.3 exp(-distance / 2) over the pixels of SHAPE, [pixels, pixels] float64."""
    place = torch.tensor([(row, column) for row in range(4) for column in range(4)], dtype=torch.float64)
    return 0.3 * torch.exp(-torch.cdist(place, place) / 2)


def smooth_mean() -> Tensor:
    """A slope from dark to bright, [pixels]."""
    return torch.linspace(-0.5, 0.6, PIXELS, dtype=torch.float64)


def denoised(x: Tensor, sigma: float, mean: Tensor, covariance: Tensor) -> Tensor:
    """The expected clean image of x + sigma noise, shape kept."""
    flat = x.flatten(1).to(mean) - mean
    gain = torch.linalg.solve(covariance + sigma**2 * torch.eye(PIXELS).to(mean), covariance).T
    return (mean + flat @ gain.T).reshape(x.shape).to(x)


def posterior_mean(y: Tensor, operator: Tensor, spread: float, mean: Tensor, covariance: Tensor) -> Tensor:
    """The expected image of measurements y [n, m] = operator [m, pixels] image + spread noise."""
    noise = spread**2 * torch.eye(len(operator), dtype=torch.float64)
    gain = covariance @ operator.T @ torch.linalg.inv(operator @ covariance @ operator.T + noise)
    return mean + (y - operator @ mean) @ gain.T


def gaussian_prior(mean: Tensor | None = None, covariance: Tensor | None = None, levels: int = 1000) -> Diffusion:
    """A diffusion model of Gaussian images that predicts the noise optimally."""
    mean = smooth_mean() if mean is None else mean
    covariance = smooth_covariance() if covariance is None else covariance
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, levels, dtype=torch.float64), 0)
    sizes = [math.sqrt((1 - float(one)) / float(one)) for one in kept]

    def noise(x: Tensor, level: int, labels: Tensor | None) -> Tensor:
        grown = x / float(kept[level]) ** 0.5
        return (grown - denoised(grown, sizes[level], mean, covariance)) / sizes[level]

    return Diffusion(shape=SHAPE, kept=kept, noise=noise)


def standard_normal(seed: int) -> Callable[[Tensor], Tensor]:
    """A function that draws float64 normal numbers of the shape of its argument."""
    draws = fork(seed, "gaussians")
    return lambda like: torch.randn(like.shape, generator=draws, dtype=like.dtype)
