"""Averaging over square blocks as a linear map, in the coordinates in which it is diagonal.

Inside a block of scale x scale pixels an orthonormal cosine basis is used. Its first vector is constant: the block's
mean is 1 / scale times that coordinate, the one singular value; all others are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedxray.errors import BadInput


@dataclass(frozen=True)
class Blocks:
    """Square blocks of some pixels a side."""

    scale: int

    def check(self, shape: Sequence[int]) -> None:
        """Refuse images of a shape [..., h, w] that does not divide into blocks."""
        height, width = shape[-2:]
        if height % self.scale or width % self.scale:
            raise BadInput(
                "scale",
                expected=f"a number that divides {height} and {width}",
                got=self.scale,
                remedy="Try 1, 2 or 4.",
            )

    def means(self, images: Tensor) -> Tensor:
        """Mean of every block of images [n, c, h, w]; shape [n, c, h / scale, w / scale]."""
        return F.avg_pool2d(images, self.scale) if self.scale > 1 else images

    def coordinate(self, means: Tensor) -> Tensor:
        """The first coordinate of blocks with these means, shape kept."""
        return self.scale * means

    def spread(self, spread: float) -> float:
        """The spread of the first coordinate where means have this one."""
        return self.scale * spread

    def empty(self, means: Tensor) -> Tensor:
        """Room for all coordinates of these blocks, [n, c, h / scale, w / scale, scale^2]."""
        return means.new_zeros((*means.shape, self.scale**2))

    def split(self, images: Tensor) -> Tensor:
        """Coordinates of images [n, c, h, w]; shape [n, c, h / scale, w / scale, scale^2]."""
        s = self.scale
        n, c, h, w = images.shape
        blocks = images.reshape(n, c, h // s, s, w // s, s).permute(0, 1, 2, 4, 3, 5)
        return blocks.reshape(n, c, h // s, w // s, s * s) @ self._basis(images).T

    def join(self, coordinates: Tensor) -> Tensor:
        """Images of coordinates, the inverse of split."""
        s = self.scale
        n, c, h, w, _ = coordinates.shape
        blocks = (coordinates @ self._basis(coordinates)).reshape(n, c, h, w, s, s)
        return blocks.permute(0, 1, 2, 4, 3, 5).reshape(n, c, h * s, w * s)

    def _basis(self, like: Tensor) -> Tensor:
        """Orthonormal rows [scale^2, scale^2], the first constant."""
        s = self.scale
        place = torch.arange(s, dtype=like.dtype, device=like.device)
        waves = torch.cos(math.pi * place[:, None] * (2 * place[None] + 1) / (2 * s))
        waves = waves / waves.norm(dim=1, keepdim=True)
        return torch.einsum("ai,bj->abij", waves, waves).reshape(s * s, s * s)
