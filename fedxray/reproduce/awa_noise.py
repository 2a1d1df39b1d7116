"""Updates of images with a little noise, beside that of the images themselves: how steep the loss of a match is."""

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
    """The federation of a plan in plain values."""
    return prepare(make_plan({"format": 1, "name": "awa-landscape", **plan}, Path()), "none", seed).federation


def distances(federation: Federation, client: int, seed: int, noises: Sequence[float]) -> dict[float, float]:
    """The squared distance of the noisy images' gradient from the true one, for every size of noise."""
    space, records = federation.space, federation.clients[client]
    pixels = space.to_pixels(records.x)
    source = fork(seed, "landscape", client)
    drawn = torch.randn(pixels.shape, generator=source, device="cpu").to(pixels)
    network = in_train_mode(federation.model)
    start = parameters_of(network)

    def slope(x: Tensor) -> dict[str, Tensor]:
        shown = replace(records, x=x)
        return gradient(partial(loss_on, network, federation.recipe.loss, shown), start)

    true = slope(records.x)
    near = {noise: space.from_pixels((pixels + noise * drawn).clamp(0, 1)) for noise in noises}
    return {noise: float(norm(subtract(slope(x), true)) / norm(true)) ** 2 for noise, x in near.items()}
