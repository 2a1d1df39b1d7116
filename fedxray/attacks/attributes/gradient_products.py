"""Inner products of the gradients of all records under all values, summed over rounds, in bounded memory.

For a network of dense layers the gradient of one example at a layer is the outer product of what goes in, a, and of
the slope of the loss at what comes out, e; so two gradients have the inner product (a_i . a_j)(e_i . e_j), and none of
them is ever written out. Other networks have their gradients computed block by block.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedxray.adversary.view import Observation
from fedxray.attacks.attributes.gradient_match import Products
from fedxray.federation.stacked import stacked_layers
from fedxray.losses import example_loss
from fedxray.params import Params, each, flatten

ENTRIES_AT_ONCE = 8_000_000  # numbers of gradients held in one of the two blocks of a general network
ROWS_AT_ONCE = 512  # of the symmetric matrix, of which the part above its diagonal is computed

# Adds weight(total) * J J' to a matrix's upper blocks, total = |sum of all gradients|^2; gives J d and the weight.
Weigh = Callable[[Tensor], Tensor]
Adding = Callable[[Observation, Tensor, Tensor, Weigh], tuple[Tensor, Tensor]]


def products(
    model: nn.Module,
    loss: str,
    filled: Tensor,
    y: Tensor,
    rounds: Sequence[Observation],
    counts: Sequence[int] = (),
) -> Iterator[Products]:
    """Inner products over the first so many rounds, for each of the rising counts (or once, over all).

    The inputs are given under every value [records, values, ...], the targets [records].
    """
    records, values = int(filled.shape[0]), int(filled.shape[1])
    x, targets = filled.flatten(0, 1), y.repeat_interleave(values, dim=0)
    size = records * values
    whole = torch.zeros((size, size), dtype=torch.float64, device=x.device)
    add = adding(model, loss, x, targets)
    tiny = torch.finfo(torch.float64).tiny
    along: list[Tensor] = []
    wanted = list(counts) or [len(rounds)]
    for place, one in enumerate(rounds, start=1):
        vector, weight = add(one, _direction(one), whole, lambda total: size**2 / total.clamp(min=tiny))
        along.append(vector * weight.sqrt())
        if place in wanted:
            full, lines = _mirrored(whole), torch.stack(along)
            yield Products(whole=full, across=full - lines.T @ lines, records=records, values=values)


def adding(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """How the products of one round are added for this network: by layers where it is dense."""
    return general(model, loss, x, y) if stacked_layers(model) is None else dense(model, loss, x, y)


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """What goes into a dense layer and the slope of the loss at what comes out, for every example."""

    name: str  # with a dot, unless the network is this one layer
    into: Tensor  # [examples, inputs]
    slope: Tensor  # [examples, outputs]


def dense(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """By layers, in float64; the inner products of the inputs, which all rounds share, are computed once."""
    layers_at = _layers(model, loss, x.double(), y.double() if y.is_floating_point() else y)
    first = x.double() @ x.double().T

    def add(one: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        sizes = [value.numel() for value in one.start.values()]
        parts = dict(zip(one.start, direction.split(sizes), strict=True))
        layers, along = layers_at(one.start), torch.zeros_like(whole[0])
        weight = weigh(torch.stack([_square(layer, f"{layer.name}bias" in parts) for layer in layers]).sum())
        for place, layer in enumerate(layers):
            into, slope, bias = layer.into, layer.slope, parts.get(f"{layer.name}bias")
            turned = parts[f"{layer.name}weight"].reshape(slope.shape[1], -1).T
            along += (slope * (into @ turned + (0.0 if bias is None else bias))).sum(1)
            _add_layer(whole, into, slope * weight.sqrt(), bias is not None, None if place else first)
        return along, weight

    return add


def _layers(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Callable[[Params], list[_Layer]]:
    """Runs a copy of the network forwards and backwards and notes what its dense layers see."""
    network, measure = copy.deepcopy(model).double().eval(), example_loss(loss)
    seen: list[tuple[str, Tensor, Tensor]] = []

    def note(name: str, own: nn.Module, into: tuple[Tensor, ...], out: Tensor) -> None:
        seen.append((f"{name}." if name else "", into[0].detach(), out))

    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(partial(note, name))

    def layers(params: Params) -> list[_Layer]:
        seen.clear()
        with torch.enable_grad():
            leaves = each(lambda value: value.detach().double().requires_grad_(), params)
            total = measure(functional_call(network, leaves, (x,)), y).sum()
            slopes = torch.autograd.grad(total, [out for _, _, out in seen])
        return [
            _Layer(name=name, into=into, slope=slope)
            for (name, into, _), slope in zip(seen, slopes, strict=True)
        ]

    return layers


def _square(layer: _Layer, bias: bool) -> Tensor:
    """The squared length of the sum of all gradients of one layer."""
    total = (layer.slope.T @ layer.into).square().sum()
    return total + layer.slope.sum(0).square().sum() if bias else total


def _add_layer(whole: Tensor, into: Tensor, slope: Tensor, bias: bool, known: Tensor | None) -> None:
    """Add (a_i . a_j + 1)(e_i . e_j) to the upper blocks; a layer with one output needs one product only."""
    if slope.shape[1] == 1:
        rows = torch.cat([into, torch.ones_like(slope)], 1) if bias else into
        rows = rows * slope
        for block in _blocks(len(whole)):
            whole[block, block.start :].addmm_(rows[block], rows[block.start :].T)
        return
    for block in _blocks(len(whole)):
        right = slice(block.start, None)
        alike = known[block, right] if known is not None else into[block] @ into[right].T
        whole[block, right].addcmul_(alike + 1.0 if bias else alike, slope[block] @ slope[right].T)


def general(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """By whole gradients, two blocks of them at a time."""

    def gradients(one: Observation, place: slice) -> Tensor:
        return example_gradients(model, loss, dict(one.start), one.buffers, x[place], y[place])

    def add(one: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        blocks = list(_blocks(len(x), max(1, ENTRIES_AT_ONCE // len(direction))))
        along, inner, total = torch.zeros_like(whole[0]), torch.zeros_like(whole), torch.zeros_like(direction)
        for place, block in enumerate(blocks):
            held = gradients(one, block)
            along[block] = held @ direction
            total += held.sum(0)
            inner[block, block] = held @ held.T
            for other in blocks[place + 1 :]:
                inner[block, other] = held @ gradients(one, other).T
        weight = weigh(total.square().sum())
        whole.add_(inner * weight)
        return along, weight

    return add


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


def _direction(seen: Observation) -> Tensor:
    """Minus the update, of length one, float64 [parameters]."""
    wanted = -flatten({name: seen.update[name] for name in seen.start}).double()
    direction: Tensor = wanted / wanted.norm()
    return direction


def _blocks(size: int, rows: int = ROWS_AT_ONCE) -> Iterator[slice]:
    return (slice(start, min(size, start + rows)) for start in range(0, size, rows))


def _mirrored(upper: Tensor) -> Tensor:
    """The symmetric matrix of which everything above the diagonal is given."""
    return upper.triu() + upper.triu(1).T
