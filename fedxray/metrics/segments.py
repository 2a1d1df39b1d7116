"""Which entries of an input belong together when it is explained: a column of a table, a patch of an image.

Tables: all entries that encode one column. Images: superpixels by quickshift with the settings of Zest and LIME
where scikit-image is installed (the extra `images`), else squares of a grid; a picture in which quickshift finds
fewer than four superpixels (a very small one) gets the grid too.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from fedxray.data.space import Space
from fedxray.errors import missing_extra, unknown_name

Cut = Literal["auto", "quickshift", "grid"]
CUTS = ("auto", "quickshift", "grid")
GRID = 8  # squares along each side of an image
FEWEST = 4  # superpixels


def segments_of(x: Tensor, space: Space, cut: Cut = "auto") -> Tensor:
    """The number of the segment that each entry of x [n, *shape] is in, counted from 0; int64, same shape."""
    if cut not in CUTS:
        raise unknown_name("cut", cut, CUTS)
    if space.kind == "table":
        return by_column(space, x.device).expand(x.shape)
    grid = squares(space, x.device)
    if cut == "grid" or (cut == "auto" and find_spec("skimage") is None):
        return grid.expand(x.shape)
    found = superpixels(space.to_pixels(x))[:, None].expand(x.shape)
    enough = found.flatten(1).amax(1) + 1 >= FEWEST
    return torch.where(enough.reshape(-1, 1, 1, 1), found, grid)


def by_column(space: Space, device: torch.device) -> Tensor:
    """The column of every entry of a table, shape [entries]; entries of no column stand alone."""
    (entries,) = space.shape
    found = torch.arange(entries, dtype=torch.int64, device=device)
    for column in space.columns:
        found[list(column.positions)] = min(column.positions)
    numbered: Tensor = torch.unique(found, return_inverse=True)[1]
    return numbered


def squares(space: Space, device: torch.device) -> Tensor:
    """A grid of at most 8 x 8 equal squares over an image, the same in every channel, shape [c, h, w]."""
    _, height, width = space.shape
    sides = [
        torch.arange(side, dtype=torch.int64, device=device) * min(GRID, side) // side
        for side in (height, width)
    ]
    return (sides[0][:, None] * min(GRID, width) + sides[1]).expand(space.shape)


def superpixels(pixels: Tensor) -> Tensor:
    """Quickshift superpixels of images [n, c, h, w] in 0..1, shape [n, h, w]; needs scikit-image."""
    if find_spec("skimage") is None:
        raise missing_extra("cut", "scikit-image (for quickshift)", "images", 'use cut = "grid"')
    import numpy as np
    from skimage.segmentation import quickshift

    shown = pixels.detach().cpu().double().clamp(0, 1)
    colours = shown if shown.shape[1] == 3 else shown.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    found = [
        quickshift(image, kernel_size=4, max_dist=200, ratio=0.2, rng=0)
        for image in colours.permute(0, 2, 3, 1).numpy()
    ]
    return torch.from_numpy(np.stack(found).astype(np.int64)).to(pixels.device)
