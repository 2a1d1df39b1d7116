"""How well images were reconstructed: psnr, ssim, mse, rec, retrieval and, where asked, lpips, on pixels in 0..1.

Each original is compared with the guess that the optimal matching gives it. With fewer guesses than originals
the rest have no psnr, ssim and mse, and count as misses in rec and retrieval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedxray import imaging
from fedxray.errors import BadInput, unknown_name
from fedxray.metrics.scores import Scores, from_records

# --- PSNR and SSIM as papers 002 and 004 reckon them, kept apart by name; pixels in 0..1, [n, channels,
# height, width].
#
#   psnr_002  the peak is the largest value of the original, not 1
#   ssim_002  the formula once over the whole image, per channel, then the mean; range 1
#   psnr_004  both images as whole numbers from 0 to 255, peak 255
#   ssim_004  the same formula once over the whole image from 0 to 255, unclipped, on Y, Cr and Cb with weights 0.8, 0.1
#             and 0.1; a grey image has Y alone
#
# Both papers compare images by index; here they are compared as the caller pairs them.


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


# --- LPIPS (Zhang et al. 2018), AlexNet, version 0.1: how far apart two images look to a network; pixels in
# 0..1.
#
#     1. Both images go through the five convolutions of AlexNet, scaled as it was trained.
#     2. The features of every place are divided by their length.
#     3. Squared differences are weighed per channel, averaged over places and summed over the five layers.
#
# Only the real weights are used: nothing else may be called LPIPS. Pixels are not clipped; grey images
# count as red, green and blue alike. Features are never negative, so no distance exceeds twice the largest
# weight of every layer: a guess that is not finite counts as that far.


LAYERS = 5
SMALLEST = 31  # pixels a side that AlexNet's two poolings leave something of
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of images in -1..1
STRIDES, PADDINGS, POOLED_BEFORE = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (1, 2)
TINY = 1e-10
AT_ONCE = 64  # images


@dataclass(frozen=True, kw_only=True)
class Lpips:
    """The weights of the network: convolutions, their offsets, and the weight of every channel."""

    kernels: tuple[Tensor, ...]  # [out, in, height, width]
    offsets: tuple[Tensor, ...]  # [out]
    weights: tuple[Tensor, ...]  # [out], none negative

    @property
    def worst(self) -> float:
        """No distance is larger."""
        return float(sum(2 * one.max() for one in self.weights))

    def distance(self, guess: Tensor, truth: Tensor) -> Tensor:
        """The distance of each guess to its truth, both [n, 1 or 3, height, width]; shape [n]."""
        if guess.shape != truth.shape:
            raise _wrong(f"shape {list(truth.shape)}", guess)
        check_shape(tuple(truth.shape[1:]))
        pairs = zip(guess.split(AT_ONCE), truth.split(AT_ONCE), strict=True)
        found = [self._distance(*pair) for pair in pairs] or [guess.new_zeros(0)]
        return torch.cat(found)

    def _distance(self, guess: Tensor, truth: Tensor) -> Tensor:
        with torch.no_grad():
            total = guess.new_zeros(len(guess), dtype=torch.float32)
            pairs = zip(self._features(guess), self._features(truth), strict=True)
            for (left, right), weights in zip(pairs, self.weights, strict=True):
                apart = (left - right) ** 2 * weights.to(left).reshape(-1, 1, 1)
                total = total + apart.sum(1).mean((1, 2))
        lost = ~torch.isfinite(guess.flatten(1)).all(1) | ~torch.isfinite(total)
        return total.masked_fill(lost, self.worst).to(guess.dtype)

    def _features(self, images: Tensor) -> list[Tensor]:
        """Normalised features after every convolution, each [n, channels, height, width]."""
        x = images.to(torch.float32).expand(-1, 3, -1, -1) * 2 - 1
        x = (x - _per_channel(SHIFT, x)) / _per_channel(SCALE, x)
        found = []
        for layer in range(LAYERS):
            if layer in POOLED_BEFORE:
                x = F.max_pool2d(x, 3, 2)
            kernel, offset = self.kernels[layer].to(x), self.offsets[layer].to(x)
            x = F.conv2d(x, kernel, offset, stride=STRIDES[layer], padding=PADDINGS[layer]).relu()
            found.append(x / (x.norm(dim=1, keepdim=True) + TINY))
        return found


def from_arrays(arrays: Mapping[str, Tensor]) -> Lpips:
    """The network of the arrays conv0_w, conv0_b, lin0, ... in this order of layers."""
    return Lpips(
        kernels=tuple(arrays[f"conv{layer}_w"] for layer in range(LAYERS)),
        offsets=tuple(arrays[f"conv{layer}_b"] for layer in range(LAYERS)),
        weights=tuple(arrays[f"lin{layer}"] for layer in range(LAYERS)),
    )


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse images (channels, height, width) that AlexNet cannot look at."""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST:
        return
    raise BadInput(
        "lpips",
        expected=f"grey or coloured images of at least {SMALLEST} pixels a side",
        got=f"images of shape {list(shape)}",
        remedy="Load the images larger (size = 32 in [data]), or leave lpips out.",
    )


