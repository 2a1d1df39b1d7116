"""DDRM on Gaussian images, whose posterior is known, and its averaging of blocks against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.progress import Step, silent
from fedxray.restore.ddrm import Blocks, Ddrm, chosen_levels, ddrm
from fedxray.seeds import fork
from tests.restore.gaussians import (
    PIXELS,
    denoised,
    gaussian_prior,
    posterior_mean,
    smooth_covariance,
    smooth_mean,
    standard_normal,
)

SIDE = 4


def averaging(scale: int) -> np.ndarray:
    """The averaging of blocks of a 4 x 4 image as a matrix, entry by entry."""
    count = SIDE // scale
    matrix = np.zeros((count * count, PIXELS))
    for row in range(SIDE):
        for column in range(SIDE):
            matrix[(row // scale) * count + column // scale, row * SIDE + column] = 1 / scale**2
    return matrix


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_coordinates_of_blocks_are_the_singular_vectors_of_averaging(scale: int) -> None:
    blocks, matrix = Blocks(scale), averaging(scale)
    images = torch.eye(PIXELS, dtype=torch.float64).reshape(PIXELS, 1, SIDE, SIDE)
    basis = blocks.split(images).reshape(PIXELS, PIXELS).T.numpy()  # coordinates of every unit image
    np.testing.assert_allclose(basis @ basis.T, np.eye(PIXELS), atol=1e-12)
    np.testing.assert_allclose(blocks.join(blocks.split(images)).numpy(), images.numpy(), atol=1e-12)
    means = blocks.means(images).reshape(PIXELS, -1).T.numpy()
    np.testing.assert_allclose(means, matrix, atol=1e-12)
    np.testing.assert_allclose(np.linalg.svd(matrix)[1], 1 / scale, atol=1e-12)
    # In these coordinates averaging is diagonal: the first of a block by the singular value, all others by 0.
    first = np.zeros((len(matrix), PIXELS))
    first[np.arange(len(matrix)), np.arange(len(matrix)) * scale**2] = 1 / scale
    np.testing.assert_allclose(matrix @ basis.T, first, atol=1e-12)


def test_images_that_do_not_divide_are_refused() -> None:
    with pytest.raises(BadInput, match="divides 4 and 6"):
        Blocks(4).check((1, 4, 6))


def measured(scale: int, spread: float, count: int = 3) -> Tensor:
    """Block means of drawn Gaussian images with noise, [n, 1, 4 / scale, 4 / scale]."""
    draw = standard_normal(5)
    factor = torch.linalg.cholesky(smooth_covariance())
    images = smooth_mean() + draw(torch.zeros(count, PIXELS, dtype=torch.float64)) @ factor.T
    means = Blocks(scale).means(images.reshape(count, 1, SIDE, SIDE))
    return means + spread * draw(means)


def by_gaussian(x: Tensor, sigma: float) -> Tensor:
    return denoised(x, sigma, smooth_mean(), smooth_covariance())


@pytest.mark.parametrize("eta", [0.0, 0.85, 1.0])
def test_denoising_gives_the_posterior_mean_of_a_gaussian_prior(eta: float) -> None:
    """Held to the measurement down to its own noise, the model's last answer is the mean, whatever was drawn."""
    spread, sigmas = 0.3, [50.0, 7.0, 1.0, 0.3]
    y = measured(1, spread)
    found = ddrm(
        lambda x, place: by_gaussian(x, sigmas[place]), sigmas, y, spread, Blocks(1),
        eta=eta, eta_b=1.0, draw=standard_normal(1),
    )  # fmt: skip
    identity = torch.eye(PIXELS, dtype=torch.float64)
    exact = posterior_mean(y.flatten(1), identity, spread, smooth_mean(), smooth_covariance())
    torch.testing.assert_close(found.flatten(1), exact, atol=1e-9, rtol=0)


def block_covariance(scale: int) -> Tensor:
    """Blocks that do not depend on their own patterns: every coordinate of a block has a variance of its own."""
    coordinates = torch.linspace(0.05, 0.6, PIXELS, dtype=torch.float64)
    identity = torch.eye(PIXELS, dtype=torch.float64).reshape(PIXELS, 1, SIDE, SIDE)
    basis = Blocks(scale).split(identity).reshape(PIXELS, PIXELS).T
    return basis.T @ torch.diag(coordinates) @ basis


