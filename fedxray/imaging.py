"""Similarity of images and matching of guesses to originals; pixels in 0..1, [n, channels, height, width].

No value is ever NaN or infinite: PSNR is clamped to -100..100 dB, so that equal images do not make a mean
infinite, and a guess that is not finite gets the worst value (PSNR -100, MSE 1e10, SSIM -1, never retrieved).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedxray.errors import BadInput

PSNR_CAP = 100.0  # dB either way
MSE_CAP = 1e10  # the squared error at -100 dB
SSIM_WORST = -1.0
WINDOW, SIGMA = 11, 1.5
OTHERS = 999  # most images that retrieval compares with, beside the original
# Chosen on four writers of FEMNIST that no table reports.
NEAR = 0.1  # of an end of the range of pixels: background, or noise on it
PLAIN = 0.7  # least share of pixels near one end that makes it a background
STRONGEST, CONTRAST, MOST = 0.99, 0.85, 3.0  # quantile of strokes, its least value after scaling, largest factor


def mse(guess: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error of each image, guess and truth [n, ...]; shape [n]."""
    _check_same_shape(guess, truth)
    return _capped(((guess - truth) ** 2).flatten(1).mean(1))


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """Signal-to-noise ratio of each image in dB, peak 1, unclipped, guess and truth [n, ...]; shape [n]."""
    return _decibels(mse(guess, truth))


def pairwise_psnr(guesses: Tensor, truths: Tensor) -> Tensor:
    """PSNR of every guess [g, ...] with every truth [t, ...]; shape [g, t]."""
    if guesses.shape[1:] != truths.shape[1:]:
        raise _wrong_shape("guesses", f"images of shape {list(truths.shape[1:])}", guesses)
    pixels = math.prod(truths.shape[1:])
    return _decibels(_capped(_distances(guesses.flatten(1), truths.flatten(1)) ** 2 / pixels))


