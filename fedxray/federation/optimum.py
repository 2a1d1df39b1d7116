"""The model a client would reach by training alone: what a reconstructed local model is compared with."""

from __future__ import annotations

import functools

from torch import Tensor

from fedxray.federation.alone import train_alone
from fedxray.federation.truth import Truth
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork

STEPS = 600
RATES = (0.01, 0.1, 1.0, 10.0)  # large ones serve targets in dollars


@functools.lru_cache(maxsize=64)
def local_optimum(truth: Truth, client: int) -> dict[str, Tensor]:
    """The parameters of least training loss met by full-batch Adam from the run's first model."""
    alone = train_alone(
        truth.model,
        truth.recipe.loss,
        truth.train[client],
        parameters_of(truth.model),
        buffers_of(truth.model),
        steps=STEPS,
        rates=RATES,
        generator=fork(truth.seed, "local optimum", client),
    )
    return alone.outcome.best
