"""Layers of a network with their kinds, and weights that rise from the first layer of a kind to its last.

A layer is a module with parameters of its own, so a bias stands beside its weight: a ResNet18 has 20 convolutions,
20 norms and 1 linear layer. Layers come in the order in which the network registers them.
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

Ends = Mapping[
    str, float | None
]  # kind of layer -> weight of its last layer; None: as many as there are layers


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One module: conv, norm, linear or other, with the names of its parameters."""

    module: str
    kind: str
    tensors: tuple[str, ...]


def layers_of(model: nn.Module, names: Iterable[str]) -> tuple[Layer, ...]:
    """The layers that the named parameters belong to."""
    wanted, found = set(names), dict[str, list[str]]()
    kinds = {name: kind for name, kind in layer_kinds(model).items() if name in wanted}
    for name in kinds:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(
        Layer(module=module, kind=kinds[tensors[0]], tensors=tuple(tensors))
        for module, tensors in found.items()
    )


def ramp(count: int, last: float) -> tuple[float, ...]:
    """Weights of so many layers, evenly from 1 to the last one's; a single layer has that of the last (Eq. 24)."""
    if count == 1:
        return (last,)
    return tuple(1 + (last - 1) * place / (count - 1) for place in range(count))


def ramps(layers: Iterable[Layer], ends: Ends) -> tuple[float, ...]:
    """The weight of every layer by the ramp of its kind; a kind without a ramp counts once."""
    layers = list(layers)
    rising = {}
    for kind in {one.kind for one in layers}:
        count = sum(one.kind == kind for one in layers)
        end = ends.get(kind, 1.0)
        rising[kind] = iter(
            ramp(count, float(count) if end is None else end) if kind in ends else [1.0] * count
        )
    return tuple(next(rising[one.kind]) for one in layers)


# --- Layers whose replayed update is furthest from the one seen, by the mean and variance of its entries
# (paper 002).
#
# Both errors are relative to what was seen, and that may be nothing. The entries of a softmax head's update
# add up to zero for every batch, so their mean is a rounding error, and dividing by it chooses the head at
# random, mostly always. So a mean is taken for zero when it is no larger than rounding can make it: of the
# update's own entries, and of the parameters that it is the difference of. Likewise a variance of entries
# that are all the same. Such an error is undefined; `undefined` says whether the layer then counts as
# furthest ("first") or as nearest ("last").


Undefined = Literal["last", "first"]
ROUNDING = 8.0  # roundings that a mean may be off by


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and variance of the entries of every layer, each [layers]."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The moments of the update seen, and which of them are nothing but rounding, each [layers]."""

    moments: Moments
    no_mean: Tensor
    no_variance: Tensor


def moments(params: Params, layers: Sequence[Layer]) -> Moments:
    """The population mean and variance over all entries of each layer, weight and bias together."""
    pairs = [_mean_and_variance(_entries(params, one)) for one in layers]
    return Moments(
        mean=torch.stack([mean for mean, _ in pairs]),
        variance=torch.stack([variance for _, variance in pairs]),
    )


def aim_moments(seen: Params, start: Params, layers: Sequence[Layer]) -> Aim:
    """The moments of the update seen from this start."""
    found = moments(seen, layers)
    size = torch.stack([_entries(seen, one).abs().mean() for one in layers])
    carried = torch.stack([_entries(start, one).abs().mean() for one in layers])
    counts = [sum(seen[name].numel() for name in one.tensors) for one in layers]
    roots = found.mean.new_tensor([math.sqrt(count) for count in counts])
    error = ROUNDING * torch.finfo(found.mean.dtype).eps * (size + carried / roots)
    spread = ROUNDING * torch.finfo(found.mean.dtype).eps * size
    return Aim(moments=found, no_mean=found.mean.abs() <= error, no_variance=found.variance <= spread**2)


def furthest(
    guess: Params,
    aim: Aim,
    layers: Sequence[Layer],
    *,
    mean_share: float,
    variance_share: float,
    undefined: Undefined = "last",
) -> frozenset[int]:
    """Places of the layers among both the largest errors of the mean and those of the variance (Eq. 30)."""
    if not (mean_share and variance_share):
        return frozenset()
    found = moments(guess, layers)
    by_mean = relative_errors(found.mean, aim.moments.mean, aim.no_mean, undefined)
    by_variance = relative_errors(found.variance, aim.moments.variance, aim.no_variance, undefined)
    return largest(by_mean, mean_share) & largest(by_variance, variance_share)


def relative_errors(guess: Tensor, seen: Tensor, nothing: Tensor, undefined: Undefined) -> Tensor:
    """|guess - seen| / |seen|, shape kept; where nothing was seen it is infinite, or below all others."""
    other = math.inf if undefined == "first" else -1.0
    known = (guess - seen).abs() / torch.where(nothing, torch.ones_like(seen), seen.abs())
    return torch.where(nothing, torch.full_like(seen, other), known)


def largest(errors: Tensor, share: float) -> frozenset[int]:
    """Places of the largest errors [layers], a share of all rounded up; of equal ones the first."""
    count = math.ceil(round(share * len(errors), 9))  # 0.07 * 100 is a little more than 7
    order = errors.nan_to_num(nan=math.inf).argsort(descending=True, stable=True)
    return frozenset(order[:count].tolist())


def _mean_and_variance(entries: Tensor) -> tuple[Tensor, Tensor]:
    """Both of [entries], in two passes: quicker than torch.var_mean, which updates them by every entry."""
    mean = entries.mean()
    apart = entries - mean
    return mean, torch.dot(apart, apart) / len(entries)


def _entries(params: Params, layer: Layer) -> Tensor:
    """All entries of a layer, [entries]."""
    parts = [params[name].detach().reshape(-1) for name in layer.tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
