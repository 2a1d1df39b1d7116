"""Distances between the updates of true images and of images with a little noise: the landscape a match descends on.

The measurement of `awa-landscape` (Song et al. 2023); apart from its description because it needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedxray.audit.plan import make_plan
from fedxray.audit.run.dry_run import loss_on
from fedxray.audit.run.prepare import prepare
from fedxray.federation.local import in_train_mode
from fedxray.federation.setting import Federation
from fedxray.params import norm, parameters_of, subtract
from fedxray.seeds import fork
from fedxray.theory import gradient


def prepared(plan: Mapping[str, Any], seed: int) -> Federation:
    """Return the federation of a plan in plain values."""
    return prepare(make_plan({"format": 1, "name": "awa-landscape", **plan}, Path()), "none", seed).federation


def distances(federation: Federation, client: int, seed: int, noises: Sequence[float]) -> dict[float, float]:
    """Return the relative squared distance of the noisy images' gradient from the true one, by size of noise."""
    space, records = federation.space, federation.clients[client]
    pixels = space.to_pixels(records.x)  # (images, channels, height, width) in 0..1
    source = fork(seed, "landscape", client)
    # one direction for all sizes of noise, drawn on the CPU so that devices agree
    direction = torch.randn(pixels.shape, generator=source, device="cpu").to(pixels)
    network = in_train_mode(federation.model)
    start = parameters_of(network)

    def gradient_of(x: Tensor) -> dict[str, Tensor]:
        noisy = replace(records, x=x)
        return gradient(partial(loss_on, network, federation.recipe.loss, noisy), start)

    true = gradient_of(records.x)
    near = {noise: space.from_pixels((pixels + noise * direction).clamp(0, 1)) for noise in noises}
    return {noise: float(norm(subtract(gradient_of(x), true)) / norm(true)) ** 2 for noise, x in near.items()}
