"""A model trained by one client alone on all of its records: Adam on the full batch, step size chosen by the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Records
from fedxray.federation.local import Batch, Objective, objective
from fedxray.optim import Adam, Cosine, Loss, Outcome, minimise
from fedxray.params import Params, each
from fedxray.progress import Report, silent

ALMOST = 0.05  # of the way down that a smaller step size may lack
PASSES = 50  # over all records, after which running statistics have settled


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What training alone came to."""

    outcome: Outcome
    rate: float
    buffers: dict[str, Tensor]


def train_alone(
    model: nn.Module,
    loss: str,
    records: Records,
    start: Params,
    buffers: Params,
    *,
    steps: int,
    rates: Sequence[float],
    generator: torch.Generator,
    betas: tuple[float, float] = (0.9, 0.999),
    report: Report = silent,
) -> Alone:
    """Adam from `start` with the smallest of these step sizes that does well, falling to nothing."""
    evaluate, batch = objective(model, loss), Batch(x=records.x, y=records.y)

    def of_params(params: dict[str, Tensor]) -> Tensor:
        return evaluate(params, buffers, batch)[0]

    with torch.random.fork_rng(devices=[]):  # dropout draws from the ambient generator; keep that inside
        torch.manual_seed(generator.initial_seed())
        rate = best_rate(of_params, start, steps, rates, betas)
        method = Adam(steps=steps, lr=rate, betas=betas, decay=Cosine())
        found = minimise(of_params, start, method, report=report, what="local optimum")
        return Alone(outcome=found, rate=rate, buffers=settled(evaluate, found.best, buffers, batch))


def best_rate(
    loss: Loss, start: Params, steps: int, rates: Sequence[float], betas: tuple[float, float]
) -> float:
    """The smallest step size that a tenth of the steps take almost as far down as the best one."""
    if len(rates) == 1:
        return rates[0]
    short = [Adam(steps=max(1, steps // 10), lr=rate, betas=betas) for rate in sorted(rates)]
    tried = [minimise(loss, start, method) for method in short]
    least, first = min(one.best_loss for one in tried), tried[0].curve[0]
    near = [one.best_loss - least <= ALMOST * (first - least) for one in tried]
    return short[near.index(True)].lr if any(near) else short[0].lr


def settled(evaluate: Objective, params: Params, buffers: Params, batch: Batch) -> dict[str, Tensor]:
    """The running statistics of a model that has seen these records long enough."""
    held = dict(buffers)
    for _ in range(PASSES if held else 0):
        with torch.no_grad():
            held = each(torch.detach, evaluate(params, held, batch)[1])
    return held
