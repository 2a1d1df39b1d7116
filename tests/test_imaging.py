"""Similarity of images against slow loops, scikit-image and the properties each must have."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from fedxray import imaging
from fedxray.errors import BadInput
from fedxray.seeds import fork

SHAPES = [(3, 1, 8, 8), (2, 3, 11, 13), (2, 1, 28, 28), (2, 3, 32, 32), (2, 2, 1, 5), (2, 1, 6, 9), (1, 1, 1, 1)]


def pair(shape: tuple[int, ...], seed: int = 0, noise: float = 0.2) -> tuple[Tensor, Tensor]:
    generator = fork(seed, "images")
    truth = torch.rand(shape, generator=generator)
    return truth + noise * torch.randn(shape, generator=generator), truth


def slow_ssim(guess: np.ndarray, truth: np.ndarray) -> float:
    channels, height, width = guess.shape
    size = max(k for k in range(1, 12, 2) if k <= min(height, width))
    half = size // 2
    weights = {}
    for i, j in itertools.product(range(size), repeat=2):
        weights[i, j] = math.exp(-((i - half) ** 2 + (j - half) ** 2) / (2 * 1.5**2))
    total, values = sum(weights.values()), []
    for c, top, left in itertools.product(range(channels), range(height - size + 1), range(width - size + 1)):
        cells = [(w / total, guess[c, top + i, left + j], truth[c, top + i, left + j]) for (i, j), w in weights.items()]
        ma, mb = sum(w * a for w, a, _ in cells), sum(w * b for w, _, b in cells)
        va, vb = sum(w * (a - ma) ** 2 for w, a, _ in cells), sum(w * (b - mb) ** 2 for w, _, b in cells)
        cov = sum(w * (a - ma) * (b - mb) for w, a, b in cells)
        values.append((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    return sum(values) / len(values)


@pytest.mark.parametrize("shape", SHAPES)
def test_mse_and_psnr_equal_slow_loops(shape: tuple[int, ...]) -> None:
    guess, truth = pair(shape)
    for image, (g, t) in enumerate(zip(guess.double().numpy(), truth.double().numpy(), strict=True)):
        squares = [(a - b) ** 2 for a, b in zip(g.ravel(), t.ravel(), strict=True)]
        error = sum(squares) / len(squares)
        assert imaging.mse(guess, truth)[image].item() == pytest.approx(error, rel=1e-5)
        assert imaging.psnr(guess, truth)[image].item() == pytest.approx(10 * math.log10(1 / error), abs=1e-4)


def test_psnr_by_hand() -> None:
    truth = torch.zeros(3, 1, 4, 4)
    guess = torch.stack([torch.full((1, 4, 4), value) for value in (0.1, 1.0, 10.0)])
    torch.testing.assert_close(imaging.psnr(guess, truth), torch.tensor([20.0, 0.0, -20.0]))  # not clipped to 0..1


@pytest.mark.parametrize("shape", SHAPES)
def test_ssim_equals_slow_loops(shape: tuple[int, ...]) -> None:
    guess, truth = pair(shape)
    slow = [slow_ssim(g, t) for g, t in zip(guess[:2].double().numpy(), truth[:2].double().numpy(), strict=True)]
    assert imaging.ssim(guess[:2], truth[:2]).tolist() == pytest.approx(slow, abs=1e-5)


def test_ssim_far_outside_the_range_equals_slow_loops() -> None:
    guess, truth = pair((1, 1, 12, 12), noise=0.01)
    guess, truth = guess + 3000, truth + 3000  # in float32 the variances would be lost
    assert imaging.ssim(guess, truth).item() == pytest.approx(
        slow_ssim(guess[0].double().numpy(), truth[0].double().numpy()), abs=1e-5
    )


@pytest.mark.parametrize("shape", [(1, 1, 28, 28), (2, 3, 32, 32), (1, 1, 11, 20)])
def test_ssim_equals_scikit_image(shape: tuple[int, ...], extra) -> None:
    structural_similarity = extra("skimage.metrics").structural_similarity
    guess, truth = pair(shape)
    for image in range(shape[0]):
        theirs = structural_similarity(
            truth[image].double().numpy(),
            guess[image].double().numpy(),
            channel_axis=0,
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        assert imaging.ssim(guess, truth)[image].item() == pytest.approx(theirs, abs=1e-6)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 14), st.integers(1, 14)),
    seed=st.integers(0, 99),
    size=st.sampled_from([0.0, 0.01, 1.0, 100.0, 1e8]),
)
def test_properties_of_the_three(shape: tuple[int, ...], seed: int, size: float) -> None:
    guess, truth = pair(shape, seed, size)
    values = imaging.ssim(guess, truth)
    assert bool(((values >= -1) & (values <= 1)).all())
    torch.testing.assert_close(values, imaging.ssim(truth, guess))
    assert imaging.ssim(truth, truth).tolist() == pytest.approx([1.0] * shape[0])
    assert imaging.psnr(truth, truth).tolist() == [100.0] * shape[0]
    for measure in (imaging.psnr, imaging.ssim, imaging.mse):
        value = measure(guess, truth)
        assert value.shape == shape[:1] and bool(torch.isfinite(value).all())
        alone = torch.cat([measure(g[None], t[None]) for g, t in zip(guess, truth, strict=True)])
        torch.testing.assert_close(value, alone)  # an image's value does not depend on its company


def test_constant_images() -> None:
    dark, bright = torch.zeros(1, 1, 12, 12), torch.ones(1, 1, 12, 12)
    assert imaging.ssim(bright, bright).item() == pytest.approx(1.0)
    assert imaging.ssim(dark, bright).item() == pytest.approx(1e-4 / (1 + 1e-4), rel=1e-4)
    assert imaging.psnr(dark, bright).item() == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_a_guess_that_is_not_finite_is_the_worst(bad: float) -> None:
    guess, truth = pair((3, 1, 8, 8))
    guess[1, 0, 2, 3] = bad
    assert imaging.mse(guess, truth)[1].item() == 1e10
    assert imaging.psnr(guess, truth)[1].item() == -100.0
    assert imaging.pairwise_psnr(guess, truth)[1].tolist() == [-100.0] * 3
    assert imaging.ssim(guess, truth)[1].item() < 0.9
    if not math.isfinite(bad):
        assert imaging.ssim(guess, truth)[1].item() == -1.0
        assert imaging.retrieved(guess, truth, truth[:0]).tolist() == [True, False, True]
    assert imaging.match(guess, truth).tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 8, 8)])
def test_pairwise_psnr_equals_pair_by_pair(shape: tuple[int, ...]) -> None:
    guesses, truths = torch.rand(5, *shape), torch.rand(7, *shape)
    guesses[0] = truths[3]
    guesses[1] = truths[2] + 1e-4  # where a product of norms would cancel
    slow = torch.tensor([[imaging.psnr(g[None], t[None]).item() for t in truths] for g in guesses])
    torch.testing.assert_close(imaging.pairwise_psnr(guesses, truths), slow, rtol=0, atol=2e-3)
    assert imaging.pairwise_psnr(guesses, truths)[0, 3].item() == 100.0


@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 999))
def test_assignment_is_the_best_of_all(rows: int, columns: int, seed: int) -> None:
    scores = torch.randn(rows, columns, generator=fork(seed))
    found_rows, found_columns = imaging.assignment(scores)
    assert len(set(found_rows.tolist())) == len(set(found_columns.tolist())) == min(rows, columns)
    wide = scores if rows <= columns else scores.T
    best = max(
        sum(wide[i, j].item() for i, j in enumerate(order))
        for order in itertools.permutations(range(wide.shape[1]), wide.shape[0])
    )
    assert scores[found_rows, found_columns].sum().item() == pytest.approx(best, abs=1e-5)


@given(order=st.permutations(range(6)), seed=st.integers(0, 99))
def test_match_undoes_any_order(order: list[int], seed: int) -> None:
    guess, truth = pair((6, 1, 5, 5), seed, 0.02)
    assert guess[order][imaging.match(guess[order], truth)].equal(guess)


def test_match_with_too_few_or_too_many_guesses() -> None:
    _, truth = pair((4, 1, 5, 5))
    assert imaging.match(truth[[2, 0]], truth).tolist() == [1, -1, 0, -1]
    assert imaging.match(truth, truth[[3, 1]]).tolist() == [3, 1]
    assert imaging.match(truth[:0], truth).tolist() == [-1] * 4
    assert imaging.match(truth, truth[:0]).tolist() == []


def test_match_may_give_up_one_good_pair_for_the_total() -> None:
    truth = torch.tensor([0.0, 0.067]).reshape(2, 1, 1, 1)
    guess = torch.tensor([0.031, -0.04]).reshape(2, 1, 1, 1)  # the best single pair is 0 with 0
    assert imaging.match(guess, truth).tolist() == [1, 0]


@given(seed=st.integers(0, 200), others=st.integers(0, 6))
def test_retrieved_equals_slow_loops(seed: int, others: int) -> None:
    guess, truth = pair((4, 2, 3, 3), seed, 0.5)
    crowd = torch.rand(others, 2, 3, 3, generator=fork(seed, "crowd"))
    slow = [
        all(((g - t) ** 2).sum().item() < ((g - other) ** 2).sum().item() for other in crowd)
        for g, t in zip(guess, truth, strict=True)
    ]
    assert imaging.retrieved(guess, truth, crowd).tolist() == slow


def test_retrieved_counts_ties_as_misses_and_looks_at_999_others() -> None:
    guess, truth = pair((5, 3, 16, 16))
    assert not imaging.retrieved(guess, truth, truth).any()
    assert not imaging.retrieved(truth, truth, truth).any()
    far = torch.full((999, 3, 16, 16), 9.0)
    assert imaging.retrieved(guess, truth, far).all()
    assert imaging.retrieved(guess, truth, torch.cat([far, guess])).all()
    assert imaging.retrieved(guess, truth, torch.cat([far[1:], guess])).tolist() == [False, True, True, True, True]


def test_no_images_at_all() -> None:
    none = torch.zeros(0, 1, 8, 8)
    for measure in (imaging.psnr, imaging.mse, imaging.ssim):
        assert measure(none, none).shape == (0,)
    assert imaging.pairwise_psnr(none, torch.zeros(3, 1, 8, 8)).shape == (0, 3)
    assert imaging.retrieved(none, none, torch.zeros(3, 1, 8, 8)).shape == (0,)


def test_shapes_that_do_not_fit_are_refused() -> None:
    one, two = torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 9)
    for call in (imaging.psnr, imaging.mse, imaging.ssim, imaging.pairwise_psnr):
        with pytest.raises(BadInput, match="shape"):
            call(one, two)
    with pytest.raises(BadInput, match="others"):
        imaging.retrieved(one, one, two)
    with pytest.raises(BadInput, match="channels, height, width"):
        imaging.ssim(torch.zeros(2, 5), torch.zeros(2, 5))


def test_nothing_ambient_and_inputs_unchanged() -> None:
    guess, truth = pair((3, 1, 8, 8))
    kept = guess.clone(), truth.clone()

    def everything() -> list[Tensor]:
        one = [measure(guess, truth) for measure in (imaging.psnr, imaging.mse, imaging.ssim, imaging.pairwise_psnr)]
        return [*one, imaging.match(guess, truth), imaging.retrieved(guess, truth, truth[:1])]

    usual = everything()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            elsewhere = everything()
    finally:
        torch.set_default_dtype(torch.float32)
    for first, second in zip(usual, elsewhere, strict=True):
        assert first.dtype == second.dtype and second.device.type == "cpu" and torch.equal(first, second)
    assert all(value.dtype == torch.float32 for value in usual[:4])
    assert torch.equal(guess, kept[0]) and torch.equal(truth, kept[1])


def strokes(background: float, *depths: float) -> Tensor:
    """One 10 x 10 image for each depth, with a stroke of 10 pixels."""
    ink = torch.zeros(len(depths), 1, 10, 10)
    for image, depth in zip(ink, depths, strict=True):
        image[0, 5] = depth
    return (background - ink).abs()


@pytest.mark.parametrize("background", [0.0, 1.0])
def test_weak_strokes_are_raised_to_one_contrast_and_strong_ones_stay(background: float) -> None:
    evened = imaging.with_even_contrast(strokes(background, 0.3, 0.6, 0.85, 1.0))
    assert torch.allclose(evened, strokes(background, 0.85, 0.85, 0.85, 1.0), atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("depth", [0.9, 1.0])
def test_even_contrast_takes_noise_off_and_harms_no_good_image(noise: float, depth: float) -> None:
    truth = strokes(1.0, depth, depth, depth)
    guess = truth + noise * torch.randn(truth.shape, generator=fork(0, "noise"))
    before, after = (imaging.psnr(image.clamp(0, 1), truth) for image in (guess, imaging.with_even_contrast(guess)))
    assert bool((after >= before).all())


def test_even_contrast_is_what_a_loop_over_pixels_gives() -> None:
    pixels = (1 - 0.7 * torch.rand(3, 1, 9, 9, generator=fork(0, "ink")) ** 12).double()
    ink = [[1 - value for value in image.flatten().tolist()] for image in pixels]
    near = [value for image in ink for value in image if value < 0.1]
    assert len(near) > 0.7 * 3 * 81
    noise = min(0.1, 3 * math.sqrt(sum(value**2 for value in near) / len(near)))
    place = round(0.99 * 81) - 1
    for image, evened in zip(ink, imaging.with_even_contrast(pixels), strict=True):
        left = [max(0.0, value - noise) for value in image]
        factor = min(3.0, max(1 / 3, max(0.85, sorted(image)[place]) / sorted(left)[place]))
        assert evened.flatten().tolist() == pytest.approx([1 - min(1.0, factor * value) for value in left])


def test_images_without_a_plain_background_keep_their_contrast() -> None:
    photos = torch.rand(4, 1, 8, 8, generator=fork(0, "photos")) * 1.4 - 0.2
    assert imaging.with_even_contrast(photos) is photos
    empty, blank = torch.zeros(0, 1, 8, 8), torch.ones(2, 1, 8, 8)
    assert imaging.with_even_contrast(empty) is empty and torch.equal(imaging.with_even_contrast(blank), blank)
