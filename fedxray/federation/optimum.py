"""The model a client would reach by training alone: what a reconstructed local model is compared with."""

from __future__ import annotations

from torch import Tensor

from fedxray.federation.alone import train_alone
from fedxray.federation.truth import Truth
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import derive_seed, fork

STEPS = 600
RATES = (0.01, 0.1, 1.0, 10.0)  # large ones serve targets in dollars
MOST_HELD = 64
_found: dict[int, dict[str, Tensor]] = {}  # the last few, by content: no defence changes a client's optimum


def local_optimum(truth: Truth, client: int) -> dict[str, Tensor]:
    """The parameters of least training loss met by full-batch Adam from the run's first model."""
    records, start, buffers = truth.train[client], parameters_of(truth.model), buffers_of(truth.model)
    key = derive_seed(
        0,
        "optimum",
        repr(truth.model),
        truth.recipe.loss,
        records.x,
        records.y,
        start,
        buffers,
        truth.seed,
        client,
    )
    if key not in _found:
        generator = fork(truth.seed, "local optimum", client)
        alone = train_alone(
            truth.model,
            truth.recipe.loss,
            records,
            start,
            buffers,
            steps=STEPS,
            rates=RATES,
            generator=generator,
        )
        while len(_found) >= MOST_HELD:
            _found.pop(next(iter(_found)))
        _found[key] = alone.outcome.best
    return _found[key]
