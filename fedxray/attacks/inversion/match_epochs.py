"""MatchEpoch (Data Leakage in Federated Averaging, 4.4): the same images, found once per epoch, become one set."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from fedxray import imaging
from fedxray.data.space import Space
from fedxray.errors import unknown_name

Average = Literal["matched", "plain", "none"]


def averaged(x: Tensor, space: Space, average: Average = "matched") -> Tensor:
    """One set of images out of one per epoch, x [epochs, n, c, h, w]; shape [n, c, h, w].

    The mean after matching; or without matching; or the first epoch's images as they are.
    """
    if average == "none" or len(x) == 1:
        return x[0]
    return (reordered(x, matched_to_first(space.to_pixels(x))) if average == "matched" else x).mean(0)


def check_average(average: str) -> None:
    """Refuse a way that is not there."""
    if average not in get_args(Average):
        raise unknown_name("average", average, get_args(Average))


def matched_to_first(pixels: Tensor) -> Tensor:
    """For every epoch of pixels [epochs, n, c, h, w] the image that belongs to each of the first; [epochs, n].

    One to one, with the largest total PSNR.
    """
    return torch.stack([imaging.match(epoch, pixels[0]) for epoch in pixels])


def reordered(x: Tensor, places: Tensor) -> Tensor:
    """Each epoch of x [epochs, n, ...] in the order that places [epochs, n] give; shape kept."""
    return torch.stack([epoch[order] for epoch, order in zip(x, places, strict=True)])
