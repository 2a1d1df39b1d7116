"""How well the gradient of a whole data set points along the updates seen, as a function of the guessed values.

With J_t [records * values, parameters] the gradients of every record under every value at the model of round t, and
p [records * values] the indicators, the data-set gradient is J_t' p / records. With d_t = -update_t / |update_t|:
    whole  = sum_t w_t J_t J_t'                    p' whole p  = sum_t w_t |gradient_t|^2
    across = sum_t w_t (J_t J_t' - J_t d_t d_t' J_t')   p' across p = sum_t w_t |gradient_t|^2 (1 - cos_t^2)
and their ratio is the mean of 1 - cos_t^2, in which a round counts by w_t |gradient_t|^2; w_t makes that one for all
rounds where every value is equally likely. The ratio is zero exactly where every round's cosine is 1 (or -1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SOFTENINGS = (1e-10, 1e-6, 1e-3, 1e-1, 10.0)  # ridge of the relaxed problem, as shares of the mean diagonal
ROUNDING = 1e-12  # differences of ratios, which lie between 0 and 1, that float64 cannot tell from none


@dataclass(frozen=True, kw_only=True)
class Products:
    """The inner products of all gradients over all rounds, both float64 [records * values, records * values]."""

    whole: Tensor
    across: Tensor
    records: int
    values: int


def relaxed(found: Products) -> list[Tensor]:
    """The value with the largest share where shares p may be any numbers that sum to one; one [records] per ridge.

    With p = 1/values + z this is least squares for z, in which the ridge prefers equally likely values.
    """
    size, free = found.records * found.values, found.values - 1
    contrasts = _contrasts(found)  # moves that keep the sum of shares
    split = found.across.reshape(found.records, found.values, found.records, found.values)
    half = torch.einsum("iajb,bd->iajd", split, contrasts)
    inner = torch.einsum("iajd,ac->icjd", half, contrasts).reshape(found.records * free, -1)
    pull = found.across.sum(1).reshape(found.records, found.values) / found.values
    slope = (pull @ contrasts).reshape(-1)
    scale = (inner.diagonal().sum() / size).clamp(min=torch.finfo(inner.dtype).tiny)
    starts = []
    for ridge in SOFTENINGS:
        softened = inner.clone()
        softened.diagonal().add_(ridge * scale)
        moved = torch.linalg.solve(softened, -slope).reshape(found.records, free) @ contrasts.T
        starts.append(moved.argmax(1))
    return starts


def _contrasts(found: Products) -> Tensor:
    """An orthonormal basis of the numbers that sum to zero, shape [values, values - 1]."""
    rows = torch.eye(found.values, dtype=found.across.dtype, device=found.across.device)
    basis: Tensor = torch.linalg.qr(rows[:, 1:] - 1.0 / found.values)[0]
    return basis


def descend(found: Products, chosen: Tensor, most: int) -> tuple[Tensor, list[float], Tensor]:
    """Change the one value that lowers the ratio most, at most so often; values, ratios, ratio per change.

    The values are [records], the ratios one per change and the start, the last [records, values].
    """
    chosen, curve = chosen.clone(), []
    across, whole = _pull(found.across, found, chosen), _pull(found.whole, found, chosen)
    while True:
        ratios, now = _ratios(found, chosen, across, whole)
        curve.append(float(now))
        best = int(ratios.argmin())
        if len(curve) > most or not float(ratios.flatten()[best]) < curve[-1] - ROUNDING:
            return chosen, curve, ratios
        record, value = best // found.values, best % found.values
        old = record * found.values + int(chosen[record])
        across = across + found.across[best] - found.across[old]
        whole = whole + found.whole[best] - found.whole[old]
        chosen[record] = value


def ratios_of_changes(found: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The ratio if one record alone had another value [records, values], and as it is."""
    return _ratios(found, chosen, _pull(found.across, found, chosen), _pull(found.whole, found, chosen))


def _ratios(found: Products, chosen: Tensor, across: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """The same, where the products of both matrices with p are known."""
    part, part_now = _after_change(found.across, across, found, chosen)
    total, total_now = _after_change(found.whole, whole, found, chosen)
    tiny = torch.finfo(total.dtype).tiny
    return part / total.clamp(min=tiny), part_now / total_now.clamp(min=tiny)


def _pull(matrix: Tensor, found: Products, chosen: Tensor) -> Tensor:
    """Matrix times p, shape [records * values]."""
    first = torch.arange(found.records, device=chosen.device) * found.values
    return matrix[first + chosen].sum(0)


def _after_change(matrix: Tensor, pull: Tensor, found: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """p' matrix p after each single change [records, values], and as it is."""
    first = torch.arange(found.records, device=chosen.device) * found.values
    place = first + chosen  # [records]
    every = first[:, None] + torch.arange(found.values, device=chosen.device)  # [records, values]
    now = pull[place].sum()
    diagonal = matrix.diagonal()
    bend = diagonal[every] + diagonal[place][:, None] - 2 * matrix[every, place[:, None]]
    return now + 2 * (pull[every] - pull[place][:, None]) + bend, now
