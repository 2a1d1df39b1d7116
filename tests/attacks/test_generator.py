"""The generator of public images: its components against numpy, and that training fools and feeds the critic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedxray.attacks.fedinverse import Sharpener, components, learn_generator
from fedxray.progress import Step, silent
from fedxray.seeds import fork, normal_like


def pictures(count: int = 30) -> torch.Tensor:
    """Blurred blobs at random places, [n, 1, 8, 8]."""
    draw = fork(0, "blobs")
    place = 2 + 4 * torch.rand((count, 2), generator=draw)
    grid = torch.arange(8).float()
    far = (grid[None, :, None] - place[:, :1, None]) ** 2 + (grid[None, None] - place[:, 1:, None]) ** 2
    return torch.exp(-far / 4)[:, None]


@pytest.mark.parametrize("most", [3, 10, 100])
def test_components_are_those_of_the_covariance(most: int) -> None:
    images = pictures(12).double()
    mean, found = components(images, most)
    flat = images.flatten(1).numpy()
    np.testing.assert_allclose(mean.numpy(), flat.mean(0))
    values, vectors = np.linalg.eigh(np.cov(flat.T, bias=True))
    rank = min(most, 11)  # twelve images span eleven directions around their mean
    assert found.shape == (rank, 64)
    expected = (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0)))[:, :rank].T
    np.testing.assert_allclose(np.abs(found.numpy() @ expected.T).diagonal(), values[::-1][:rank], atol=1e-9)
    np.testing.assert_allclose((found.numpy() @ found.numpy().T), np.diag(values[::-1][:rank]), atol=1e-9)


def test_equal_images_have_no_components() -> None:
    mean, found = components(torch.full((5, 1, 4, 4), 0.3), 10)
    torch.testing.assert_close(mean, torch.full((16,), 0.3))
    assert len(found) <= 1 and float(found.abs().sum()) < 1e-5


def test_before_training_it_makes_mixtures_of_components() -> None:
    images = pictures()
    found = learn_generator(images, entries=6, width=4, steps=0, batch=8, draws=fork(0), report=silent)
    codes = torch.randn((4, 6), generator=fork(1))
    mean, spread = components(images, 6)
    torch.testing.assert_close(found.pixels(codes), (mean + codes @ spread).reshape(4, 1, 8, 8).clamp(0, 1))
    x = torch.rand(2, 3, 5, 5)
    assert torch.equal(Sharpener(3, 4)(x), x)


def test_training_teaches_the_critic_and_changes_the_images() -> None:
    steps: list[Step] = []
    images = pictures(60)
    found = learn_generator(images, entries=4, width=8, steps=80, batch=16, draws=fork(0), report=steps.append)
    assert steps[-1].done == steps[-1].total == 80
    assert found.critic_loss == steps[-1].loss and (steps[-1].loss or 0) < (steps[0].loss or 0)
    codes = normal_like(torch.zeros(40, found.entries), fork(2))
    made = found.pixels(codes)
    assert made.shape == (40, 1, 8, 8) and float(made.min()) >= 0 and float(made.max()) <= 1
    mean, spread = components(images, 4)
    mixtures = (mean + codes @ spread).reshape(40, 1, 8, 8)
    assert not torch.allclose(made, mixtures.clamp(0, 1))
    assert float(found.realness(images).mean()) > float(found.realness(mixtures).mean())
