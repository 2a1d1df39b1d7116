"""Distances between a replayed and the observed update: named tensors in, a scalar out, differentiable in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedxray.errors import BadInput
from fedxray.params import Params

Distance = Callable[[Params, Params], Tensor]
TensorWeights = Mapping[str, float]  # by parameter name; absent: every tensor has weight 1

SMALLEST_NORM = 1e-12  # a shorter vector is treated as zero, whose cosine with anything is 0


def squared_l2(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return the sum of weighted squared differences over all tensors; scalar."""
    return _sum({name: ((value - seen[name]) ** 2).sum() for name, value in _paired(guess, seen).items()}, weights)


def squares(guess: Params, seen: Params) -> dict[str, Tensor]:
    """Return the sum of squared differences of every tensor; each a scalar."""
    differences = {name: (value - seen[name]).reshape(-1) for name, value in _paired(guess, seen).items()}
    return {name: _SquaredLength.apply(value) for name, value in differences.items()}  # type: ignore[no-untyped-call]


class _SquaredLength(Function):
    """torch.dot(v, v) with a gradient in one pass over v; torch's own takes three."""

    generate_vmap_rule = True

    @staticmethod
    def forward(vector: Tensor) -> Tensor:
        """Return the squared norm of a vector [entries]; scalar."""
        return torch.dot(vector, vector)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Save the vector for the gradient."""
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        """Return twice the vector times the incoming gradient."""
        return ctx.saved_tensors[0] * (2 * slope)  # type: ignore[no-any-return]


def l1(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return the sum of weighted absolute differences over all tensors; scalar."""
    return _sum({name: (value - seen[name]).abs().sum() for name, value in _paired(guess, seen).items()}, weights)


def cosine(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return one minus the cosine of the angle between all tensors as one vector; scalar.

    A weight scales a tensor's part of the inner product and of both squared norms.
    """
    return 1 - _cosine(_paired(guess, seen), seen, weights)


def cosine_by_layer(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return the sum over tensors of the weight times one minus the cosine of that tensor; scalar."""
    parts = {name: 1 - _cosine({name: value}, seen, None) for name, value in _paired(guess, seen).items()}
    return _sum(parts, weights)


def where_seen(guess: Params, seen: Params) -> dict[str, Tensor]:
    """Return the guess with zeros where the observed update is exactly zero, so that such entries do not count."""
    return {name: value * (seen[name] != 0) for name, value in _paired(guess, seen).items()}


def depth_weights(names: Iterable[str]) -> dict[str, float]:
    """Return weights 1, 1/e, 1/e^2, ... from the first layer to the last; a layer's weight and bias share one."""
    names = list(names)
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    return {name: math.exp(-layers.index(name.rpartition(".")[0])) for name in names}


DISTANCES: dict[str, Distance] = {"cosine": cosine, "cosine-by-layer": cosine_by_layer, "l2": squared_l2, "l1": l1}
BY_DEPTH = "l2-by-depth"  # squared differences whose weight falls with the depth of the layer
MATCHES = (*DISTANCES, BY_DEPTH)


def distance_named(match: str, names: Iterable[str]) -> Distance:
    """Return the distance called `match` for a network with parameters `names`, from the first to the last."""
    if match == BY_DEPTH:
        return partial(squared_l2, weights=depth_weights(names))
    return DISTANCES[match]


def _cosine(guess: Params, seen: Params, weights: TensorWeights | None) -> Tensor:
    inner = _sum({name: _dot(value, seen[name]) for name, value in guess.items()}, weights)
    ours = _sum({name: _dot(value, value) for name, value in guess.items()}, weights)
    theirs = _sum({name: _dot(seen[name], seen[name]) for name in guess}, weights)
    # The square root has no gradient at zero: squared norms are bounded below before it, not after.
    return inner / (ours.clamp(min=SMALLEST_NORM**2).sqrt() * theirs.clamp(min=SMALLEST_NORM**2).sqrt())


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return torch.dot(left.reshape(-1), right.reshape(-1))


def _sum(parts: Mapping[str, Tensor], weights: TensorWeights | None) -> Tensor:
    """Return the weighted sum of scalars by name."""
    if weights is None:
        return torch.stack(list(parts.values())).sum()
    missing = sorted(parts.keys() - weights.keys())
    if missing:
        raise BadInput("weights", expected="a weight for every tensor", got=f"none for {', '.join(missing)}",
                       remedy="Give a weight of 0 to a tensor that should not count.")  # fmt: skip
    return torch.stack([value * weights[name] for name, value in parts.items()]).sum()


def _paired(guess: Params, seen: Params) -> Params:
    """Return the guess; refuse names other than those of the observed update."""
    if guess.keys() != seen.keys():
        raise BadInput("seen", expected=f"tensors named {', '.join(guess)}", got=", ".join(seen) or "none",
                       remedy="Compare updates of the same network.")  # fmt: skip
    return guess
