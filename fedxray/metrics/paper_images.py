"""PSNR and SSIM as papers 002 and 004 reckon them, kept apart by name; pixels in 0..1, [n, channels, height, width].

  psnr_002  the peak is the largest value of the original, not 1
  ssim_002  the formula once over the whole image, per channel, then the mean; range 1
  psnr_004  both images as whole numbers from 0 to 255, peak 255
  ssim_004  the same formula once over the whole image from 0 to 255, unclipped, on Y, Cr and Cb with weights 0.8, 0.1
            and 0.1; a grey image has Y alone

Both papers compare images by index; here they are compared as the caller pairs them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedxray import imaging
from fedxray.errors import unknown_name

DARKEST = 1e-10  # least peak of an original that is all black


def psnr_002(guess: Tensor, truth: Tensor) -> Tensor:
    """Signal-to-noise ratio in dB with the largest value of the original as peak; shape [n]."""
    peak = truth.flatten(1).amax(1).clamp(min=DARKEST)
    return (imaging.psnr(guess, truth) + 20 * torch.log10(peak)).clamp(-imaging.PSNR_CAP, imaging.PSNR_CAP)


def ssim_002(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity over one window that is the whole image, mean over channels; shape [n]."""
    return _whole_image(guess, truth, scale=1.0).mean(1)


def psnr_004(guess: Tensor, truth: Tensor) -> Tensor:
    """Signal-to-noise ratio in dB of images rounded to whole numbers from 0 to 255; shape [n]."""
    seen, real = ((one * 255).round().clamp(0, 255) / 255 for one in (guess, truth))
    return imaging.psnr(seen, real)


def ssim_004(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity over the whole image of luminance and colour, weighted; shape [n]."""
    if guess.shape[1] != 3:
        return _whole_image(guess * 255, truth * 255, scale=255.0).mean(1)
    parts = _whole_image(_luminance_and_colour(guess), _luminance_and_colour(truth), scale=255.0)
    return 0.8 * parts[:, 0] + 0.1 * parts[:, 1] + 0.1 * parts[:, 2]


VARIANTS: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "002": {"psnr_002": psnr_002, "ssim_002": ssim_002},
    "004": {"psnr_004": psnr_004, "ssim_004": ssim_004},
}


def variants(paper: str) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of a paper by name."""
    if paper not in VARIANTS:
        raise unknown_name("papers", paper, VARIANTS)
    return VARIANTS[paper]


def _whole_image(guess: Tensor, truth: Tensor, *, scale: float) -> Tensor:
    """Luminance times contrast times structure of each channel, shape [n, channels]; the worst where not finite."""
    a, b = guess.double().flatten(2), truth.double().flatten(2)
    mean_a, mean_b = a.mean(2), b.mean(2)
    var_a, var_b = a.var(2, unbiased=False), b.var(2, unbiased=False)
    both = ((a - mean_a[..., None]) * (b - mean_b[..., None])).mean(2)
    c1, c2 = (0.01 * scale) ** 2, (0.03 * scale) ** 2
    value = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    value = value / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    worst = imaging.SSIM_WORST
    return value.nan_to_num(nan=worst, posinf=worst, neginf=worst).clamp(-1.0, 1.0).to(guess.dtype)


def _luminance_and_colour(image: Tensor) -> Tensor:
    """Y, Cr and Cb from 0 to 255 of images red, green and blue in 0..1, shape kept."""
    red, green, blue = (image * 255).unbind(1)
    luminance = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack([luminance, 0.713 * (red - luminance) + 128, 0.564 * (blue - luminance) + 128], 1)
