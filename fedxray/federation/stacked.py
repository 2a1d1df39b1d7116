"""Networks of several clients side by side: parameters [clients, ...], inputs [clients, examples, ...].

Only plain stacks of known layers are handled; one batched matrix product then serves all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.federation.local import Batch, Objective, mean_loss
from fedxray.losses import example_loss
from fedxray.params import Params

# Layers without parameters that act on every entry separately, so that the extra dimension changes nothing.
ENTRYWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Identity)

Layer = Callable[[Params, Tensor], Tensor]  # stacked parameters and [clients, examples, ...] in, the same shape out


def stacked_layers(model: nn.Module) -> list[Layer] | None:
    """The network layer by layer for stacked parameters; None unless it is a plain nn.Sequential of known layers.

    A user's own class may do anything in its forward, and shared or frozen parameters are not among the trainable ones
    by name: for all of these the answer is None, and clients are trained one at a time.
    """
    trainable = {name for name, value in model.named_parameters() if value.requires_grad}
    layers = list(_layers(model, "", trainable))
    known = [layer for layer in layers if layer is not None]
    return known if len(known) == len(layers) else None


def _layers(module: nn.Module, name: str, trainable: set[str]) -> Iterator[Layer | None]:
    """The layers of a module in order, None for one that is not known."""
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    if type(module) is nn.Sequential and not hooked:
        for child, inner in module._modules.items():  # named_children leaves out a layer that occurs twice
            yield from _layers(inner, f"{name}{child}.", trainable)
    elif type(module) is nn.Linear and not hooked:
        bias = None if module.bias is None else f"{name}bias"
        all_trainable = {f"{name}weight", bias} - {None} <= trainable
        yield partial(_linear, f"{name}weight", bias) if all_trainable else None
    elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1) and not hooked:
        yield _flatten
    else:
        yield partial(_entrywise, module) if type(module) in ENTRYWISE and not hooked else None


def _linear(weight: str, bias: str | None, params: Params, x: Tensor) -> Tensor:
    """A linear layer per client: x [clients, ..., features], weight [clients, outputs, features]."""
    rows, matrix = (
        x.flatten(1, -2),
        params[weight].transpose(1, 2),
    )  # [clients, rows, features], [.., features, outputs]
    output = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(params[bias][:, None], rows, matrix)
    return output.reshape(*x.shape[:-1], output.shape[-1])


def _flatten(params: Params, x: Tensor) -> Tensor:
    return x.flatten(2)


def _entrywise(module: nn.Module, params: Params, x: Tensor) -> Tensor:
    if type(module) is nn.ReLU:
        return functional.relu(x)  # never in place: the input may be a leaf
    output: Tensor = module(x)
    return output


def stacked_objective(layers: list[Layer], loss: str) -> Objective:
    """The sum over stacked clients of their mean losses: its gradient is the gradient of every client by itself."""
    measure = example_loss(loss)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output = batch.x
        for layer in layers:
            output = layer(params, output)
        return mean_loss(measure(output, batch.y), batch.weight).sum(), dict(buffers)

    return evaluate
