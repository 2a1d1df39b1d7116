"""Small networks for priors: a U-Net and a transformer of the `diffusers` library, and a residual restorer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.errors import BadInput, missing_extra

LEVELS = 1000
GROUPS = 8


def diffusers_library() -> Any:
    """Import the module `diffusers` late; refuse with a remedy where it is not installed."""
    try:
        import diffusers
    except ModuleNotFoundError as error:
        if error.name != "diffusers":
            raise
        raise missing_extra("restore", "the package diffusers", "diffusion") from error
    return diffusers


def unet(shape: tuple[int, int, int], classes: int, width: int) -> Any:
    """Return a U-Net on images of this shape; class number `classes` stands for no class."""
    channels, height, side = shape
    halved = 2 if height % 4 == 0 and side % 4 == 0 else 1 if height % 2 == 0 and side % 2 == 0 else 0
    widths = (width, 2 * width, 2 * width)[: halved + 1]
    return diffusers_library().UNet2DModel(
        sample_size=(height, side),
        in_channels=channels,
        out_channels=channels,
        block_out_channels=widths,
        down_block_types=("DownBlock2D",) * len(widths),
        up_block_types=("UpBlock2D",) * len(widths),
        layers_per_block=1,
        norm_num_groups=GROUPS,
        add_attention=False,
        num_class_embeds=classes + 1,
    )


def transformer(shape: tuple[int, int, int], classes: int, width: int) -> Any:
    """Return a diffusion transformer on square images; class number `classes` stands for no class."""
    channels, height, side = shape
    if height != side:
        raise BadInput("kind", expected="square images for a dit", got=f"{height} x {side}", remedy="Use ddpm.")
    patch = next(size for size in (4, 2, 1) if height % size == 0)
    return diffusers_library().DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=width,
        in_channels=channels,
        out_channels=channels,
        num_layers=4,
        sample_size=height,
        patch_size=patch,
        num_embeds_ada_norm=classes,
    )


class ResidualRestorer(nn.Module):
    """A residual network of consecutive convolutions on raw images [n, c, h, w] in -1..1."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        nn.Module.__init__(self)
        sizes = [channels, *([width] * depth), channels]
        self.layers = nn.ModuleList(nn.Conv2d(*pair, 3, padding=1) for pair in itertools.pairwise(sizes))
        nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].bias)  # type: ignore[arg-type]

    def forward(self, raw: Tensor) -> Tensor:
        """Return the restored image."""
        x = raw
        for place, layer in enumerate(self.layers):
            x = layer(torch.relu(x) if place else x)
        return raw + x


def patch_critic(channels: int, width: int) -> nn.Sequential:
    """Return a network that scores how real each patch of an image [n, c, h, w] looks, [n, 1, h / 4, w / 4]."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 3, 1, 1),
    )


def restorer_of(settings: Mapping[str, Any]) -> ResidualRestorer:
    """Return the residual restorer that a card describes."""
    return ResidualRestorer(int(settings["channels"]), int(settings["width"]), int(settings["depth"]))
