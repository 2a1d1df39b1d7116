"""Layers of a network with their kinds, and weights that rise from the first layer of a kind to its last.

A layer is a module with parameters of its own, so a bias stands beside its weight: a ResNet18 has 20 convolutions,
20 norms and 1 linear layer. Layers come in the order in which the network registers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import nn

from fedxray.models.inspect import layer_kinds

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