def test_super_resolution_gives_the_posterior_mean_where_patterns_are_independent() -> None:
    """What is measured comes out exactly; what is not is a sample, whose mean over draws is that of the prior."""
    scale, spread = 2, 0.2
    covariance, mean, y = block_covariance(scale), smooth_mean(), measured(scale, spread)
    floor = scale * spread
    sigmas = [40.0, 10.0, 3.0, 1.0, floor]
    draw, draws = standard_normal(2), 400
    found = ddrm(
        lambda x, place: denoised(x, sigmas[place], mean, covariance), sigmas,
        y.repeat(draws, 1, 1, 1), spread, Blocks(scale), eta=1.0, eta_b=1.0, draw=draw,
    )  # fmt: skip
    operator = torch.from_numpy(averaging(scale))
    exact = posterior_mean(y.flatten(1), operator, spread, mean, covariance).reshape(-1, 1, SIDE, SIDE)
    every = found.reshape(draws, len(y), 1, SIDE, SIDE)
    means = Blocks(scale).means(every.flatten(0, 1)).reshape(draws, len(y), 1, 2, 2)
    torch.testing.assert_close(means, Blocks(scale).means(exact).expand_as(means), atol=1e-9, rtol=0)
    assert float((every.mean(0) - exact).abs().max()) < 5 * float(every.std(0).max()) / math.sqrt(draws)
    assert float(every.std(0).max()) > 0.1


def test_super_resolution_of_correlated_images_comes_near_the_posterior_mean() -> None:
    """Patterns that hang together are filled in from the means: much nearer than repeating the means."""
    scale, spread = 2, 0.1
    y, draws = measured(scale, spread, count=8), 200
    sigmas = [40.0, 20.0, 10.0, 6.0, 4.0, 2.5, 1.5, 1.0, 0.7, 0.4, scale * spread]
    found = ddrm(
        lambda x, place: by_gaussian(x, sigmas[place]), sigmas, y.repeat(draws, 1, 1, 1), spread,
        Blocks(scale), eta=0.85, eta_b=1.0, draw=standard_normal(3),
    )  # fmt: skip
    exact = posterior_mean(y.flatten(1), torch.from_numpy(averaging(scale)), spread, smooth_mean(), smooth_covariance())
    near = (found.reshape(draws, 8, PIXELS).mean(0) - exact).square().mean().sqrt()
    repeated = y.repeat_interleave(2, 2).repeat_interleave(2, 3).flatten(1)
    assert float(near) < 0.25 * float((repeated - exact).square().mean().sqrt())


