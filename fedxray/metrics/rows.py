"""How much of a client's rows was told: values of matched rows, each within its column's tolerance.

A number counts when it is off by at most the tolerance of its column (a tenth of the range), a category when the
nearest code is the true one. Each true row is compared with the guess that the matching with most values told
gives it; among equals the nearer rows are matched. A row without a guess has no value told.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedxray.data.space import Column
from fedxray.errors import BadInput
from fedxray.imaging import assignment
from fedxray.metrics.scores import Scores, from_records


def row_scores(guess: Tensor, truth: Tensor, columns: Sequence[Column]) -> Scores:
    """Share of values told of each true row, guess [g, width] matched to truth [t, width]."""
    if guess.ndim != 2 or guess.shape[1:] != truth.shape[1:]:
        expected, remedy = f"rows of {truth.shape[-1]} numbers", "Give rows as the model gets them."
        raise BadInput("guess", expected=expected, got=list(guess.shape), remedy=remedy)
    told = values_told(guess, truth, columns)  # [g, t, columns]
    rows, places = assignment(told.sum(-1) + _nearness(guess, truth))
    shares = torch.zeros(len(truth), dtype=torch.float32, device=truth.device)
    shares[places] = told[rows, places].to(torch.float32).mean(-1)
    return from_records({"values_recovered": shares})


def values_told(guess: Tensor, truth: Tensor, columns: Sequence[Column]) -> Tensor:
    """Whether each value of each true row is told by each guess; bool [g, t, columns]."""
    found = []
    for column in columns:
        mine, real = guess[:, list(column.positions)], truth[:, list(column.positions)]
        if column.kind == "continuous":
            found.append((mine[:, None, 0] - real[None, :, 0]).abs() <= column.tolerance)
        else:
            codes = column.candidates(truth)
            found.append(_category(mine, codes)[:, None] == _category(real, codes)[None])
    return torch.stack(found, -1)


def _category(values: Tensor, codes: Tensor) -> Tensor:
    """The nearest category of each encoding [n, positions]; -1 where it is not finite."""
    nearest = ((values[:, None] - codes[None]) ** 2).sum(-1).argmin(1)
    return torch.where(torch.isfinite(values).all(1), nearest, -1)


def _nearness(guess: Tensor, truth: Tensor) -> Tensor:
    """From 0 (far away, or not finite) to a value below one over the number of rows, [g, t]; decides among equals."""
    apart = ((guess[:, None].double() - truth[None].double()) ** 2).mean(-1)
    return torch.nan_to_num(1 / (1 + apart), nan=0.0) / (2 * max(1, len(truth)))
