"""Images as smaller pictures that are enlarged inside the loop: fewer unknowns, and smooth ones.

The latent picture holds pixels (0..1) at a half or a quarter of the resolution; bicubic up-sampling makes the guess,
and the gradient flows back through it (Yue et al. 2023, paper 004). A factor of 1 is no latent at all.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.priors import clip
from fedxray.seeds import fork, uniform_like

LARGEST_FACTOR = 16


def enlarged(latent: Tensor, space: Space) -> Tensor:
    """The guess behind a latent picture [n, c, h / factor, w / factor] as the model gets it, [n, *space.shape]."""
    size = list(space.shape[1:])
    if list(latent.shape[2:]) == size:
        return space.from_pixels(latent)
    return space.from_pixels(functional.interpolate(latent, size=size, mode="bicubic", align_corners=False))


def valid(latent: Tensor, space: Space) -> Tensor:
    """The same guess with every pixel brought back into its range."""
    low, high = space.bounds(latent)
    return clip(enlarged(latent, space), low, high)


def latent_starts(
    view: View, like: Tensor, labels: Tensor, context: Context, restarts: int, factor: int
) -> list[dict[str, Tensor]]:
    """One start per restart for images of these labels [n]: every pixel of the latent picture evenly from 0 to 1.

    Whatever its settings the attack starts alike, so that a search compares what is assumed and not starts. They go
    by label and not by place: whoever has the same labels in another order starts from the same pictures.
    """
    channels, height, width = view.space.shape
    shape = (len(labels), channels, -(-height // factor), -(-width // factor))
    blank = torch.empty(shape, dtype=like.dtype, device=like.device)
    place_of = labels.argsort(stable=True).argsort().to(like.device)
    return [
        {"latent": uniform_like(blank, fork(context.root, "latent start", place))[place_of]}
        for place in range(restarts)
    ]


def check_factor(factor: object) -> None:
    """Refuse a factor that is no whole number from 1 to 16."""
    if isinstance(factor, bool) or not isinstance(factor, int) or not 1 <= factor <= LARGEST_FACTOR:
        raise BadInput(
            "latent",
            expected=f"a whole number from 1 (no latent) to {LARGEST_FACTOR}",
            got=repr(factor),
            remedy="Try 2, or 4 for images of 128 pixels.",
        )
