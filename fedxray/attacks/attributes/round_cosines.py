"""Cosines of the gradient of a whole data set with the updates seen, round by round, as functions of the guessed codes.

Only the sensitive columns change between guesses. So in a network that begins with a dense layer, all that the public
columns add to it is computed once per round; of the gradient at that layer only its length and its inner product with
the update are needed, which leaves two products with the public columns where there were six. Rounds are taken one by
one, and their slopes are added up at once, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.federation.local import Batch, Objective, objective
from fedxray.federation.stacked import stacked_layers
from fedxray.losses import ExampleLoss, example_loss
from fedxray.params import Params, dot, norm, scaled

Cosine = Callable[[Tensor], Tensor]  # codes [records, positions] -> the cosine of one round, a scalar
MOST_HELD = 50_000_000  # numbers of what public columns add, over all rounds, that are kept


def cosines_of_rounds(view: View, records: PublicAttributes, rounds: Sequence[Observation]) -> list[Cosine]:
    """For each round, the cosine of the data-set gradient under given codes with minus the update."""
    positions = view.space.column(view.space.sensitive or "").positions
    head = dense_head(view.model)
    if head is None or records.x.ndim != 2:
        evaluate = objective(view.model, view.loss)
        return [_by_whole_gradient(evaluate, records, positions, one) for one in rounds]
    wide = head.module.out_features * len(records.x) * 2 * len(rounds)
    known = public_columns(records.x, positions, head.module.bias is not None)
    measure = example_loss(view.loss)
    return [
        _by_first_layer(head, measure, records.y, positions, known, one, wide <= MOST_HELD) for one in rounds
    ]


def cosines(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """The cosine of each round without a graph, shape [rounds]."""
    return torch.stack([one(codes.detach()).detach() for one in rounds])


def distance(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """The sum over rounds of 1 - cosine, a scalar with a slope where the codes want one."""
    if not codes.requires_grad:
        return (1 - cosines(codes, rounds)).sum()
    point = codes.detach().requires_grad_()
    value, slope = torch.zeros_like(point.detach()[0, 0]), torch.zeros_like(point)
    with torch.enable_grad():
        for one in rounds:
            gap = 1 - one(point)
            slope += torch.autograd.grad(gap, point)[0]
            value += gap.detach()
    return value + ((codes - codes.detach()) * slope).sum()  # adds nothing but the slope


def filled(x: Tensor, positions: tuple[int, ...], codes: Tensor) -> Tensor:
    """Records with an encoded value each [records, positions] written in, shape kept."""
    return x.index_copy(1, torch.tensor(positions, dtype=torch.int64, device=x.device), codes)


Layer = Callable[[Params, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Head:
    """The dense layer that a network begins with, its name, and the layers after it."""

    name: str
    module: nn.Linear
    rest: tuple[Layer, ...]


def dense_head(model: nn.Module) -> Head | None:
    """The first layer of a network of dense layers; None where it is no such network."""
    known = stacked_layers(model)
    leaves = [(name, part) for name, part in model.named_modules() if not list(part.children())]
    if known is None or len(known) != len(leaves):  # a layer that comes twice
        return None
    for place, (name, part) in enumerate(leaves):
        if isinstance(part, nn.Linear):
            rest = tuple(_layer(inner, module) for inner, module in leaves[place + 1 :])
            return Head(name=f"{name}." if name else "", module=part, rest=rest)
        if not isinstance(part, nn.Flatten | nn.Identity):
            return None
    return None


def _layer(name: str, module: nn.Module) -> Layer:
    """One layer as a function of named parameters."""
    if isinstance(module, nn.Linear):
        return lambda params, x: functional.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))
    if isinstance(module, nn.ReLU):
        return lambda params, x: functional.relu(x)  # never in place
    return lambda params, x: module(x)


@dataclass(frozen=True, kw_only=True)
class PublicColumns:
    """The public columns that are not zero throughout, and a column of ones for a bias."""

    places: Tensor  # [columns]
    rows: Tensor  # [records, columns and a one]
    turned: Tensor  # the same the other way round
    bias: bool

    def weights(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The weights [units, inputs] that these columns meet, and the bias."""
        found = weight[:, self.places].detach()
        return found if bias is None else torch.cat([found, bias.detach()[:, None]], 1)


def public_columns(x: Tensor, positions: tuple[int, ...], bias: bool) -> PublicColumns:
    """What all rounds share."""
    used = (x != 0).any(0)
    used[list(positions)] = False
    places = used.nonzero()[:, 0]
    rows = torch.cat([x[:, places], torch.ones_like(x[:, :1])], 1) if bias else x[:, places]
    return PublicColumns(places=places, rows=rows, turned=rows.T.contiguous(), bias=bias)


def _by_first_layer(
    head: Head,
    measure: ExampleLoss,
    y: Tensor,
    positions: tuple[int, ...],
    known: PublicColumns,
    seen: Observation,
    hold: bool,
) -> Cosine:
    """The cosine of one round where what the public columns add to the first layer is computed once."""
    weight, bias = f"{head.name}weight", f"{head.name}bias"
    wanted = scaled(seen.update, -1.0)
    length = norm(wanted)
    inner = {name: value.detach() for name, value in seen.start.items() if name not in (weight, bias)}

    def added(params: Params) -> Tensor:
        return known.rows @ known.weights(params[weight], params.get(bias)).T  # [records, units]

    kept = (added(seen.start), added(wanted)) if hold else None
    places = list(positions)
    own, aim = (params[weight][:, places].T.detach().contiguous() for params in (seen.start, wanted))

    def cosine(codes: Tensor) -> Tensor:
        before, along = kept or (added(seen.start), added(wanted))
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in inner.items()}
            reached = torch.addmm(before, codes, own)
            reached = reached if reached.requires_grad else reached.requires_grad_()
            output = reached
            for layer in head.rest:
                output = layer(leaves, output)
            loss = measure(output, y).mean()
            found = torch.autograd.grad(
                loss, [reached, *leaves.values()], create_graph=codes.requires_grad, materialize_grads=True
            )
            slope, others = found[0], dict(zip(leaves, found[1:], strict=True))
            at_codes, at_public = codes.T @ slope, known.turned @ slope
            inside = _dot(slope, along) + _dot(at_codes, aim)
            square = _dot(at_public, at_public) + _dot(at_codes, at_codes)
            for name, value in others.items():
                inside, square = inside + _dot(value, wanted[name]), square + _dot(value, value)
            return inside / (square.clamp(min=torch.finfo(square.dtype).tiny).sqrt() * length)

    return cosine


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return torch.dot(left.reshape(-1), right.reshape(-1))


def _by_whole_gradient(
    evaluate: Objective, records: PublicAttributes, positions: tuple[int, ...], seen: Observation
) -> Cosine:
    """The cosine of one round of any network, in train mode as its client ran it."""
    wanted = scaled(seen.update, -1.0)

    def cosine(codes: Tensor) -> Tensor:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in seen.start.items()}
            batch = Batch(x=filled(records.x, positions, codes), y=records.y)
            loss, _ = evaluate(leaves, seen.buffers, batch)
            slopes = torch.autograd.grad(
                loss, list(leaves.values()), create_graph=codes.requires_grad, materialize_grads=True
            )
            gradient = dict(zip(leaves, slopes, strict=True))
            length = dot(gradient, gradient).clamp(min=torch.finfo(loss.dtype).tiny).sqrt()
            return dot(gradient, wanted) / (length * norm(wanted))

    return cosine
