"""The optimum of a client, reached by training alone: a reconstructed local model is compared with it."""

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
MOST_HELD = 64  # optima kept in memory


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Parameters of lowest training loss, and the running statistics that go with them."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]


_optima: dict[int, Optimum] = {}  # the last few, keyed by content: no defence changes a client's optimum


def local_optimum(truth: Truth, client: int, *, other_seed: bool = False) -> Optimum:
    """The model of lowest training loss by full-batch Adam, from the run's initial weights or those of another seed."""
    records, start, buffers = truth.train[client], parameters_of(truth.model), buffers_of(truth.model)
    name = "local optimum of another seed" if other_seed else "local optimum"
    network = (repr(truth.model), truth.recipe.loss, start, buffers)
    key = derive_seed(0, name, *network, records.x, records.y, truth.seed, client)
    if key not in _optima:
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
        while len(_optima) >= MOST_HELD:
            _optima.pop(next(iter(_optima)))
        _optima[key] = Optimum(params=alone.outcome.best, buffers=alone.buffers)
    return _optima[key]


def forget_optima() -> None:
    """Compute every optimum anew."""
    _optima.clear()


def shuffled(start: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """Initial weights as another seed might have drawn them: the entries of every tensor in another order.

    The initial weights of a layer are independent draws from one distribution, so only their order depends on the seed.
    """
    return {
        name: value.flatten()[permutation(value.numel(), fork(generator, name)).to(value.device)].reshape(value.shape)
        for name, value in start.items()
    }
