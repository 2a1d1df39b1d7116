"""The BatchNorm statistics of a client's batches along one round, which its running statistics are averages of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedxray.data.records import Records
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.federation.schedule import Schedule
from fedxray.federation.transcript import Parts
from fedxray.models.statistics import batch_statistics
from fedxray.params import Params, each


def statistics_of_round(
    model: nn.Module, recipe: Recipe, records: Records, sent: Parts, schedule: Schedule
) -> dict[str, Tensor]:
    """Mean and unbiased variance by layer for every local step, each [steps, channels], without any defence."""
    statistics, evaluate = batch_statistics(model), objective(model, recipe.loss)
    found: list[dict[str, Tensor]] = []

    def watched(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            found.append(each(torch.detach, statistics(params, buffers, batch.x)))
        return evaluate(params, buffers, batch)

    batches = [Batch(x=records.x[used], y=records.y[used]) for used in schedule.rows()]
    local_update(sent.params, sent.buffers, batches, recipe, watched)
    return {name: torch.stack([step[name] for step in found]) for name in found[0]}
