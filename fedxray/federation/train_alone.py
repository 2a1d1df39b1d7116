"""A model trained by one client alone on all of its records: full-batch Adam, step size chosen by the training loss."""

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

ALMOST = 0.05  # share of the best decrease that a smaller step size may lack
PASSES = 50  # over all records, after which running statistics have converged


@dataclass(frozen=True, kw_only=True)
class AloneResult:
    """The result of training alone: the minimisation, its step size, and the running statistics."""

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
) -> AloneResult:
    """Train by Adam from `start` with the smallest of `rates` that does almost as well as the best.

    The step size falls to zero by a cosine. `generator` seeds dropout; the buffers are those of a model that has seen
    the records often enough for its running statistics to converge.
    """
    evaluate, batch = objective(model, loss), Batch(x=records.x, y=records.y)

    def of_params(params: dict[str, Tensor]) -> Tensor:
        return evaluate(params, buffers, batch)[0]

    with torch.random.fork_rng(devices=[]):  # dropout draws from the global generator: restore it afterwards
        torch.manual_seed(generator.initial_seed())
        rate = best_rate(of_params, start, steps, rates, betas)
        method = Adam(steps=steps, lr=rate, betas=betas, decay=Cosine())
        outcome = minimise(of_params, start, method, report=report, what="local optimum")
        return AloneResult(outcome=outcome, rate=rate, buffers=settled(evaluate, outcome.best, buffers, batch))


def best_rate(loss: Loss, start: Params, steps: int, rates: Sequence[float], betas: tuple[float, float]) -> float:
    """The smallest step size whose loss after a tenth of the steps is almost as low as with the best one."""
    if len(rates) == 1:
        return rates[0]
    short = [Adam(steps=max(1, steps // 10), lr=rate, betas=betas) for rate in sorted(rates)]
    tried = [minimise(loss, start, method) for method in short]
    least, first = min(outcome.best_loss for outcome in tried), tried[0].curve[0]
    near = [outcome.best_loss - least <= ALMOST * (first - least) for outcome in tried]
    return short[near.index(True)].lr if any(near) else short[0].lr


def settled(evaluate: Objective, params: Params, buffers: Params, batch: Batch) -> dict[str, Tensor]:
    """The running statistics of a model after many passes over these records."""
    statistics = dict(buffers)
    for _ in range(PASSES if statistics else 0):
        with torch.no_grad():
            statistics = each(torch.detach, evaluate(params, statistics, batch)[1])
    return statistics
