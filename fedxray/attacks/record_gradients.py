"""Gradients of single records at given models, and their inner products with each other and with directions.

Products with each other (`gradients_at`): in a network of dense layers the gradient of one example at a layer is the
outer product of the layer's input a and the gradient e of the loss at its output. So two gradients have the inner
product (a_i . a_j + 1)(e_i . e_j), where the 1 is the bias, and none of them is ever formed. Networks with convolutions
have the gradients of these layers formed, where they are few enough to be held; other networks have whole gradients
computed block by block. All products are in float64.

Products with given directions and squared lengths (`record_products`), in the type of the records: one backward pass of
the summed loss gives e for all records and layers; with the layer's input h that is enough:
    dense layer                   <g, D> = e . (D_W h + D_b)         |g|^2 = |e|^2 (|h|^2 + 1)
    several places p per record   g = sum_p e_p h_p', formed for this layer alone (a time axis; a convolution, whose
                                  places are the patches that it sees)
    BatchNorm                     g = sum_p e_p * normalised h_p
Several directions then cost one product each. Networks with other trainable parameters, and layers that are used more
than once, have the whole gradient of every record formed, in pieces.

Networks are in evaluation mode, so that BatchNorm and Dropout are approximated.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedxray.federation.local import shares_tensors, stacked_layers
from fedxray.losses import example_loss
from fedxray.params import Params, each, element_count, flatten

ENTRIES_OF_BLOCK = 8_000_000  # of gradients in one of the two blocks of a general network


class RecordGradients(ABC):
    """The gradients of all examples at one model, known by their inner products."""

    @abstractmethod
    def inner(self, other: RecordGradients) -> Tensor:
        """Return the inner products with the gradients of the same examples at another model [examples, examples]."""

    @abstractmethod
    def along(self, direction: Params) -> Tensor:
        """Return the inner products with one direction [examples]."""


GradientsAt = Callable[[Params, Params], RecordGradients]  # of the parameters and buffers of a model


def gradients_at(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> GradientsAt:
    """Return the gradients of examples x [examples, ...] with targets y [examples] as a function of the model."""
    if stacked_layers(model) is None:
        return _general_gradients_at(model, loss, x, y)
    layers_at = layers_of(model, loss, x.double(), y.double() if y.is_floating_point() else y)
    rows = x.double().flatten(1)
    inputs = rows @ rows.T  # of the first layer, which all models share
    return lambda params, buffers: _ByLayers(
        layers=tuple(layers_at(params)), inputs=inputs, biases=frozenset(name for name in params if "bias" in name)
    )


# Dense networks


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """The input of a dense layer and the gradient of the loss at its output, for every example."""

    name: str  # with a trailing dot, unless the network is this one layer
    into: Tensor  # [examples, inputs]
    slope: Tensor  # [examples, outputs]


def layers_of(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Callable[[Params], list[DenseLayer]]:
    """Return a function that records inputs and output gradients of all dense layers of a copy of the network."""
    network, measure = copy.deepcopy(model).double().eval(), example_loss(loss)
    seen: list[tuple[str, Tensor, Tensor]] = []

    def note(name: str, own: nn.Module, into: tuple[Tensor, ...], out: Tensor) -> None:
        seen.append((f"{name}." if name else "", into[0].detach(), out))

    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(partial(note, name))

    def layers(params: Params) -> list[DenseLayer]:
        seen.clear()
        with torch.enable_grad():
            leaves = each(lambda value: value.detach().double().requires_grad_(), params)
            total = measure(functional_call(network, leaves, (x,)), y).sum()
            slopes = torch.autograd.grad(total, [out for _, _, out in seen])
        return [
            DenseLayer(name=name, into=into, slope=slope) for (name, into, _), slope in zip(seen, slopes, strict=True)
        ]

    return layers


@dataclass(frozen=True, kw_only=True)
class _ByLayers(RecordGradients):
    """Gradients of a dense network, layer by layer."""

    layers: tuple[DenseLayer, ...]
    inputs: Tensor  # inner products of the examples [examples, examples]
    biases: frozenset[str]

    def inner(self, other: RecordGradients) -> Tensor:
        """Return the inner products; a layer with one output needs one product of matrices only."""
        assert isinstance(other, _ByLayers)
        total = torch.zeros_like(self.inputs)
        for place, (left, right) in enumerate(zip(self.layers, other.layers, strict=True)):
            bias = f"{left.name}bias" in self.biases
            if left.slope.shape[1] == 1:
                total.addmm_(_rows(left, bias), _rows(right, bias).T)
                continue
            products = left.into @ right.into.T if place else self.inputs
            total.addcmul_(products + 1.0 if bias else products, left.slope @ right.slope.T)
        return total

    def along(self, direction: Params) -> Tensor:
        """Return the inner products with a direction."""
        total = torch.zeros_like(self.inputs[0])
        for layer in self.layers:
            reached = layer.into @ direction[f"{layer.name}weight"].double().T
            if f"{layer.name}bias" in self.biases:
                reached = reached + direction[f"{layer.name}bias"].double()
            total += (layer.slope * reached).sum(1)
        return total


def _rows(layer: DenseLayer, bias: bool) -> Tensor:
    """Return the whole gradients of a layer with one output [examples, inputs (+ 1)]."""
    rows = torch.cat([layer.into, torch.ones_like(layer.slope)], 1) if bias else layer.into
    return rows * layer.slope


# Other networks


def example_gradients(model: nn.Module, loss: str, params: Params, buffers: Params, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of each example's loss in evaluation mode, float64 [examples, parameters]."""
    network, measure = copy.deepcopy(model).eval(), example_loss(loss)

    def loss_of_one(inner: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
        output = functional_call(network, ({**inner, **buffers},), (example[None],))
        return measure(output, target[None])[0]

    by_name = vmap(grad(loss_of_one), in_dims=(None, 0, 0))({n: v.detach() for n, v in params.items()}, x, y)
    return torch.cat([by_name[name].flatten(1) for name in params], dim=1).detach().double()


@dataclass(frozen=True, kw_only=True)
class _InBlocks(RecordGradients):
    """Gradients of any network, computed in blocks whenever they are needed."""

    params: Params
    examples: int
    rows: Callable[[slice], Tensor]  # gradients of some examples [some, parameters]

    def _blocks(self) -> Iterator[slice]:
        size = max(1, ENTRIES_OF_BLOCK // element_count(self.params))
        return (slice(start, min(self.examples, start + size)) for start in range(0, self.examples, size))

    def inner(self, other: RecordGradients) -> Tensor:
        """Return the inner products, two blocks at a time."""
        assert isinstance(other, _InBlocks)
        by_block = []
        for left in self._blocks():
            held = self.rows(left)
            by_block.append(torch.cat([held @ other.rows(right).T for right in self._blocks()], 1))
        return torch.cat(by_block)

    def along(self, direction: Params) -> Tensor:
        """Return the inner products with a direction."""
        vector = flatten({name: direction[name] for name in self.params}).double()
        return torch.cat([self.rows(block) @ vector for block in self._blocks()])


ENTRIES_HELD = 25_000_000  # of formed gradients of convolutions and the like


def _general_gradients_at(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> GradientsAt:
    """Return the gradients of a network of any layers: layer by layer where all are known, else in blocks."""
    calls_at = _calls_at(model, loss)

    def gradients(params: Params, buffers: Params) -> RecordGradients:
        parts = None if calls_at is None else _parts(partial(calls_at, params, buffers), buffers, x, y)
        if parts is not None:
            return _ByParts(parts=parts)
        rows = partial(example_gradients, model, loss, params, buffers)
        return _InBlocks(params=params, examples=len(x), rows=lambda at: rows(x[at], y[at]))

    return gradients


def _parts(
    calls_of: Callable[[Tensor, Tensor], list[tuple[_Call, Tensor]] | None], buffers: Params, x: Tensor, y: Tensor
) -> tuple[_LayerPart, ...] | None:
    """Return the gradients of every layer; None where a layer is not called once, or they are too many to be held."""
    pieces: list[list[_LayerPart]] = []
    for some, targets in zip(x.split(RECORDS_AT_ONCE), y.split(RECORDS_AT_ONCE), strict=True):
        calls = calls_of(some, targets)
        formed = sum(_size(call.layer) for call, _ in calls or () if not _is_plain(call))
        if calls is None or len(x) * formed > ENTRIES_HELD:
            return None
        pieces.append([_layer_part(call, slope, buffers) for call, slope in calls])
    return tuple(map(_joined, zip(*pieces, strict=True)))


@dataclass(frozen=True, kw_only=True)
class _LayerPart:
    """The gradients of one layer: left and right factors of a dense layer with a bias, or rows, float64."""

    names: tuple[str, ...]  # of its parameters: weight, then bias if any
    slope: Tensor | None  # of a dense layer [examples, outputs]
    rows: Tensor  # its input, with a 1 for a bias [examples, inputs (+ 1)], or whole gradients [examples, parameters]

    def inner(self, other: _LayerPart) -> Tensor:
        """Return the inner products [examples, examples]."""
        products = self.rows @ other.rows.T
        return products if self.slope is None or other.slope is None else products * (self.slope @ other.slope.T)

    def along(self, direction: Params) -> Tensor:
        """Return the inner products with one direction [examples]."""
        parts = [direction[name].double() for name in self.names]
        if self.slope is None:
            return self.rows @ torch.cat([part.flatten() for part in parts])
        across = torch.cat([part.reshape(self.slope.shape[1], -1) for part in parts], 1)  # [outputs, inputs (+ 1)]
        return (self.slope * (self.rows @ across.T)).sum(1)


def _layer_part(call: _Call, slope: Tensor, buffers: Params) -> _LayerPart:
    names = tuple(f"{call.prefix}{name}" for name, _ in call.layer.named_parameters())
    if _is_plain(call):
        ones = [torch.ones_like(slope[:, :1])] * (len(names) - 1)
        return _LayerPart(names=names, slope=slope.double(), rows=torch.cat([call.into, *ones], 1).double())
    formed = [torch.cat([part[name].flatten(1) for name in names], 1) for part in _formed(call, slope, buffers)]
    return _LayerPart(names=names, slope=None, rows=torch.cat(formed).double())


def _joined(pieces: Sequence[_LayerPart]) -> _LayerPart:
    """Return the gradients of one layer of all examples."""
    slopes = [piece.slope for piece in pieces if piece.slope is not None]
    rows = torch.cat([piece.rows for piece in pieces])
    return replace(pieces[0], slope=torch.cat(slopes) if slopes else None, rows=rows)


@dataclass(frozen=True, kw_only=True)
class _ByParts(RecordGradients):
    """Gradients of a network whose layers are all known, layer by layer."""

    parts: tuple[_LayerPart, ...]

    def inner(self, other: RecordGradients) -> Tensor:
        """Return the sum of the layers' inner products."""
        assert isinstance(other, _ByParts)
        return torch.stack([left.inner(right) for left, right in zip(self.parts, other.parts, strict=True)]).sum(0)

    def along(self, direction: Params) -> Tensor:
        """Return the inner products with a direction."""
        return torch.stack([part.along(direction) for part in self.parts]).sum(0)


# Products with directions

ENTRIES_AT_ONCE = 20_000_000  # numbers of patches or gradients held at a time
RECORDS_AT_ONCE = 256

# Parameters, buffers, records and directions in; inner products [records, directions] and squared lengths [records] out
Products = Callable[[Params, Params, Tensor, Tensor, Sequence[Params]], tuple[Tensor, Tensor]]


def record_products(model: nn.Module, loss: str) -> Products:
    """Return the function that computes the products of this network, by its layers where they allow it."""
    whole, by_layers = partial(_by_whole_gradients, model, loss), _by_layers(model, loss)

    def products(
        params: Params, buffers: Params, x: Tensor, y: Tensor, directions: Sequence[Params]
    ) -> tuple[Tensor, Tensor]:
        if by_layers is not None:
            found = by_layers(params, buffers, x, y, directions)
            if found is not None:
                return found
        return whole(params, buffers, x, y, directions)

    return products


def cosines(dots: Tensor, squares: Tensor, directions: Sequence[Params]) -> Tensor:
    """Return cosines [records, directions] of these products; 0 where a gradient or a direction is zero."""
    lengths = torch.stack([flatten(direction).norm() for direction in directions])
    scale = squares.sqrt()[:, None] * lengths.to(squares)
    return torch.where(scale == 0, torch.zeros_like(dots), dots / scale)


def _by_whole_gradients(
    model: nn.Module, loss: str, params: Params, buffers: Params, x: Tensor, y: Tensor, directions: Sequence[Params]
) -> tuple[Tensor, Tensor]:
    """Form the gradient of every record, a piece of the records at a time."""
    across = torch.stack([flatten({name: one[name] for name in params}).double() for one in directions], 1)
    rows = max(1, min(RECORDS_AT_ONCE, ENTRIES_AT_ONCE // element_count(params)))
    dots, squares = [], []
    for part, target in zip(x.split(rows), y.split(rows), strict=True):
        gradients = example_gradients(model, loss, params, buffers, part, target)  # [records, parameters]
        dots.append(gradients @ across)
        squares.append(gradients.square().sum(1))
    return torch.cat(dots).to(x.dtype), torch.cat(squares).to(x.dtype)


# By layers

Attempt = Callable[[Params, Params, Tensor, Tensor, Sequence[Params]], tuple[Tensor, Tensor] | None]


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of a layer: its input and its output, one row per record."""

    prefix: str  # its name with a trailing dot, empty where the network is this one layer
    layer: nn.Module
    into: Tensor
    out: Tensor


# Parameters, buffers and records in; every layer's call with the gradient at its output, or None, out
CallsAt = Callable[[Params, Params, Tensor, Tensor], list[tuple[_Call, Tensor]] | None]


def _calls_at(model: nn.Module, loss: str) -> CallsAt | None:
    """Return what records all layers' calls; None where a trainable parameter belongs to no known layer or to several.

    It returns None where a layer is used twice, or read without being called.
    """
    network, measure = copy.deepcopy(model).eval(), example_loss(loss)
    known = {f"{name}." if name else "": layer for name, layer in network.named_modules() if _is_known(layer)}
    covered = {f"{prefix}{name}" for prefix, layer in known.items() for name, _ in layer.named_parameters()}
    if shares_tensors(model) or covered != {name for name, value in model.named_parameters() if value.requires_grad}:
        return None
    calls: list[_Call] = []

    def note(prefix: str, layer: nn.Module, into: tuple[Tensor, ...], out: Tensor) -> Tensor:
        calls.append(_Call(prefix=prefix, layer=layer, into=into[0].detach(), out=out))
        return out.clone()  # what follows may write into it

    for prefix, layer in known.items():
        layer.register_forward_hook(partial(note, prefix))

    def calls_at(params: Params, buffers: Params, x: Tensor, y: Tensor) -> list[tuple[_Call, Tensor]] | None:
        calls.clear()
        leaves = each(lambda value: value.detach().requires_grad_(), params)
        with torch.enable_grad():
            total = measure(functional_call(network, ({**leaves, **buffers},), (x,)), y).sum()
            if sorted(call.prefix for call in calls) != sorted(known):
                return None
            slopes = torch.autograd.grad(total, [call.out for call in calls])
        found = list(zip(calls, slopes, strict=True))
        calls.clear()
        return found

    return calls_at


def _by_layers(model: nn.Module, loss: str) -> Attempt | None:
    """Return the products by layers; None where not all layers are known."""
    calls_at = _calls_at(model, loss)
    if calls_at is None:
        return None

    def attempt(
        params: Params, buffers: Params, x: Tensor, y: Tensor, directions: Sequence[Params]
    ) -> tuple[Tensor, Tensor] | None:
        pieces = []
        for part, target in zip(x.split(RECORDS_AT_ONCE), y.split(RECORDS_AT_ONCE), strict=True):
            calls = calls_at(params, buffers, part, target)
            if calls is None:
                return None
            by_layer = [_of_layer(call, slope, buffers, directions) for call, slope in calls]
            pieces.append([torch.stack(values).sum(0) for values in zip(*by_layer, strict=True)])
        dots, squares = (torch.cat(values) for values in zip(*pieces, strict=True))
        return dots, squares

    return attempt


def _is_plain(call: _Call) -> bool:
    """Return whether this is a dense layer that sees one place of each record."""
    return isinstance(call.layer, nn.Linear) and call.into.ndim == 2


def _is_known(layer: nn.Module) -> bool:
    """Return whether all parameters of a layer are trained and products of their gradients are computed here."""
    if not any(True for _ in layer.parameters()) or not all(value.requires_grad for value in layer.parameters()):
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) or (isinstance(layer, _BatchNorm) and layer.track_running_stats)


def _of_layer(call: _Call, slope: Tensor, buffers: Params, directions: Sequence[Params]) -> tuple[Tensor, Tensor]:
    """Return the part of one layer in inner products [records, directions] and squared lengths [records]."""
    weight, bias = f"{call.prefix}weight", f"{call.prefix}bias"
    if _is_plain(call):
        along = [functional.linear(call.into, one[weight], one.get(bias)) for one in directions]
        inputs = call.into.square().sum(1) + (0.0 if call.layer.bias is None else 1.0)
        return torch.stack([(slope * part).sum(1) for part in along], 1), slope.square().sum(1) * inputs
    dots, squares = [], []
    for gradients in _formed(call, slope, buffers):
        across = torch.stack([flatten({name: one[name] for name in gradients}) for one in directions], 1)
        rows = torch.cat([value.flatten(1) for value in gradients.values()], 1)  # [records, parameters]
        dots.append(rows @ across)
        squares.append(rows.square().sum(1))
    return torch.cat(dots), torch.cat(squares)


def _formed(call: _Call, slope: Tensor, buffers: Params) -> Iterator[dict[str, Tensor]]:
    """Yield the gradients of the layer's parameters, [records, ...] by name, a piece of the records at a time."""
    names = [f"{call.prefix}{name}" for name, _ in call.layer.named_parameters()]  # weight, then bias if any
    statistics = [
        buffers.get(f"{call.prefix}{name}", getattr(call.layer, name, None)) for name in ("running_mean", "running_var")
    ]
    size = _entries(call.layer, slope)
    rows = max(1, ENTRIES_AT_ONCE // size)
    for into, part in zip(call.into.split(rows), slope.split(rows), strict=True):
        yield dict(zip(names, _gradients(call.layer, into, part, statistics), strict=False))


def _size(layer: nn.Module) -> int:
    return sum(value.numel() for value in layer.parameters())


def _entries(layer: nn.Module, slope: Tensor) -> int:
    """Return the largest number of entries that one record's gradient of a layer, or its patches, take."""
    size = _size(layer)
    if not isinstance(layer, nn.Conv2d):
        return size
    return max(size, slope[0, 0].numel() * layer.weight[0].numel())


def _gradients(
    layer: nn.Module, into: Tensor, slope: Tensor, statistics: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    """Return every record's gradient of weight and bias, for an input [records, ...] and the gradient at the output."""
    if isinstance(layer, _BatchNorm):
        normal = functional.batch_norm(into, statistics[0], statistics[1], eps=layer.eps)
        weight, bias = slope * normal, slope  # [records, channels, ...]
        return (weight, bias) if slope.ndim == 2 else (weight.flatten(2).sum(-1), bias.flatten(2).sum(-1))
    if isinstance(layer, nn.Conv2d):
        sizes = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        patches = functional.unfold(into, *sizes)  # type: ignore[arg-type]  # [records, inputs, places]
        return slope.flatten(2) @ patches.transpose(1, 2), slope.flatten(2).sum(-1)
    into, slope = into.flatten(1, -2), slope.flatten(1, -2)  # [records, places, ...]
    return slope.transpose(1, 2) @ into, slope.sum(1)
