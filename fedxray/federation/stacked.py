"""Several clients' networks side by side: one more leading dimension on every parameter, one product for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.federation.local import Batch, Objective, mean_loss
from fedxray.losses import example_loss
from fedxray.params import Params

# Layers without parameters that treat every entry by itself, so that stacked clients change nothing.
ENTRYWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Identity)

Layer = Callable[[Params, Tensor], Tensor]  # stacked parameters, [clients, examples, ...] -> the same


def stacked_layers(model: nn.Module) -> list[Layer] | None:
    """The network layer by layer for stacked parameters; None unless it is a plain nn.Sequential of known layers.

    A user's own class may do anything in its forward, shared or frozen parameters are not among the trainable ones
    by name: all of these train one client at a time.
    """
    trainable = {name for name, value in model.named_parameters() if value.requires_grad}
    layers = list(_layers(model, "", trainable))
    known = [layer for layer in layers if layer is not None]
    return known if len(known) == len(layers) else None


def _layers(module: nn.Module, name: str, trainable: set[str]) -> Iterator[Layer | None]:
    """The layers of a module in order, None for one that is not known."""
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    if type(module) is nn.Sequential and not hooked:
        for child, inner in module._modules.items():  # named_children leaves out a layer that comes twice
            yield from _layers(inner, f"{name}{child}.", trainable)
    elif type(module) is nn.Linear and not hooked:
        bias = None if module.bias is None else f"{name}bias"
        found = {f"{name}weight", bias} - {None} <= trainable
        yield partial(_linear, f"{name}weight", bias) if found else None
    elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1) and not hooked:
        yield _flatten
    else:
        yield partial(_entrywise, module) if type(module) in ENTRYWISE and not hooked else None


def _linear(weight: str, bias: str | None, params: Params, x: Tensor) -> Tensor:
    """A linear layer per client: x [clients, ..., features], weight [clients, outputs, features]."""
    rows, turned = x.flatten(1, -2), params[weight].transpose(1, 2)
    found = torch.bmm(rows, turned) if bias is None else torch.baddbmm(params[bias][:, None], rows, turned)
    return found.reshape(*x.shape[:-1], found.shape[-1])


def _flatten(params: Params, x: Tensor) -> Tensor:
    return x.flatten(2)


def _entrywise(module: nn.Module, params: Params, x: Tensor) -> Tensor:
    if type(module) is nn.ReLU:
        return functional.relu(x)  # never in place: the input may be a leaf
    found: Tensor = module(x)
    return found


def stacked_objective(layers: list[Layer], loss: str) -> Objective:
    """The sum over stacked clients of their mean losses; its gradient holds every client's own."""
    measure = example_loss(loss)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output = batch.x
        for layer in layers:
            output = layer(params, output)
        return mean_loss(measure(output, batch.y), batch.weight).sum(), dict(buffers)

    return evaluate
