"""Gradients of single records at given models, and their inner products with each other and with updates.

In a network of dense layers the gradient of one example at a layer is the outer product of the layer's input a and the
gradient e of the loss at its output. So two gradients have the inner product (a_i . a_j + 1)(e_i . e_j), where the 1 is
the bias, and none of them is ever formed. Other networks have their gradients computed block by block. Networks are in
evaluation mode, so that BatchNorm and Dropout are approximated; everything is float64.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedxray.federation.stacked import stacked_layers
from fedxray.losses import example_loss
from fedxray.params import Params, each, element_count, flatten

ENTRIES_AT_ONCE = 8_000_000  # entries of gradients in one of the two blocks of a general network


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
        return lambda params, buffers: _InBlocks(
            params=params,
            examples=len(x),
            rows=lambda at: example_gradients(model, loss, params, buffers, x[at], y[at]),
        )
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
        size = max(1, ENTRIES_AT_ONCE // element_count(self.params))
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
