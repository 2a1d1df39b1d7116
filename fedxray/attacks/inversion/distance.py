"""Distances between a replayed and the observed update: named tensors in, a scalar out, differentiable in the replay.

An iteration of an inversion passes over all parameters many times, and on dense networks these passes cost more than
the products. So the cosine has a gradient of its own, and the norm of the observed update is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedxray.errors import BadInput
from fedxray.params import Params, flatten

Distance = Callable[[Params, Params], Tensor]
DistanceTo = Callable[[Params], Tensor]  # from the observed update
TensorWeights = Mapping[str, float]  # by parameter name; absent: every tensor has weight 1

SMALLEST_NORM = 1e-12  # a shorter vector is treated as zero, whose cosine with anything is 0


def squared_l2(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return the sum of weighted squared differences over all tensors; scalar."""
    return _sum(squares(guess, seen), weights)


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


def cosine(guess: Params, seen: Params, weights: TensorWeights | None = None, norm: Tensor | None = None) -> Tensor:
    """Return one minus the cosine of the angle between all tensors as one vector; scalar.

    A weight scales a tensor's part of the inner product and of both squared norms. `norm` is that of the observed
    update where it is already known.
    """
    names = list(_paired(guess, seen))
    norm = _norm([seen[name] for name in names], _factors(names, weights)) if norm is None else norm
    tensors = [*(guess[name] for name in names), *(seen[name] for name in names)]
    return _Cosine.apply(_factors(names, weights), norm, *tensors)  # type: ignore[no-any-return, no-untyped-call]


class _Cosine(Function):
    """One minus the cosine, with a gradient in two passes over every tensor; torch's own takes seven."""

    @staticmethod
    def forward(ctx: Any, weights: tuple[float, ...], norm: Tensor, *tensors: Tensor) -> Tensor:
        """Return one minus the cosine of the first half of the tensors with the second, whose norm is known."""
        guess, seen = tensors[: len(weights)], tensors[len(weights) :]
        inner = _inner(guess, seen, weights)
        own = _norm(guess, weights)
        value = inner / (own * norm)
        ctx.save_for_backward(*tensors)
        moving = float(own) > SMALLEST_NORM  # a shorter guess has the norm SMALLEST_NORM, whatever it is
        ctx.weights, ctx.along, ctx.back = weights, 1 / float(own * norm), float(value) / float(own) ** 2 * moving
        return 1 - value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Return slope * weight * (cosine * guess / |guess|^2 - seen / (|guess| |seen|)) for every tensor."""
        guess, seen = ctx.saved_tensors[: len(ctx.weights)], ctx.saved_tensors[len(ctx.weights) :]
        factors = [float(slope) * weight for weight in ctx.weights]
        slopes = [
            torch.mul(value, factor * ctx.back).add_(goal, alpha=-factor * ctx.along)
            for value, goal, factor in zip(guess, seen, factors, strict=True)
        ]
        return None, None, *slopes, *[None] * len(seen)


def cosine_by_layer(guess: Params, seen: Params, weights: TensorWeights | None = None) -> Tensor:
    """Return the sum over tensors of the weight times one minus the cosine of that tensor; scalar."""
    parts = {name: cosine({name: value}, {name: seen[name]}) for name, value in _paired(guess, seen).items()}
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


def distance_to(seen: Params, match: str, names: Iterable[str] | None = None) -> DistanceTo:
    """Return the distance called `match` from the observed update, whose norm is computed here, once.

    `names` are the parameters of the network from the first to the last; by default those of the update.
    """
    distance = distance_named(match, seen if names is None else names)
    if distance is not cosine:
        return lambda guess: distance(guess, seen)
    norm = _norm(list(seen.values()), (1.0,) * len(seen))
    return lambda guess: cosine(guess, seen, norm=norm)


def stacked_distance_to(seen: Params, match: str) -> DistanceTo:
    """Return the same distance for several guesses: named tensors [guesses, ...] in, distances [guesses] out."""
    if match == "cosine-by-layer":
        layers = {name: stacked_distance_to({name: value}, "cosine") for name, value in seen.items()}
        return lambda guess: torch.stack([layer({name: guess[name]}) for name, layer in layers.items()]).sum(0)
    names, goal = list(seen), flatten(seen)
    norm = _norm([goal], (1.0,))

    def distance(guess: Params) -> Tensor:
        update = torch.cat([guess[name].flatten(1) for name in names], 1)  # [guesses, entries]
        if match == "cosine":
            own = (update * update).sum(1).clamp(min=SMALLEST_NORM**2).sqrt()
            return 1 - update @ goal / (own * norm)
        gap = update - goal
        return gap.abs().sum(1) if match == "l1" else (gap * gap).sum(1)

    return distance


def _factors(names: list[str], weights: TensorWeights | None) -> tuple[float, ...]:
    return (1.0,) * len(names) if weights is None else tuple(weights[name] for name in _weighted(names, weights))


def _inner(left: Sequence[Tensor], right: Sequence[Tensor], weights: tuple[float, ...]) -> Tensor:
    """Return the weighted inner product over all tensors; scalar."""
    products = [torch.dot(a.reshape(-1), b.reshape(-1)) for a, b in zip(left, right, strict=True)]
    return torch.stack([value * weight for value, weight in zip(products, weights, strict=True)]).sum()


def _norm(tensors: Sequence[Tensor], weights: tuple[float, ...]) -> Tensor:
    """Return the weighted norm over all tensors, at least SMALLEST_NORM; scalar."""
    return _inner(tensors, tensors, weights).clamp(min=SMALLEST_NORM**2).sqrt()


def _sum(parts: Mapping[str, Tensor], weights: TensorWeights | None) -> Tensor:
    """Return the weighted sum of scalars by name."""
    if weights is None:
        return torch.stack(list(parts.values())).sum()
    return torch.stack([parts[name] * weights[name] for name in _weighted(list(parts), weights)]).sum()


def _weighted(names: list[str], weights: TensorWeights) -> list[str]:
    """Return the names; refuse one without a weight."""
    missing = sorted(set(names) - weights.keys())
    if missing:
        raise BadInput("weights", expected="a weight for every tensor", got=f"none for {', '.join(missing)}",
                       remedy="Give a weight of 0 to a tensor that should not count.")  # fmt: skip
    return names


def _paired(guess: Params, seen: Params) -> Params:
    """Return the guess; refuse names other than those of the observed update."""
    if guess.keys() != seen.keys():
        raise BadInput("seen", expected=f"tensors named {', '.join(guess)}", got=", ".join(seen) or "none",
                       remedy="Compare updates of the same network.")  # fmt: skip
    return guess
