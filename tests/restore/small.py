"""Small priors for tests: images without any file, networks that train in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fedxray.restore.training import Images, Training, train_prior
from fedxray.seeds import fork


def stripes(count: int = 24, side: int = 8, channels: int = 1, seed: int = 0) -> Images:
    """Two classes, lying and standing stripes of random strength."""
    draw = fork(seed, "stripes")
    labels = torch.arange(count) % 2
    wave = (torch.arange(side) % 2).float()
    lying = wave[:, None].expand(side, side)
    patterns = torch.stack([lying, lying.T])[labels]
    strength = 0.3 + 0.5 * torch.rand((count, 1, 1), generator=draw)
    pixels = 0.1 + strength * patterns + 0.05 * torch.rand((count, side, side), generator=draw)
    return Images(
        pixels=pixels[:, None].expand(-1, channels, -1, -1).contiguous(),
        labels=labels,
        classes=("lying", "standing"),
        source="stripes",
    )


def trained(folder: Path, images: Images | None = None, **settings: Any) -> Path:
    """A prior of a few steps in a folder."""
    training = Training(**{"kind": "ddpm", "steps": 2, "batch": 4, "width": 8, **settings})
    return train_prior(stripes() if images is None else images, training, folder)
