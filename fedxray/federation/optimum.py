"""The model a client would reach by training alone: what a reconstructed local model is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.federation.train_alone import train_alone
from fedxray.federation.truth import Truth
from fedxray.params import Params, buffers_of, parameters_of
from fedxray.seeds import derive_seed, fork, permutation

STEPS = 600
RATES = (0.01, 0.1, 1.0, 10.0)  # large ones serve targets in dollars
MOST_HELD = 64


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Parameters of least training loss, and the running statistics that go with them."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]


_found: dict[int, Optimum] = {}  # the last few, by content: no defence changes a client's optimum


def local_optimum(truth: Truth, client: int, *, other_seed: bool = False) -> Optimum:
    """The least training loss met by full-batch Adam from the run's first model, or from one of another seed."""
    records, start, buffers = truth.train[client], parameters_of(truth.model), buffers_of(truth.model)
    name = "local optimum of another seed" if other_seed else "local optimum"
    network = (repr(truth.model), truth.recipe.loss, start, buffers)
    key = derive_seed(0, name, *network, records.x, records.y, truth.seed, client)
    if key not in _found:
        generator = fork(truth.seed, name, client)
        alone = train_alone(
            truth.model,
            truth.recipe.loss,
            records,
            shuffled(start, generator) if other_seed else start,
            buffers,
            steps=STEPS,
            rates=RATES,
            generator=generator,
        )
        while len(_found) >= MOST_HELD:
            _found.pop(next(iter(_found)))
        _found[key] = Optimum(params=alone.outcome.best, buffers=alone.buffers)
    return _found[key]


def shuffled(start: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """A first model as another seed might have drawn it: the entries of every tensor in another order.

    First weights of a layer are independent draws of one distribution, so their order is all that a seed decides.
    """
    return {
        name: value.flatten()[permutation(value.numel(), fork(generator, name)).to(value.device)].reshape(
            value.shape
        )
        for name, value in start.items()
    }