def by_the_book(
    sigmas: list[float], y: Tensor, spread: float, scale: int, eta: float, eta_b: float, draw: object
) -> Tensor:
    """The three cases of the paper, one coordinate at a time with numpy's singular vectors in place of ours."""
    matrix = averaging(scale)
    identity = torch.eye(PIXELS, dtype=torch.float64).reshape(PIXELS, 1, SIDE, SIDE)
    basis = Blocks(scale).split(identity).reshape(PIXELS, PIXELS).T.numpy()
    count = len(y)
    size = scale**2
    sizes = [1 / scale if place % size == 0 else 0.0 for place in range(PIXELS)]
    blank = torch.zeros(count, 1, SIDE // scale, SIDE // scale, size, dtype=torch.float64)
    state = (sigmas[0] * draw(blank)).reshape(count, PIXELS).numpy()  # type: ignore[operator]
    bar = np.array([[float(one) * scale for one in row] for row in y.flatten(1)])
    for place in range(0, PIXELS, size):
        rest = math.sqrt(sigmas[0] ** 2 - (spread * scale) ** 2) / sigmas[0]
        state[:, place] = bar[:, place // size] + rest * state[:, place]
    assert matrix.shape[0] == bar.shape[1]
    for here, after in zip(sigmas, [*sigmas[1:], 0.0], strict=True):
        images = torch.from_numpy(state @ basis).reshape(count, 1, SIDE, SIDE)
        clean = by_gaussian(images, here).reshape(count, PIXELS).numpy() @ basis.T
        z = draw(blank).reshape(count, PIXELS).numpy()  # type: ignore[operator]
        moved = np.empty_like(state)
        for place, s in enumerate(sizes):
            x0, noise = clean[:, place], z[:, place]
            seen = (state[:, place] - x0) / here
            if s == 0:
                moved[:, place] = x0 + math.sqrt(1 - eta**2) * after * seen + eta * after * noise
            elif s * after < spread:
                own = s * (bar[:, place // size] - x0) / spread
                moved[:, place] = x0 + math.sqrt(1 - eta**2) * after * own + eta * after * noise
            else:
                size_left = math.sqrt(after**2 - (eta_b * spread / s) ** 2)
                moved[:, place] = (1 - eta_b) * x0 + eta_b * bar[:, place // size] + size_left * noise
        state = moved
    return torch.from_numpy(state @ basis).reshape(count, 1, SIDE, SIDE)


@pytest.mark.parametrize(("scale", "eta", "eta_b"), [(1, 0.85, 1.0), (2, 0.85, 1.0), (4, 0.5, 0.7)])
def test_steps_are_those_of_the_paper(scale: int, eta: float, eta_b: float) -> None:
    spread, sigmas = 0.15, [30.0, 5.0, 1.0, 0.1, 0.02]
    y = measured(scale, spread)
    found = ddrm(
        lambda x, place: by_gaussian(x, sigmas[place]), sigmas, y, spread, Blocks(scale),
        eta=eta, eta_b=eta_b, draw=standard_normal(4),
    )  # fmt: skip
    slow = by_the_book(sigmas, y, spread, scale, eta, eta_b, standard_normal(4))
    torch.testing.assert_close(found, slow, atol=1e-9, rtol=0)


def test_the_restorer_denoises_with_a_model_of_levels() -> None:
    """In pixels: the first level above the measurement's noise adds but little noise of its own."""
    prior = gaussian_prior()
    y = measured(1, 0.2)
    steps: list[Step] = []
    found = Ddrm(prior="here", noise=0.1, steps=10).pixels((y + 1) / 2, None, prior, fork(0, "test"), steps.append)
    identity = torch.eye(PIXELS, dtype=torch.float64)
    exact = posterior_mean(y.flatten(1), identity, 0.2, smooth_mean(), smooth_covariance())
    torch.testing.assert_close(2 * found.pixels.flatten(1) - 1, exact, atol=0.06, rtol=0)
    assert steps[-1].done == steps[-1].total == found.facts["restoring_levels"]


def test_several_draws_are_averaged() -> None:
    prior, raw = gaussian_prior(), (measured(2, 0.1) + 1) / 2
    raw = raw.repeat_interleave(2, 2).repeat_interleave(2, 3)

    def error(draws: int) -> float:
        restorer = Ddrm(prior="here", scale=2, noise=0.05, steps=10, draws=draws)
        found = restorer.pixels(raw, None, prior, fork(0, "test"), silent).pixels.flatten(1)
        operator = torch.from_numpy(averaging(2))
        y = Blocks(2).means(2 * raw - 1).flatten(1)
        exact = posterior_mean(y, operator, 0.1, smooth_mean(), smooth_covariance())
        return float((2 * found - 1 - exact).square().mean())

    assert error(20) < 0.5 * error(1)


def test_levels_hold_the_one_at_the_measurements_noise() -> None:
    prior = gaussian_prior()
    own = prior.level_above(0.2)
    assert prior.sigma(own) >= 0.2 > prior.sigma(own - 1)
    assert chosen_levels(prior, 5, 0.2, "mean")[-1] == own
    every = chosen_levels(prior, 5, 0.2, "sample")
    assert own in every and every[-1] == 0 and every == sorted(every, reverse=True)
    assert prior.levels(1) == [999] and prior.levels(3) == [999, 500, 0] and len(prior.levels(5000)) == 1000
    assert prior.level_above(1e9) == 999


@pytest.mark.parametrize(
    ("setting", "value"),
    [("scale", 0), ("steps", 0), ("draws", 0), ("eta", 1.5), ("eta_b", -0.1), ("noise", 2.0), ("guidance", -1.0)],
)
def test_settings_that_cannot_be_meant(setting: str, value: float) -> None:
    with pytest.raises(BadInput, match=setting):
        Ddrm(prior="here", **{setting: value})  # type: ignore[arg-type]
