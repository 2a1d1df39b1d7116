"""Differentiable replay of a client's round: a guess of its inputs and labels becomes the update it would have sent.

Holds also the recipes that approximate a round of many local steps by few (FedSGD baselines), and a fast average
pooling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedxray.defences.base import IDENTITY, Hooks
from fedxray.errors import BadInput
from fedxray.federation.local import (
    Batch,
    Layer,
    Objective,
    local_update,
    shares_tensors,
    stacked_layers,
    stacked_objective,
)
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.losses import example_loss
from fedxray.models.inspect import batch_norm_layers
from fedxray.params import Params, buffers_of, each, scaled

# Average pooling as one matrix product, which is faster to differentiate twice than torch's own kernel

Pair = tuple[int, int]


def quicken(network: nn.Module) -> None:
    """Replace, in place, every average pooling over adjacent windows by a matrix product."""
    for layer in network.modules():
        if type(layer) is nn.AvgPool2d and _tiles(layer):
            vars(layer)["forward"] = partial(average_pool, size=_pair(layer.kernel_size))


def average_pool(x: Tensor, size: Pair) -> Tensor:
    """Return avg_pool2d of x [..., h, w] over adjacent windows; shape [..., h / high, w / wide]."""
    high, wide = size
    rows, columns = x.shape[-2] // high, x.shape[-1] // wide
    inside = x[..., : rows * high, : columns * wide]
    bands = inside.reshape(-1, high * columns * wide)  # rows of pixels that share a row of windows, concatenated
    return (bands @ _windows(columns, size, x)).reshape(*x.shape[:-2], rows, columns)


def _windows(columns: int, size: Pair, like: Tensor) -> Tensor:
    """Return the weight of each pixel of a band in each window, [high * columns * wide, columns]."""
    high, wide = size
    means = torch.eye(columns, dtype=like.dtype, device=like.device) / (high * wide)
    return means.repeat_interleave(wide, 0).repeat(high, 1)


def _tiles(layer: nn.AvgPool2d) -> bool:
    """Return whether every pixel is in at most one window, and all windows have equal weights."""
    plain = _pair(layer.padding) == (0, 0) and not layer.ceil_mode and layer.divisor_override is None
    return plain and _pair(layer.kernel_size) == _pair(layer.stride)


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


# Bytes of parameters, over all steps, up to which the whole graph of a round is kept; for the papers' networks the
# graph then takes two to three times as much.
MOST_HELD = 400_000_000

# BatchNorm by the statistics of the batch, as clients train, or by the running ones.
BatchNorm = Literal["batch", "running"]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One client's round as a function of its inputs and labels; build it with `replay`."""

    start: Params
    buffers: Params
    recipe: Recipe
    evaluate: Objective
    order: Tensor | None  # [uses] indices into the guess, step after step; None: each once, in order
    sizes: tuple[int, ...]  # examples of every step
    examples: int
    segment: int | None = None  # steps in the graph at a time; None: all of them
    hooks: Hooks = IDENTITY  # deterministic parts of the client's defence, where known
    weights: Params | None = None  # weights of entries of the update, where they differ
    noise: float = 0.0  # known variance of the noise in every entry of the update
    negated: bool = False  # whether `update` returns minus the update; see `as_gradient`
    layers: Sequence[Layer] | None = None  # of a network that can be stacked
    guesses: int | None = None  # stacked guesses; all tensors then have one more leading dimension

    def update(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the update, differentiable in x [examples, ...] and in y where that holds no class numbers.

        Where the replay is `negated` it is minus the update.
        """
        sizes = [value.shape[self.guesses is not None] for value in (x, y)]
        if sizes != [self.examples] * 2:
            got = f"{sizes[0]} inputs and {sizes[1]} labels"
            raise BadInput(
                "x", expected=f"{self.examples} of both", got=got, remedy="Give as many as the schedule uses."
            )
        batches = [Batch(x=part, y=label) for part, label in zip(self._cut(x), self._cut(y), strict=True)]
        # The fast attention kernels cannot be differentiated twice.
        with sdpa_kernel(SDPBackend.MATH):
            result = local_update(
                self.start,
                self.buffers,
                batches,
                self.recipe,
                self.evaluate,
                hooks=self.hooks,
                keep_graph=True,
                segment=self.segment if self.hooks is IDENTITY else None,
                negated=self.negated,
                summed=True,
            )
        if self.weights is None:
            return result.update
        return {name: value * self.weights[name] for name, value in result.update.items()}

    def as_gradient(self, aim: Params) -> tuple[Replay, Params]:
        """Return replay and target update, both negated where that saves passes over all parameters.

        The update of FedSGD is minus the gradient. A distance is the same if both of its sides are negated, so the
        observed side is, once.
        """
        if self.recipe.kind != "gradient" or self.hooks is not IDENTITY or self.negated:
            return self, aim
        return replace(self, negated=True), scaled(aim, -1.0)

    def stacked(self, guesses: int) -> Replay | None:
        """Return the replay of several guesses at once, x and y [guesses, examples, ...]; None where that is unknown.

        Only plain stacks of dense layers without a defence, whose graph fits into memory for all guesses, are known.
        """
        held = segment_length(guesses * len(self.sizes), self.start)
        if self.layers is None or self.hooks is not IDENTITY or held is not None:
            return None
        start = {name: value.expand(guesses, *value.shape) for name, value in self.start.items()}
        return replace(self, start=start, evaluate=stacked_objective(self.layers, self.recipe.loss), guesses=guesses)

    def shown(self, x: Tensor) -> Tensor:
        """Return a guess [examples, ...] with both images of an averaged pair replaced by their mean."""
        if self.hooks.mixed != "pairs":
            return x
        averaged = x.clone()
        order = torch.arange(self.examples, device=x.device) if self.order is None else self.order
        for places in torch.split(order, list(self.sizes)):
            half = len(places) // 2
            first, second = places[:half], places[half : 2 * half]
            averaged[first] = averaged[second] = (x[first] + x[second]) / 2
        return averaged

    def _cut(self, values: Tensor) -> tuple[Tensor, ...]:
        """Return the examples of every step; one gather for all, so that its gradient is one scatter."""
        axis = int(self.guesses is not None)
        used = values if self.order is None else values.index_select(axis, self.order)
        return torch.split(used, list(self.sizes), axis)


def replay(
    model: nn.Module,
    start: Params,
    recipe: Recipe,
    schedule: Schedule,
    *,
    buffers: Params | None = None,
    batch_norm: BatchNorm = "batch",
) -> Replay:
    """Return a client's round from `start`, by its recipe, in the order of the schedule; the model is not changed."""
    rows = [schedule.used(step) for step in range(schedule.steps)]
    order = torch.cat(rows)
    examples = int(order.max()) + 1 if len(order) else 0
    straight = torch.equal(order, torch.arange(examples, dtype=order.dtype, device=order.device))
    device = next(iter(start.values())).device
    network = quiet_copy(model, batch_norm)
    return Replay(
        start=start,
        buffers={**buffers_of(model), **(buffers or {})},
        recipe=recipe,
        evaluate=_objective(network, recipe.loss),
        layers=stacked_layers(network),
        order=None if straight else order.to(device),
        sizes=tuple(len(row) for row in rows),
        examples=examples,
        segment=segment_length(schedule.steps, start),
    )


def segment_length(steps: int, start: Params) -> int | None:
    """Return the square root of the number of steps where the graph of all would be too large, else None."""
    held = steps * sum(value.numel() * value.element_size() for value in start.values())
    return None if held <= MOST_HELD else math.isqrt(steps - 1) + 1


def straight_schedule(examples: int, recipe: Recipe) -> Schedule:
    """Return a schedule with the examples in the order of the guess, the same in every epoch."""
    length = recipe.batch_length(examples)
    missing = -examples % length
    filled = torch.cat([torch.arange(examples, device="cpu"), torch.full((missing,), -1, device="cpu")])
    epochs = 1 if recipe.algorithm == "fedsgd" else recipe.epochs
    return Schedule(filled.reshape(-1, length).repeat(epochs, 1))


def schedule_of_epochs(examples: int, recipe: Recipe) -> Schedule:
    """Return a schedule with the same batches in every epoch, but separate examples for each epoch, consecutively."""
    once = straight_schedule(examples, recipe).index
    batches = -(-examples // recipe.batch_length(examples))
    epochs = torch.arange(len(once), device=once.device) // batches
    return Schedule(torch.where(once >= 0, once + examples * epochs[:, None], once))


def quiet_copy(model: nn.Module, batch_norm: BatchNorm) -> nn.Module:
    """Return a deterministic copy: dropout off, BatchNorm as given."""
    copy = deepcopy(model).eval()
    for layer in batch_norm_layers(copy).values():
        layer.train(batch_norm == "batch")
    quicken(copy)
    return copy


def _objective(network: nn.Module, loss: str) -> Objective:
    """Return the mean loss of a batch, with the network in its current modes (dropout of a client is not replayed)."""
    measure, shared = example_loss(loss), shares_tensors(network)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        fresh = each(torch.clone, buffers)  # BatchNorm writes into its buffers
        output = functional_call(network, ({**params, **fresh},), (batch.x,), tie_weights=shared)
        return measure(output, batch.y).mean(), fresh

    return evaluate


# Recipes of the FedSGD baselines: a round of many local steps approximated by few


def one_step(recipe: Recipe, examples: int) -> Recipe:
    """Return the recipe of one step on all examples, equal to all the client's steps on a constant gradient."""
    pull = pulled(recipe, recipe.steps(examples))
    return _full_batches(recipe, epochs=1, learning_rate=recipe.learning_rate * pull)


def one_step_per_epoch(recipe: Recipe, examples: int) -> Recipe:
    """Return the recipe of one step on all examples per epoch, together equal to all steps on a constant gradient."""
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    pull = pulled(recipe, recipe.steps(examples)) / epochs
    return _full_batches(recipe, epochs=epochs, learning_rate=recipe.learning_rate * pull)


def pulled(recipe: Recipe, steps: int) -> float:
    """Return the total weight of a constant gradient after `steps` steps: `steps` without momentum, more with it."""
    if not recipe.momentum:
        return float(steps)
    return sum((1 - recipe.momentum**step) / (1 - recipe.momentum) for step in range(1, steps + 1))


def _full_batches(recipe: Recipe, *, epochs: int, learning_rate: float) -> Recipe:
    return replace(recipe, epochs=epochs, batch_size="all", learning_rate=learning_rate, momentum=0.0)
