"""Updates of images with a little noise, beside that of the images themselves: how steep the loss of a match is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedxray.audit.plan import make_plan
from fedxray.audit.prepare import prepare
from fedxray.federation.local import in_train_mode
from fedxray.federation.round_loop import Federation
from fedxray.losses import example_loss
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork


def prepared(plan: Mapping[str, Any], seed: int) -> Federation:
    """The federation of a plan in plain values."""
    return prepare(make_plan({"format": 1, "name": "awa-landscape", **plan}, Path()), "none", seed).federation


def distances(federation: Federation, client: int, seed: int, noises: Sequence[float]) -> dict[float, float]:
    """The squared distance of the noisy images' gradient from the true one, for every size of noise."""
    space, records = federation.space, federation.clients[client]
    pixels = space.to_pixels(records.x)
    source = fork(seed, "landscape", client)
    drawn = torch.randn(pixels.shape, generator=source, device="cpu").to(pixels)
    true = _gradient(federation, records.x, records.y)
    size = sum(float(value.square().sum()) for value in true.values())
    found = {}
    for noise in noises:
        near = space.from_pixels((pixels + noise * drawn).clamp(0, 1))
        apart = _gradient(federation, near, records.y)
        found[noise] = sum(float((apart[name] - true[name]).square().sum()) for name in true) / size
    return found


def _gradient(federation: Federation, x: Tensor, y: Tensor) -> Mapping[str, Tensor]:
    """Of the mean loss, in the mode that clients train in."""
    network = in_train_mode(federation.model)
    params = {name: value.detach().requires_grad_() for name, value in parameters_of(network).items()}
    fresh = {name: value.clone() for name, value in buffers_of(network).items()}
    outputs = functional_call(network, {**params, **fresh}, (x,))
    loss = example_loss(federation.recipe.loss)(outputs, y).mean()
    return dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))
