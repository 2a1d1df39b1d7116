"""Scores of reconstructed images: psnr, ssim, mse, rec, retrieval and optionally lpips, on pixels in 0..1.

Each original is compared with its guess in the optimal matching. With fewer guesses than originals the rest have no
psnr, ssim and mse, and count as misses in rec and retrieval. Variants of papers have names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedxray import imaging
from fedxray.errors import BadInput, unknown_name
from fedxray.metrics.records import Scores, from_records


def image_scores(
    guess: Tensor,
    truth: Tensor,
    *,
    recognised_above: float,
    others: Tensor | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
    by_index: bool = False,
) -> Scores:
    """Scores of guess [g, c, h, w] matched to truth [t, c, h, w]; retrieval is among others [m, c, h, w].

    `recognised_above` is the PSNR threshold of `rec`; `papers` adds the variants of those papers ("awa": psnr_awa);
    `lpips` adds that distance. With `by_index` guess i is compared with truth i, and names end in _by_index.
    """
    if by_index and len(guess) != len(truth):
        remedy = "Match by content where the order or the number of originals is unknown."
        raise BadInput("guess", expected=f"{len(truth)} images", got=len(guess), remedy=remedy)
    places = torch.arange(len(truth), device=truth.device) if by_index else imaging.match(guess, truth)
    given = places >= 0  # places [t] are the indices of their guesses, -1 for none
    chosen, wanted = guess[places[given]], truth[given]
    psnr = imaging.psnr(chosen, wanted)
    records = {
        "psnr": _spread(psnr, given, float("nan")),
        "ssim": _spread(imaging.ssim(chosen, wanted), given, float("nan")),
        "mse": _spread(imaging.mse(chosen, wanted), given, float("nan")),
        "rec": _spread((psnr > recognised_above).to(psnr.dtype), given, 0.0),
    }
    if others is not None and len(others):
        records["retrieval"] = _spread(imaging.retrieved(chosen, wanted, others).to(psnr.dtype), given, 0.0)
    if lpips is not None:
        records["lpips"] = _spread(lpips.distance(chosen, wanted), given, float("nan"))
    for paper in papers:
        for name, measure in variants(paper).items():
            records[name] = _spread(measure(chosen, wanted), given, float("nan"))
    named = {f"{name}_by_index" if by_index else name: values for name, values in records.items()}
    return from_records(named, places)


def image_closeness(guess: Tensor, pool: Tensor) -> Tensor:
    """PSNR of every image of a pool [t, c, h, w] with its nearest guess [g, c, h, w]; shape [t]."""
    return imaging.pairwise_psnr(guess, pool).amax(0)


def class_image_closeness(guess: Tensor, pool: Tensor, *, labels: Tensor, classes: Tensor) -> Tensor:
    """PSNR of every image of a pool, of classes [t], with the guess of its class, labels [g]; the lowest for none."""
    psnr = imaging.pairwise_psnr(guess, pool)  # [g, t]
    return psnr.masked_fill(labels[:, None] != classes[None], -imaging.PSNR_CAP).amax(0)


def class_image_scores(
    guess: Tensor, labels: Tensor, truth: Tensor, classes: Tensor, everyone: tuple[Tensor, Tensor]
) -> Scores:
    """Similarity of one guess per class [g, c, h, w], labels [g], to the true images [t, c, h, w] of classes [t].

    A guess is compared with every true image of its class and the mean is taken, then the mean over the classes that
    have any. So more images of a class do not improve a guess, and a blurred mean is not scored as an original. The
    share of them that show their class is judged by the images of `everyone` [e, c, h, w] and their classes [e].
    """
    ssims, psnrs, hits = [], [], []
    seen = nearest_class(guess, *everyone)
    for image, label, shown in zip(guess, labels, seen, strict=True):
        wanted = truth[classes == label]
        if len(wanted):
            repeated = image.expand_as(wanted)
            ssims.append(imaging.ssim(repeated, wanted).double().mean())
            psnrs.append(imaging.psnr(repeated, wanted).double().mean())
            hits.append((shown == label).double())
    if not ssims:
        return Scores(means={}, records={})
    columns = {"class_ssim": ssims, "class_psnr": psnrs, "class_recognised": hits}
    return Scores(means={name: float(torch.stack(values).mean()) for name, values in columns.items()}, records={})


NEIGHBOURS = 5


def nearest_class(images: Tensor, known: Tensor, classes: Tensor) -> Tensor:
    """Return the class of most of the nearest known images [k, c, h, w], classes [k], for each image [n, c, h, w].

    Of classes with equally many the one with the nearest image wins. It is -1 where an image is not finite.
    """
    order = torch.cdist(images.flatten(1), known.flatten(1)).argsort(dim=1, stable=True)[:, :NEIGHBOURS]
    near = classes[order]  # [n, neighbours], the nearest first
    votes = (near[:, :, None] == near[:, None, :]).sum(2)
    shown = near.gather(1, votes.argmax(1, keepdim=True))[:, 0]  # the first of several largest
    return torch.where(torch.isfinite(images.flatten(1)).all(1), shown, -1)


def _spread(values: Tensor, given: Tensor, missing: float) -> Tensor:
    """Values [matched] at the true entries of `given` [t], `missing` elsewhere; shape [t]."""
    full = torch.full(given.shape, missing, dtype=values.dtype, device=values.device)
    return full.masked_scatter(given, values)


# PSNR and SSIM as two papers compute them; pixels in 0..1, [n, channels, height, width]
#
#   psnr_awa  Song et al. 2023: the peak is the largest value of the original, not 1
#   ssim_awa  Song et al. 2023: the formula once over the whole image, per channel, then the mean; range 1
#   psnr_curious  curious client (2024): both images as whole numbers from 0 to 255, peak 255
#   ssim_curious  curious client (2024): the formula once over the whole image from 0 to 255, unclipped, on Y, Cr and Cb
#             with weights 0.8, 0.1 and 0.1; a grey image has Y alone
#
# Both papers compare images by index; here they are compared as the caller pairs them.

DARKEST = 1e-10  # least peak of an original that is all black


def psnr_awa(guess: Tensor, truth: Tensor) -> Tensor:
    """Signal-to-noise ratio in dB with the largest value of the original as peak; shape [n]."""
    peak = truth.flatten(1).amax(1).clamp(min=DARKEST)
    return (imaging.psnr(guess, truth) + 20 * torch.log10(peak)).clamp(-imaging.PSNR_CAP, imaging.PSNR_CAP)


def ssim_awa(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity over one window that is the whole image, mean over channels; shape [n]."""
    return _whole_image(guess, truth, scale=1.0).mean(1)


