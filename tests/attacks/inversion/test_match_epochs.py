from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray import imaging
from fedxray.attacks.inversion.dlf import Dlf, averaged, matched_to_first
from fedxray.data.dataset import Space
from fedxray.errors import BadInput

SPACE = Space(kind="image", shape=(1, 6, 6), target="classification", classes=("a", "b"), mean=(0.5,), std=(0.2,))


def pictures(count: int, seed: int = 0, side: int = 6) -> Tensor:
    """Normalised pictures [count, 1, side, side]."""
    drawn = torch.rand(count, 1, side, side, generator=torch.Generator().manual_seed(seed))
    return SPACE.from_pixels(drawn)


@settings(max_examples=25)
@given(seed=st.integers(0, 999), images=st.integers(1, 6), epochs=st.integers(1, 4))
def test_permuted_copies_come_back_in_the_order_of_the_first(seed: int, images: int, epochs: int) -> None:
    x, source = pictures(images, seed), torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(images, generator=source) for _ in range(epochs)])
    shuffled = torch.stack([x[order] for order in orders])
    assert torch.allclose(averaged(shuffled, SPACE), shuffled[0], atol=1e-6)
    places = matched_to_first(SPACE.to_pixels(shuffled))
    assert all(torch.equal(order[place], orders[0]) for order, place in zip(orders, places, strict=True))


def test_the_matching_is_the_best_of_all_and_in_pixels() -> None:
    x = torch.stack([pictures(4, 1), pictures(4, 2)])
    pixels = SPACE.to_pixels(x)

    def total(order: tuple[int, ...]) -> float:
        error = ((pixels[1][list(order)] - pixels[0]) ** 2).flatten(1).mean(1)
        return float((-10 * error.log10()).sum())

    best = max(itertools.permutations(range(4)), key=total)
    assert matched_to_first(pixels)[1].tolist() == list(best)
    assert torch.allclose(averaged(x, SPACE), (x[0] + x[1][list(best)]) / 2)


@pytest.mark.parametrize("copies", [2, 5, 10])
def test_averaging_copies_with_noise_gains_ten_times_the_logarithm_of_their_number(copies: int) -> None:
    x, source = pictures(8, 3, side=20), torch.Generator().manual_seed(copies)
    noisy = [x + 0.3 * torch.randn(x.shape, generator=source) for _ in range(copies)]
    shuffled = torch.stack([epoch[torch.randperm(8, generator=source)] for epoch in noisy])
    found = averaged(shuffled, SPACE)
    truth, guess, one = (SPACE.to_pixels(images) for images in (x, found, shuffled[0]))
    places = imaging.match(guess, truth)
    gain = imaging.psnr(guess[places], truth).mean() - imaging.psnr(one[places], truth).mean()
    assert float(gain) == pytest.approx(10 * math.log10(copies), abs=0.3)


def test_other_averages_and_an_unknown_one() -> None:
    x = torch.stack([pictures(3, 1), pictures(3, 2)])
    assert torch.equal(averaged(x, SPACE, "none"), x[0])
    assert torch.equal(averaged(x, SPACE, "plain"), x.mean(0))
    with pytest.raises(BadInput, match="average"):
        Dlf(average="median")  # type: ignore[arg-type]


def test_epochs_that_are_not_finite_do_not_break_it() -> None:
    x = torch.stack([pictures(3, 1), pictures(3, 2) * float("nan")])
    assert averaged(x, SPACE).shape == x[0].shape
