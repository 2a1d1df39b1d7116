"""Layers of a network, ramps of weights by kind of layer, and the enhancement of AWA (Song et al. 2023).

A layer is a module with parameters of its own, so weight and bias belong together: a ResNet18 has 20 convolutions,
20 norms and 1 linear layer. Layers come in the order in which the network registers them.

Enhancement selects the layers whose replayed update differs most from the observed one, by the mean and by the variance
of its entries. Both errors are relative to the observed value, which may be zero: the entries of a softmax head's
update sum to zero for every batch, so their mean is a rounding error, and dividing by it selects the head nearly
always. So a mean is treated as zero when it is no larger than rounding can make it: of the update's own entries, and of
the parameters whose difference it is. Likewise a variance of entries that are all equal. Such a relative error is
undefined; `undefined` states whether the layer then ranks as the largest error ("first") or the smallest ("last").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedxray.models.inspect import layer_kinds
from fedxray.params import Params

# Kind of layer -> weight of its last layer; None: the number of such layers.
Ends = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One module: conv, norm, linear or other, with the names of its parameters."""

    module: str
    kind: str
    tensors: tuple[str, ...]


def layers_of(model: nn.Module, names: Iterable[str]) -> tuple[Layer, ...]:
    """Return the layers that the named parameters belong to."""
    wanted, by_module = set(names), dict[str, list[str]]()
    kinds = {name: kind for name, kind in layer_kinds(model).items() if name in wanted}
    for name in kinds:
        by_module.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(
        Layer(module=module, kind=kinds[tensors[0]], tensors=tuple(tensors)) for module, tensors in by_module.items()
    )


def ramp(count: int, last: float) -> tuple[float, ...]:
    """Return weights of `count` layers, evenly from 1 to `last`; a single layer has the weight `last` (Eq. 24)."""
    if count == 1:
        return (last,)
    return tuple(1 + (last - 1) * place / (count - 1) for place in range(count))


def ramps(layers: Iterable[Layer], ends: Ends) -> tuple[float, ...]:
    """Return the weight of every layer by the ramp of its kind; a kind without a ramp has weight 1."""
    layers = list(layers)
    rising = {}
    for kind in {layer.kind for layer in layers}:
        count = sum(layer.kind == kind for layer in layers)
        end = ends.get(kind, 1.0)
        rising[kind] = iter(ramp(count, float(count) if end is None else end) if kind in ends else [1.0] * count)
    return tuple(next(rising[layer.kind]) for layer in layers)


# Enhancement: the layers with the largest relative errors

Undefined = Literal["last", "first"]
ROUNDING = 8.0  # rounding errors by which a mean may be off


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The moments of the observed update, and which of them are rounding errors only, each [layers]."""

    mean: Tensor
    variance: Tensor
    no_mean: Tensor
    no_variance: Tensor


def moments(params: Params, layers: Sequence[Layer]) -> tuple[Tensor, Tensor]:
    """Return population mean and variance, each [layers], over all entries of a layer, weight and bias together."""
    pairs = [_mean_and_variance(_entries(params, layer)) for layer in layers]
    return torch.stack([mean for mean, _ in pairs]), torch.stack([variance for _, variance in pairs])


def aim_moments(seen: Params, start: Params, layers: Sequence[Layer]) -> Aim:
    """Return the moments of the observed update from this start, with the ones that are rounding errors only."""
    mean, variance = moments(seen, layers)
    size = torch.stack([_entries(seen, layer).abs().mean() for layer in layers])
    carried = torch.stack([_entries(start, layer).abs().mean() for layer in layers])
    counts = [sum(seen[name].numel() for name in layer.tensors) for layer in layers]
    roots = mean.new_tensor([math.sqrt(count) for count in counts])
    error = ROUNDING * torch.finfo(mean.dtype).eps * (size + carried / roots)
    spread = ROUNDING * torch.finfo(mean.dtype).eps * size
    return Aim(mean=mean, variance=variance, no_mean=mean.abs() <= error, no_variance=variance <= spread**2)


def furthest(
    guess: Params,
    aim: Aim,
    layers: Sequence[Layer],
    *,
    mean_share: float,
    variance_share: float,
    undefined: Undefined = "last",
) -> frozenset[int]:
    """Return the indices of layers with both one of the largest errors of the mean and of the variance (Eq. 30).

    The shares state how many layers count as largest, as a share of all, rounded up.
    """
    if not (mean_share and variance_share):
        return frozenset()
    mean, variance = moments(guess, layers)
    by_mean = relative_errors(mean, aim.mean, aim.no_mean, undefined)
    by_variance = relative_errors(variance, aim.variance, aim.no_variance, undefined)
    return largest(by_mean, mean_share) & largest(by_variance, variance_share)


def relative_errors(guess: Tensor, seen: Tensor, nothing: Tensor, undefined: Undefined) -> Tensor:
    """Return |guess - seen| / |seen| [layers]; where `nothing` it is infinite, or below all others."""
    rank = math.inf if undefined == "first" else -1.0
    known = (guess - seen).abs() / torch.where(nothing, torch.ones_like(seen), seen.abs())
    return torch.where(nothing, torch.full_like(seen, rank), known)


def largest(errors: Tensor, share: float) -> frozenset[int]:
    """Return the indices of the largest errors [layers], a share of all rounded up; of equal ones the first."""
    count = math.ceil(round(share * len(errors), 9))  # 0.07 * 100 is a little more than 7
    order = errors.nan_to_num(nan=math.inf).argsort(descending=True, stable=True)
    return frozenset(order[:count].tolist())


def _mean_and_variance(entries: Tensor) -> tuple[Tensor, Tensor]:
    """Return both of [entries], in two passes: faster than torch.var_mean, which updates them by every entry."""
    mean = entries.mean()
    centred = entries - mean
    return mean, torch.dot(centred, centred) / len(entries)


def _entries(params: Params, layer: Layer) -> Tensor:
    """Return all entries of a layer [entries]."""
    parts = [params[name].detach().reshape(-1) for name in layer.tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