def psnr_curious(guess: Tensor, truth: Tensor) -> Tensor:
    """Signal-to-noise ratio in dB of images rounded to whole numbers from 0 to 255; shape [n]."""
    rounded = ((image * 255).round().clamp(0, 255) / 255 for image in (guess, truth))
    return imaging.psnr(*rounded)


def ssim_curious(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity over the whole image of luminance and colour, weighted; shape [n]."""
    if guess.shape[1] != 3:
        return _whole_image(guess * 255, truth * 255, scale=255.0).mean(1)
    parts = _whole_image(_luminance_and_colour(guess), _luminance_and_colour(truth), scale=255.0)
    return 0.8 * parts[:, 0] + 0.1 * parts[:, 1] + 0.1 * parts[:, 2]


VARIANTS: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "awa": {"psnr_awa": psnr_awa, "ssim_awa": ssim_awa},
    "curious": {"psnr_curious": psnr_curious, "ssim_curious": ssim_curious},
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


# LPIPS (Zhang et al. 2018), AlexNet, version 0.1: distance of two images in the features of a network; pixels in 0..1
#
#     1. Both images pass through the five convolutions of AlexNet, scaled as in its training.
#     2. The features at every position are divided by their norm.
#     3. Squared differences are weighted per channel, averaged over positions and summed over the five layers.
#
# Only the published weights are used: nothing else may be called LPIPS. Pixels are not clipped; grey images are used as
# red, green and blue. Features are never negative, so no distance exceeds twice the largest weight of every layer: a
# guess that is not finite gets that distance.

LAYERS = 5
SMALLEST = 31  # pixels a side, so that AlexNet's two poolings leave at least one position
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of images in -1..1
STRIDES, PADDINGS, POOLED_BEFORE = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (1, 2)
TINY = 1e-10
AT_ONCE = 64  # images in one pass, to bound memory


@dataclass(frozen=True, kw_only=True)
class Lpips:
    """LPIPS by its weights: convolutions, their offsets, and the weight of every channel."""

    kernels: tuple[Tensor, ...]  # [out, in, height, width]
    offsets: tuple[Tensor, ...]  # [out]
    weights: tuple[Tensor, ...]  # [out], none negative

    @property
    def worst(self) -> float:
        """The upper bound of all distances."""
        return float(sum(2 * weights.max() for weights in self.weights))

    def distance(self, guess: Tensor, truth: Tensor) -> Tensor:
        """The distance of each guess to its truth, both [n, 1 or 3, height, width]; shape [n]."""
        if guess.shape != truth.shape:
            got, remedy = f"shape {list(guess.shape)}", "Give images as [n, channels, height, width], all of one size."
            raise BadInput("guess", expected=f"shape {list(truth.shape)}", got=got, remedy=remedy)
        check_shape(tuple(truth.shape[1:]))
        pairs = zip(guess.split(AT_ONCE), truth.split(AT_ONCE), strict=True)
        return torch.cat([self._distance(*pair) for pair in pairs] or [guess.new_zeros(0)])

    def _distance(self, guess: Tensor, truth: Tensor) -> Tensor:
        """The distances [n] of one chunk of images."""
        with torch.no_grad():
            total = guess.new_zeros(len(guess), dtype=torch.float32)
            pairs = zip(self._features(guess), self._features(truth), strict=True)
            for (left, right), weights in zip(pairs, self.weights, strict=True):
                weighted = (left - right) ** 2 * weights.to(left).reshape(-1, 1, 1)  # [n, channels, height, width]
                total = total + weighted.sum(1).mean((1, 2))
        invalid = ~torch.isfinite(guess.flatten(1)).all(1) | ~torch.isfinite(total)
        return total.masked_fill(invalid, self.worst).to(guess.dtype)

    def _features(self, images: Tensor) -> list[Tensor]:
        """Normalised features after every convolution, each [n, channels, height, width]."""
        x = images.to(torch.float32).expand(-1, 3, -1, -1) * 2 - 1
        x = (x - _per_channel(SHIFT, x)) / _per_channel(SCALE, x)
        features = []
        for layer in range(LAYERS):
            if layer in POOLED_BEFORE:
                x = F.max_pool2d(x, 3, 2)
            kernel, offset = self.kernels[layer].to(x), self.offsets[layer].to(x)
            x = F.conv2d(x, kernel, offset, stride=STRIDES[layer], padding=PADDINGS[layer]).relu()
            features.append(x / (x.norm(dim=1, keepdim=True) + TINY))
        return features


def from_arrays(arrays: Mapping[str, Tensor]) -> Lpips:
    """LPIPS from the arrays conv0_w, conv0_b, lin0, conv1_w, ..., one triple per layer."""
    return Lpips(
        kernels=tuple(arrays[f"conv{layer}_w"] for layer in range(LAYERS)),
        offsets=tuple(arrays[f"conv{layer}_b"] for layer in range(LAYERS)),
        weights=tuple(arrays[f"lin{layer}"] for layer in range(LAYERS)),
    )


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse images of a shape (channels, height, width) that AlexNet cannot use."""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST:
        return
    expected = f"grey or coloured images of at least {SMALLEST} pixels a side"
    remedy = "Load the images larger (size = 32 in [data]), or leave lpips out."
    raise BadInput("lpips", expected=expected, got=f"images of shape {list(shape)}", remedy=remedy)


def _per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).reshape(-1, 1, 1)
