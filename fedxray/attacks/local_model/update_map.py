"""A client's update as a network between the span of the models she was sent and the span of her changes.

A regressor from all parameters to all parameters has a first layer [units, parameters] and a last layer
[parameters, units]. On n messages only its action between two spaces of at most n - 1 dimensions is ever
trained, so that part is kept in coordinates of these spaces, and a model of 150,000 parameters costs what one
of 100 does. What the messages leave untouched is what it started with: random weights on the directions
outside in the first layer (`outside`), none in the last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.attacks.local_model.messages import Messages
from fedxray.methods import Method
from fedxray.minimise import Outcome, minimise
from fedxray.progress import Report
from fedxray.seeds import fork, normal_like, uniform_like


@dataclass(frozen=True, kw_only=True)
class Span:
    """The affine space through some vectors."""

    middle: Tensor  # [parameters]
    basis: Tensor  # [parameters, directions], orthonormal columns
    size: float  # root mean square distance of the vectors from their middle
    places: Tensor  # [vectors, directions], from the middle, in units of `size`


@dataclass(frozen=True, kw_only=True)
class UpdateMap:
    """The fitted regressor and the two spaces it works between."""

    models: Span
    changes: Span
    network: dict[str, Tensor]
    outside: (
        Tensor | None
    )  # [units, parameters], first layer on what is orthogonal to the models; None for zero
    fit: Outcome


def span_of(vectors: Tensor, rounding: float) -> Span:
    """The affine span of vectors [n, parameters]; directions that do not stand out from the rounding are left out."""
    middle = vectors.mean(0)
    tall, small = torch.linalg.qr(
        (vectors - middle).T
    )  # far cheaper than the singular values of a long matrix
    right, values, left = torch.linalg.svd(small, full_matrices=False)
    kept = values > rounding * sum(side**0.5 for side in vectors.shape)
    size = float(values[kept].square().sum() / len(vectors)) ** 0.5
    places = left[kept].T * values[kept] / max(size, torch.finfo(values.dtype).tiny)
    return Span(middle=middle, basis=tall @ right[:, kept], size=size, places=places)


def fit_update_map(
    seen: Messages,
    hidden: tuple[int, ...],
    method: Method,
    generator: torch.Generator,
    report: Report,
    *,
    outside: bool,
) -> UpdateMap:
    """Eq. 7: the regressor of the changes on the models sent, by the mean squared error over the messages."""
    models, changes = span_of(seen.starts, seen.rounding), span_of(seen.updates, seen.rounding)
    beyond, inside = _first_layer(models, hidden, fork(generator, "first layer"), outside=outside)
    start = fresh_network(inside, (*hidden, changes.basis.shape[1]), fork(generator, "network"))

    def loss(network: dict[str, Tensor]) -> Tensor:
        guess = predict(network, models.places)
        return (guess - changes.places).square().sum(1).mean()

    fit = minimise(loss, start, method, report=report, what="update map")
    return UpdateMap(models=models, changes=changes, network=fit.best, outside=beyond, fit=fit)


def _first_layer(
    models: Span, hidden: tuple[int, ...], generator: torch.Generator, *, outside: bool
) -> tuple[Tensor | None, Tensor]:
    """Random weights of the first layer outside the span [units, parameters], and inside [units, directions].

    Their variance is torch's for inputs of unit variance: 1 / (3 parameters) on inputs of length sqrt(parameters).
    """
    units = hidden[0] if hidden else 0
    if not outside or not units:
        shape = models.basis.new_empty((units, models.basis.shape[1]))
        return None, normal_like(shape, generator) / 3**0.5
    whole = normal_like(models.basis.new_empty((units, len(models.middle))), generator) / 3**0.5
    inside = whole @ models.basis
    return whole - inside @ models.basis.T, inside


def fresh_network(first: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Layers of these sizes after a given first one [units, inputs]; a layer that stands alone starts at zero."""
    if len(sizes) == 1:
        shape = first.new_zeros((sizes[0], first.shape[1]))
        return {"weight0": shape, "bias0": first.new_zeros(sizes[0])}
    network = {"weight0": first, "bias0": first.new_zeros(len(first))}
    for number, (inputs, units) in enumerate(itertools.pairwise(sizes), start=1):
        reach = 1 / inputs**0.5
        weight = uniform_like(first.new_empty((units, inputs)), generator)
        network[f"weight{number}"] = (2 * weight - 1) * reach
        network[f"bias{number}"] = first.new_zeros(units)
    return network


def predict(network: dict[str, Tensor], places: Tensor, beyond: Tensor | None = None) -> Tensor:
    """The change [..., directions] at places [..., directions]; `beyond` [..., units] comes from outside the span."""
    value = places @ network["weight0"].T + network["bias0"]
    value = value if beyond is None else value + beyond
    for number in range(1, len(network) // 2):
        value = torch.relu(value) @ network[f"weight{number}"].T + network[f"bias{number}"]
    return value
