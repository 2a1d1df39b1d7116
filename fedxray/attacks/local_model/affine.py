"""Least squares through the singular values of a centred and evenly scaled matrix, with its conditioning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ABOVE_ROUNDING = 10.0  # times the rounding of the messages that a direction must move to be believed


@dataclass(frozen=True, kw_only=True)
class AffineFit:
    """responses = intercept + inputs @ slope, fitted by least squares, and how well the inputs fix it."""

    slope: Tensor  # [inputs, responses]
    intercept: Tensor  # [responses]
    rank: int  # of the centred inputs; full when it equals their number
    condition: float | None  # of the evenly scaled inputs; None without full rank
    residual: float  # what is left of the responses' spread, 0..1
    uncertainty: float  # of the slope in its worst direction, from the rounding


def fit_affine(inputs: Tensor, responses: Tensor, rounding: float) -> AffineFit:
    """The fit of responses [n, k] on inputs [n, d], whose entries were rounded by up to `rounding`.

    Centring takes the intercept out of the system, equal columns make the result independent of the parameters'
    units, and the inputs are never multiplied by themselves, which would square their condition. Directions that
    do not stand out from the rounding count as absent; along them nothing is assumed to change.
    """
    middle, answer = inputs.mean(0), responses.mean(0)
    centred, wanted = inputs - middle, responses - answer
    noise = ABOVE_ROUNDING * rounding * len(inputs) ** 0.5  # length of a column that holds rounding alone
    sizes = centred.norm(dim=0)
    scale = torch.where(sizes > noise, sizes, torch.inf)  # a column that never moved says nothing
    left, values, right = torch.linalg.svd(centred / scale, full_matrices=False)
    exact = torch.finfo(values.dtype).eps * max(inputs.shape) * values.max()
    kept = values > torch.maximum(exact, noise / scale.min())
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    back = right.T * inverse / scale[:, None]  # from the directions of the messages to the inputs
    slope = back @ (left.T @ wanted)
    rest, spread, rank = wanted - centred @ slope, float(wanted.norm()), int(kept.sum())
    return AffineFit(
        slope=slope,
        intercept=answer - middle @ slope,
        rank=rank,
        condition=float(values[0] / values[rank - 1]) if rank == inputs.shape[1] else None,
        residual=float(rest.norm()) / spread if spread > 0 else 0.0,
        uncertainty=rounding * float(torch.linalg.matrix_norm(back, 2)),
    )


def undetermined(fit: AffineFit, messages: int, parameters: int) -> str:
    """Why the messages do not fix a model of so many parameters; nothing where they do."""
    if messages < parameters + 1:
        return f"{messages} messages cannot fix {parameters} parameters: at least {parameters + 1} are needed"
    if fit.rank < parameters:
        return f"the {messages} messages point in {fit.rank} independent directions only, {parameters} are needed"
    return ""
