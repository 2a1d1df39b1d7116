"""The model a client would reach by training alone: what a reconstructed local model is compared with."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from fedxray.federation.local import Batch, objective
from fedxray.federation.truth import Truth
from fedxray.params import Params, buffers_of, parameters_of

STEPS = 1500
RATE = 0.01
DECAYS = 0.9, 0.999


@functools.lru_cache(maxsize=64)
def local_optimum(truth: Truth, client: int, *, steps: int = STEPS) -> dict[str, Tensor]:
    """The parameters of least training loss met by full-batch Adam from the run's first model."""
    records, evaluate = truth.train[client], objective(truth.model, truth.recipe.loss)
    batch = Batch(x=records.x, y=records.y)
    params, buffers = parameters_of(truth.model), buffers_of(truth.model)
    first = {name: torch.zeros_like(value) for name, value in params.items()}
    second = {name: torch.zeros_like(value) for name, value in params.items()}
    best, least = params, float("inf")
    for step in range(1, steps + 1):
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        loss, _ = evaluate(leaves, buffers, batch)
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        if float(loss.detach()) < least:
            best, least = params, float(loss.detach())
        params = _adam(params, dict(zip(leaves, found, strict=True)), first, second, step)
    return best


def _adam(
    params: Params, gradient: Params, first: dict[str, Tensor], second: dict[str, Tensor], step: int
) -> dict[str, Tensor]:
    """One step of Adam; the moments are written in place."""
    stepped = {}
    for name, value in params.items():
        first[name] = DECAYS[0] * first[name] + (1 - DECAYS[0]) * gradient[name]
        second[name] = DECAYS[1] * second[name] + (1 - DECAYS[1]) * gradient[name] ** 2
        mean, spread = first[name] / (1 - DECAYS[0] ** step), second[name] / (1 - DECAYS[1] ** step)
        stepped[name] = value.detach() - RATE * mean / (spread.sqrt() + 1e-8)
    return stepped
