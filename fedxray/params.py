"""Named parameters and their algebra: plain dictionaries in, plain dictionaries out, nothing changed in place.

Parameters are always addressed by name, never by position. Where two sets meet, both have the same names and shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedxray.errors import BadInput

Params = Mapping[str, Tensor]


class Late(Mapping[str, Tensor]):
    """Named tensors that are fetched when first asked for, so that a long transcript costs nothing until it is read."""

    def __init__(self, fetch: Callable[[], Params]) -> None:
        """Store the function that fetches them."""
        self._fetch = fetch
        self._held: Params | None = None

    def _all(self) -> Params:
        if self._held is None:
            self._held = self._fetch()
        return self._held

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of that name."""
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._all())

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self._all())


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters of a module by name, detached copies; frozen ones stay with the module."""
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """The buffers of a module by name (running statistics), detached copies."""
    return {name: value.detach().clone() for name, value in model.named_buffers()}


def each(function: Callable[[Tensor], Tensor], params: Params) -> dict[str, Tensor]:
    """Apply a function to every tensor."""
    return {name: function(value) for name, value in params.items()}


def add(left: Params, right: Params, scale: float | Tensor = 1.0) -> dict[str, Tensor]:
    """left + scale * right."""
    return {name: value + scale * right[name] for name, value in left.items()}


def subtract(left: Params, right: Params) -> dict[str, Tensor]:
    """left - right."""
    return {name: value - right[name] for name, value in left.items()}


def scaled(params: Params, factor: float | Tensor) -> dict[str, Tensor]:
    """factor * params."""
    return {name: value * factor for name, value in params.items()}


def dot(left: Params, right: Params) -> Tensor:
    """Inner product over all tensors, a scalar."""
    return torch.stack([(value * right[name]).sum() for name, value in left.items()]).sum()


def norm(params: Params) -> Tensor:
    """Euclidean norm over all tensors, a scalar."""
    return dot(params, params).sqrt()


def weighted_mean(items: Sequence[Params], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of several parameter sets; weights need not sum to one."""
    total = float(sum(weights))
    if not items or total <= 0:
        remedy = "Give every contributor a weight."
        raise BadInput("weights", expected="at least one positive weight", got=list(weights), remedy=remedy)
    shares = [weight / total for weight in weights]
    return {name: _weighted_sum([item[name] for item in items], shares) for name in items[0]}


def _weighted_sum(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    if not tensors[0].is_floating_point():  # counters: exact, then to the nearest whole number
        return _weighted_sum([tensor.double() for tensor in tensors], shares).round().to(tensors[0].dtype)
    total = tensors[0] * shares[0]
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        total = total + tensor * share
    return total


def flatten(params: Params) -> Tensor:
    """All entries as one vector, in the order of the names given."""
    return torch.cat([value.reshape(-1) for value in params.values()])


def unflatten(vector: Tensor, like: Params) -> dict[str, Tensor]:
    """A vector cut back into the shapes of `like`."""
    pieces = torch.split(vector, [value.numel() for value in like.values()])
    return {name: piece.reshape(value.shape) for (name, value), piece in zip(like.items(), pieces, strict=True)}


def stack(items: Sequence[Params]) -> dict[str, Tensor]:
    """Several parameter sets with a new leading dimension, shape [items, ...] per name."""
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}


def unstack(params: Params) -> list[dict[str, Tensor]]:
    """The inverse of `stack`."""
    count = next(iter(params.values())).shape[0]
    return [{name: value[index] for name, value in params.items()} for index in range(count)]


def same_shapes(left: Params, right: Params) -> bool:
    """Whether both have the same names with the same shapes."""
    return left.keys() == right.keys() and all(value.shape == right[name].shape for name, value in left.items())


def same_values(left: Params, right: Params) -> bool:
    """Whether both are equal to the bit."""
    return same_shapes(left, right) and all(torch.equal(value, right[name]) for name, value in left.items())


def is_finite(params: Params) -> bool:
    """Whether every entry is finite."""
    return all(_all_finite(value) for value in params.values())


def _all_finite(value: Tensor) -> bool:
    """Whether every entry is finite: minimum and maximum are enough, since both become NaN if any entry is."""
    if not value.numel() or not value.is_floating_point():
        return True
    low, high = torch.aminmax(value.detach())
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))


def element_count(params: Params) -> int:
    """Number of entries over all tensors."""
    return sum(value.numel() for value in params.values())
