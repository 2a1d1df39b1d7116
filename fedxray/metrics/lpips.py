"""LPIPS (Zhang et al. 2018), AlexNet, version 0.1: how far apart two images look to a network; pixels in 0..1.

    1. Both images go through the five convolutions of AlexNet, scaled as it was trained.
    2. The features of every place are divided by their length.
    3. Squared differences are weighed per channel, averaged over places and summed over the five layers.

Only the real weights are used: nothing else may be called LPIPS. Pixels are not clipped; grey images count as red,
green and blue alike. Features are never negative, so no distance exceeds twice the largest weight of every layer:
a guess that is not finite counts as that far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedxray.errors import BadInput

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
