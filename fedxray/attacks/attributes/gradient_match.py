"""How well the gradient of a whole data set points along the updates seen, as a function of the guessed values.

With J_t [records * values, parameters] the gradients of every record under every value at the model of round t, and
p [records * values] the indicators, the data-set gradient is J_t' p / records. With d_t = -update_t / |update_t|:
    whole  = sum_t w_t J_t J_t'                    p' whole p  = sum_t w_t |gradient_t|^2
    across = sum_t w_t (J_t J_t' - J_t d_t d_t' J_t')   p' across p = sum_t w_t |gradient_t|^2 (1 - cos_t^2)
and their ratio is the mean of 1 - cos_t^2, in which a round counts by w_t |gradient_t|^2; w_t makes that one for all
rounds where every value is equally likely. The ratio is zero exactly where every round's cosine is 1 (or -1).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedxray.adversary.view import Observation
from fedxray.losses import example_loss
from fedxray.params import Params, flatten

ENTRIES_AT_ONCE = (
    8_000_000  # numbers of gradients held in one of the two blocks whose inner products are taken
)
SOFTENINGS = (1e-10, 1e-6, 1e-3, 1e-1, 10.0)  # ridge of the relaxed problem, as shares of the mean diagonal
ROUNDING = 1e-12  # differences of ratios, which lie between 0 and 1, that float64 cannot tell from none


@dataclass(frozen=True, kw_only=True)
class Products:
    """The inner products of all gradients over all rounds, both float64 [records * values, records * values]."""

    whole: Tensor
    across: Tensor
    records: int
    values: int


def products(
    model: nn.Module, loss: str, filled: Tensor, y: Tensor, rounds: Sequence[Observation]
) -> Products:
    """Inner products for inputs under every value [records, values, ...] with targets [records]."""
    records, values = int(filled.shape[0]), int(filled.shape[1])
    x, targets = filled.flatten(0, 1), y.repeat_interleave(values, dim=0)
    size = records * values
    whole = torch.zeros((size, size), dtype=torch.float64, device=x.device)
    across = torch.zeros_like(whole)
    for one in rounds:
        inner, along = _of_round(model, loss, x, targets, one)
        weight = size**2 / inner.sum().clamp(min=torch.finfo(torch.float64).tiny)
        whole += weight * inner
        across += weight * (inner - torch.outer(along, along))
    return Products(whole=whole, across=across, records=records, values=values)


def example_gradients(
    model: nn.Module, loss: str, params: Params, buffers: Params, x: Tensor, y: Tensor
) -> Tensor:
    """The gradient of each example's loss in evaluation mode, float64, shape [examples, parameters]."""
    still, measure = copy.deepcopy(model).eval(), example_loss(loss)

    def loss_of_one(inner: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        output = functional_call(still, ({**inner, **buffers},), (one[None],))
        return measure(output, target[None])[0]

    found = vmap(grad(loss_of_one), in_dims=(None, 0, 0))({n: v.detach() for n, v in params.items()}, x, y)
    return torch.cat([found[name].flatten(1) for name in params], dim=1).detach().double()


def _of_round(model: nn.Module, loss: str, x: Tensor, y: Tensor, seen: Observation) -> tuple[Tensor, Tensor]:
    """J J' [examples, examples] and J d [examples], block by block so that memory stays bounded."""
    start = dict(seen.start)
    wanted = -flatten({name: seen.update[name] for name in start}).double()
    wanted = wanted / wanted.norm()
    block = max(1, ENTRIES_AT_ONCE // len(wanted))
    inner = torch.empty((len(x), len(x)), dtype=torch.float64, device=x.device)
    along = torch.empty(len(x), dtype=torch.float64, device=x.device)
    for left in range(0, len(x), block):
        rows = slice(left, left + block)
        held = example_gradients(model, loss, start, seen.buffers, x[rows], y[rows])
        along[rows] = held @ wanted
        inner[rows, rows] = held @ held.T
        for right in range(left + block, len(x), block):
            columns = slice(right, right + block)
            other = example_gradients(model, loss, start, seen.buffers, x[columns], y[columns])
            inner[rows, columns] = held @ other.T
            inner[columns, rows] = inner[rows, columns].T
    return inner, along


def relaxed(found: Products) -> list[Tensor]:
    """The value with the largest share where shares p may be any numbers that sum to one; one [records] per ridge.

    With p = 1/values + z this is least squares for z, in which the ridge prefers equally likely values.
    """
    size = found.records * found.values
    centred = _centred(_centred(found.across, found).T, found)  # moves that keep the sum of shares
    slope = _centred((found.across.sum(1) / found.values)[:, None], found)[:, 0]
    scale = centred.diagonal().mean().clamp(min=torch.finfo(centred.dtype).tiny)
    identity = torch.eye(size, dtype=centred.dtype, device=centred.device)
    return [
        torch.linalg.solve(centred + ridge * scale * identity, -slope)
        .reshape(found.records, found.values)
        .argmax(1)
        for ridge in SOFTENINGS
    ]


def _centred(matrix: Tensor, found: Products) -> Tensor:
    """Rows [records * values, ...] less the mean over the values of their record."""
    split = matrix.reshape(found.records, found.values, -1)
    return (split - split.mean(1, keepdim=True)).reshape(matrix.shape)


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
