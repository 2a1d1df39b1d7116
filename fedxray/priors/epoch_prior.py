"""The epoch-order-invariant prior (Data Leakage in Federated Averaging, 4.3): every epoch saw the same images.

A summary that does not depend on the order of the images is taken of each epoch, and the summaries are compared
pair by pair. Eight choices: mean or maximum over images, of pixels or of a fixed random convolution, squared or
absolute differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.models.starting import STD_OF_TRUNCATED_NORMAL

Distance = Literal["l1", "l2"]
Summary = Literal["mean", "max"]
_DISTANCES: tuple[Distance, ...] = ("l1", "l2")
_SUMMARIES: tuple[Summary, ...] = ("mean", "max")
FEATURES = 96  # channels of the random convolution


@dataclass(frozen=True, kw_only=True)
class EpochPrior:
    """One of the eight choices."""

    distance: Distance
    summary: Summary
    convolved: bool

    def __call__(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """How far apart the epochs' summaries are, x [epochs, images, c, h, w]; scalar.

        Mean over all ordered pairs of epochs, an epoch with itself included, and over entries.
        """
        spread = _squared_apart if self.distance == "l2" else _apart
        return spread(self.summaries(x, kernel))

    def summaries(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """One summary per epoch, shape [epochs, c or features, h, w]."""
        if not self.convolved:
            return x.mean(1) if self.summary == "mean" else x.amax(1)
        assert kernel is not None
        if self.summary == "mean":  # a convolution is linear: that of the mean is the mean of all
            return functional.conv2d(x.mean(1), kernel, padding="same")
        every: Tensor = functional.conv2d(x.flatten(0, 1), kernel, padding="same")
        return every.reshape(*x.shape[:2], *every.shape[1:]).amax(1)


EPOCH_PRIORS: dict[str, EpochPrior] = {
    f"{distance}-{summary}{'-conv' if convolved else ''}": EpochPrior(
        distance=distance, summary=summary, convolved=convolved
    )
    for distance in _DISTANCES
    for summary in _SUMMARIES
    for convolved in (False, True)
}


def random_kernel(like: Tensor, generator: torch.Generator) -> Tensor:
    """A convolution 3 x 3 of lecun-normal draws for images like [..., c, h, w]; shape [96, c, 3, 3]."""
    channels = like.shape[-3]
    blank = torch.empty((FEATURES, channels, 3, 3), dtype=torch.float32, device="cpu")
    deviation = (9 * channels) ** -0.5 / STD_OF_TRUNCATED_NORMAL
    drawn = torch.nn.init.trunc_normal_(
        blank, std=deviation, a=-2 * deviation, b=2 * deviation, generator=generator
    )
    return drawn.to(device=like.device, dtype=like.dtype)


def _squared_apart(summaries: Tensor) -> Tensor:
    """Mean over all pairs of the squared difference: twice the variance over epochs."""
    return 2 * ((summaries - summaries.mean(0)) ** 2).mean()


def _apart(summaries: Tensor) -> Tensor:
    """Mean over all pairs of the absolute difference, by sorting: the k-th lowest is above k and below the rest."""
    epochs = len(summaries)
    ranks = 2 * torch.arange(epochs, dtype=summaries.dtype, device=summaries.device) - (epochs - 1)
    lowest_first = summaries.flatten(1).sort(0).values
    return 2 * (ranks[:, None] * lowest_first).sum(0).mean() / epochs**2