def ssim(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity of each image, mean over channels and window positions inside the image; shape [n].

    The window is Gaussian, 11 pixels with sigma 1.5, or the largest odd one that fits into a smaller image.
    """
    _check_same_shape(guess, truth)
    if guess.ndim != 4:
        raise _wrong_shape("guess", "shape [n, channels, height, width]", guess)
    if guess.numel() == 0:
        return guess.new_zeros(len(guess))
    # Variances are differences of squares: float32 would lose them where a guess is far outside 0..1.
    a, b = guess.double(), truth.double()
    window = _gaussian_window(min(a.shape[-2:]), a)
    mean_a, mean_b = _blur(a, window), _blur(b, window)  # each [n, channels, h - window + 1, w - window + 1]
    var_a, var_b = _blur(a * a, window) - mean_a**2, _blur(b * b, window) - mean_b**2
    covariance = _blur(a * b, window) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2  # of Wang et al. (2004), for a range of 1
    similarity = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    similarity = similarity / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    value = similarity.flatten(1).mean(1).nan_to_num(nan=SSIM_WORST, posinf=SSIM_WORST, neginf=SSIM_WORST)
    return value.clamp(-1.0, 1.0).to(torch.promote_types(guess.dtype, truth.dtype))


def assignment(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the pairs, one to one, with the largest total of scores [g, t]; each [pairs]."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(scores.detach().cpu().numpy(), maximize=True)
    return torch.as_tensor(rows, device=scores.device), torch.as_tensor(columns, device=scores.device)


def match(guesses: Tensor, truths: Tensor) -> Tensor:
    """The index of the guess of each truth in the matching with the largest total PSNR, -1 for none; shape [t]."""
    rows, columns = assignment(pairwise_psnr(guesses, truths))
    unmatched = torch.full((len(truths),), -1, dtype=torch.int64, device=truths.device)
    return unmatched.index_put((columns,), rows)


def with_even_contrast(pixels: Tensor) -> Tensor:
    """Pixels [n, 1, h, w] of images on a plain background, its noise removed, weak strokes raised to one contrast.

    A contrast that is there already stays, and so do images without a plain background at one end of the range 0..1.
    """
    for background in (0.0, 1.0):
        ink = (pixels.clamp(0, 1) - background).abs()
        flat = ink.flatten(1)
        plain = flat < NEAR
        if not flat.numel() or float(plain.float().mean()) < PLAIN:
            continue
        noise = float(flat[plain].square().mean().sqrt())
        place = max(1, round(STRONGEST * flat.shape[1]))
        aim = flat.kthvalue(place, dim=1).values.clamp_min(CONTRAST)  # [n]
        ink = (ink - min(NEAR, 3 * noise)).clamp_min(0)
        strongest = ink.flatten(1).kthvalue(place, dim=1).values
        factor = (aim / strongest.clamp_min(1e-9)).clamp(1 / MOST, MOST)
        return (background - ink * factor[:, None, None, None]).abs().clamp(0, 1)
    return pixels


def retrieved(guess: Tensor, truth: Tensor, others: Tensor) -> Tensor:
    """Whether each guess [n, ...] is nearer to its truth [n, ...] than to all others [m, ...]; bool [n].

    Only the first 999 others count; a tie, and a guess that is not finite, is a miss.
    """
    _check_same_shape(guess, truth)
    if others.shape[1:] != truth.shape[1:]:
        raise _wrong_shape("others", f"images of shape {list(truth.shape[1:])}", others)
    flat = guess.flatten(1)
    # The same routine measures both, so that a copy of the truth among the others is an exact tie.
    own = _distances(flat[:, None], truth.flatten(1)[:, None])[:, 0]  # [n, 1]
    to_others = _distances(flat, others[:OTHERS].flatten(1))  # [n, m]
    return torch.isfinite(own[:, 0]) & (own < to_others).all(1)


def _distances(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances of all pairs, left [..., g, pixels] and right [..., t, pixels]; shape [..., g, t]."""
    # Without the matrix-product shortcut: that one cancels to noise for near-equal images. Nothing of size
    # [left, right, pixels] is built either way.
    dtype = torch.promote_types(left.dtype, right.dtype)
    return torch.cdist(left.to(dtype), right.to(dtype), compute_mode="donot_use_mm_for_euclid_dist")


def _capped(error: Tensor) -> Tensor:
    """Squared errors [...] of at most MSE_CAP, which also replaces what is not finite."""
    return error.nan_to_num(nan=MSE_CAP, posinf=MSE_CAP).clamp(max=MSE_CAP)


def _decibels(error: Tensor) -> Tensor:
    return -10 * torch.log10(error.clamp(min=1 / MSE_CAP)).clamp(-PSNR_CAP / 10, PSNR_CAP / 10)


def _gaussian_window(side: int, like: Tensor) -> Tensor:
    """Weights [size] that sum to 1; the size is 11, or the largest odd number up to `side`."""
    size = min(WINDOW, side - 1 + side % 2)
    offset = torch.arange(size, dtype=like.dtype, device=like.device) - size // 2
    weights = torch.exp(-(offset**2) / (2 * SIGMA**2))
    return weights / weights.sum()


def _blur(images: Tensor, window: Tensor) -> Tensor:
    """Windowed means of images [n, c, h, w]; a border of half a window is lost, [n, c, h - size + 1, w - size + 1]."""
    # As matrix products: for images of one channel these are several times faster than a convolution.
    return _band(images.shape[-2], window) @ images @ _band(images.shape[-1], window).T


def _band(side: int, window: Tensor) -> Tensor:
    """The matrix [side - size + 1, side] whose row i holds the window at position i."""
    return torch.eye(side, dtype=window.dtype, device=window.device).unfold(0, len(window), 1) @ window


def _check_same_shape(guess: Tensor, truth: Tensor) -> None:
    if guess.shape != truth.shape:
        raise _wrong_shape("guess", f"shape {list(truth.shape)}", guess)


def _wrong_shape(argument: str, expected: str, got: Tensor) -> BadInput:
    remedy = "Give images as [n, channels, height, width], all of one size."
    return BadInput(argument, expected=expected, got=f"shape {list(got.shape)}", remedy=remedy)