def _per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).reshape(-1, 1, 1)


def _wrong(expected: str, got: Tensor) -> BadInput:
    remedy = "Give images as [n, channels, height, width], all of one size."
    return BadInput("guess", expected=expected, got=f"shape {list(got.shape)}", remedy=remedy)


def image_scores(
    guess: Tensor,
    truth: Tensor,
    *,
    recognised_above: float,
    others: Tensor | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> Scores:
    """Scores of guess [g, c, h, w] matched to truth [t, c, h, w]; retrieval is among others [m, c, h, w].

    `papers` adds the variants of those papers, as psnr_002; weights of `lpips` add that distance.
    """
    places = imaging.match(guess, truth)
    return from_records(image_records(guess, truth, places, recognised_above, others, papers, lpips))


def image_scores_by_index(
    guess: Tensor,
    truth: Tensor,
    *,
    recognised_above: float,
    others: Tensor | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> Scores:
    """The same scores with guess i compared with truth i; names end in _by_index."""
    if len(guess) != len(truth):
        remedy = "Match by content where the order or the number of originals is unknown."
        raise BadInput("guess", expected=f"{len(truth)} images", got=len(guess), remedy=remedy)
    places = torch.arange(len(truth), device=truth.device)
    records = image_records(guess, truth, places, recognised_above, others, papers, lpips)
    return from_records({f"{name}_by_index": values for name, values in records.items()})


def class_image_scores(guess: Tensor, labels: Tensor, truth: Tensor, classes: Tensor) -> Scores:
    """How alike the guess of each class [g, c, h, w], labels [g], is to true images [t, c, h, w] of classes [t].

    The rule: a guess is held against every true image of its class in turn, the mean counts; then the mean over the
    classes that have any. So more images of a class make no guess better, and one blurred mean is no original.
    """
    ssims, psnrs = [], []
    for image, label in zip(guess, labels, strict=True):
        wanted = truth[classes == label]
        if len(wanted):
            shown = image.expand_as(wanted)
            ssims.append(imaging.ssim(shown, wanted).double().mean())
            psnrs.append(imaging.psnr(shown, wanted).double().mean())
    if not ssims:
        return Scores(means={}, records={})
    means = {"class_ssim": float(torch.stack(ssims).mean()), "class_psnr": float(torch.stack(psnrs).mean())}
    return Scores(means=means, records={})


def image_records(
    guess: Tensor,
    truth: Tensor,
    places: Tensor,
    recognised_above: float,
    others: Tensor | None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
) -> dict[str, Tensor]:
    """Every metric for each truth, places [t] being its guess or -1; retrieval only if there are others."""
    given = places >= 0
    chosen, wanted = guess[places[given]], truth[given]
    psnr = imaging.psnr(chosen, wanted)
    records = {
        "psnr": _spread(psnr, given, float("nan")),
        "ssim": _spread(imaging.ssim(chosen, wanted), given, float("nan")),
        "mse": _spread(imaging.mse(chosen, wanted), given, float("nan")),
        "rec": _spread((psnr > recognised_above).to(psnr.dtype), given, 0.0),
    }
    if others is not None and len(others):
        found = imaging.retrieved(chosen, wanted, others)
        records["retrieval"] = _spread(found.to(psnr.dtype), given, 0.0)
    if lpips is not None:
        records["lpips"] = _spread(lpips.distance(chosen, wanted), given, float("nan"))
    for paper in papers:
        for name, measure in variants(paper).items():
            records[name] = _spread(measure(chosen, wanted), given, float("nan"))
    return records


def _spread(values: Tensor, given: Tensor, missing: float) -> Tensor:
    full = torch.full(given.shape, missing, dtype=values.dtype, device=values.device)
    return full.masked_scatter(given, values)
