"""Replays a client: a guess of its inputs and labels becomes the update it would have sent."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedxray.attacks.inversion.quick_pooling import quicken
from fedxray.defences.base import IDENTITY, Seams
from fedxray.errors import BadInput
from fedxray.federation.local import Batch, Objective, local_update, shares_tensors
from fedxray.federation.recipe import Recipe
from fedxray.federation.schedule import Schedule
from fedxray.losses import example_loss
from fedxray.models.inspect import batch_norm_layers
from fedxray.params import Params, buffers_of, each

# Bytes of parameters, over all steps, up to which the whole graph of a round is kept. For networks as the papers' the
# graph then takes two to three times as much.
MOST_HELD = 400_000_000

# Whether BatchNorm uses the statistics of the batch, as training clients do, or the running ones.
BatchNorm = Literal["batch", "running"]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One client's round, waiting for its inputs and labels; build it with `replay`."""

    start: Params
    buffers: Params
    recipe: Recipe
    evaluate: Objective
    order: Tensor | None  # [uses] places of the guess, step after step; None when each is used once, in order
    sizes: tuple[int, ...]  # examples of every step
    examples: int
    segment: int | None = None  # steps in the graph at a time; None: all of them
    seams: Seams = IDENTITY  # what is known for certain of the client's defence
    weights: Params | None = None  # what an entry of the update counts, where some count less
    noise: float = 0.0  # known variance of the noise in every entry of the update

    def update(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The update, differentiable in x [examples, ...] and in y where it is not class numbers."""
        if len(x) != self.examples or len(y) != self.examples:
            got = f"{len(x)} inputs and {len(y)} labels"
            raise BadInput(
                "x", expected=f"{self.examples} of both", got=got, remedy="The schedule tells how many."
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
                seams=self.seams,
                keep_graph=True,
                segment=self.segment if self.seams is IDENTITY else None,
            )
        if self.weights is None:
            return result.update
        return {name: value * self.weights[name] for name, value in result.update.items()}

    def shown(self, x: Tensor) -> Tensor:
        """A guess [examples, ...] as far as the update could tell it: of averaged pairs both are their average."""
        if self.seams.mixed != "pairs":
            return x
        found = x.clone()
        order = torch.arange(self.examples, device=x.device) if self.order is None else self.order
        for places in torch.split(order, list(self.sizes)):
            half = len(places) // 2
            first, second = places[:half], places[half : 2 * half]
            found[first] = found[second] = (x[first] + x[second]) / 2
        return found

    def _cut(self, values: Tensor) -> tuple[Tensor, ...]:
        """The examples of every step; one gather for all, so that its gradient is one scatter."""
        used = values if self.order is None else values.index_select(0, self.order)
        return torch.split(used, list(self.sizes))


def replay(
    model: nn.Module,
    start: Params,
    recipe: Recipe,
    schedule: Schedule,
    *,
    buffers: Params | None = None,
    batch_norm: BatchNorm = "batch",
) -> Replay:
    """A client's round from `start`, by its recipe, in the given order; the model itself is left alone."""
    rows = [schedule.used(step) for step in range(schedule.steps)]
    order = torch.cat(rows)
    examples = int(order.max()) + 1 if len(order) else 0
    straight = torch.equal(order, torch.arange(examples, dtype=order.dtype, device=order.device))
    device = next(iter(start.values())).device
    return Replay(
        start=start,
        buffers={**buffers_of(model), **(buffers or {})},
        recipe=recipe,
        evaluate=_objective(quiet_copy(model, batch_norm), recipe.loss),
        order=None if straight else order.to(device),
        sizes=tuple(len(row) for row in rows),
        examples=examples,
        segment=segment_length(schedule.steps, start),
    )


def segment_length(steps: int, start: Params) -> int | None:
    """The square root of the number of steps where the graph of all would be too large, else None."""
    held = steps * sum(value.numel() * value.element_size() for value in start.values())
    return None if held <= MOST_HELD else math.isqrt(steps - 1) + 1


def straight_schedule(examples: int, recipe: Recipe) -> Schedule:
    """The examples in the order of the guess, the same in every epoch, for when the order is unknown."""
    length = recipe.batch_length(examples)
    missing = -examples % length
    filled = torch.cat([torch.arange(examples, device="cpu"), torch.full((missing,), -1, device="cpu")])
    epochs = 1 if recipe.algorithm == "fedsgd" else recipe.epochs
    return Schedule(filled.reshape(-1, length).repeat(epochs, 1))


def schedule_of_epochs(examples: int, recipe: Recipe) -> Schedule:
    """The same cut into batches in every epoch, but each epoch with examples of its own, one after the other."""
    once = straight_schedule(examples, recipe).index
    batches = -(-examples // recipe.batch_length(examples))
    epochs = torch.arange(len(once), device=once.device) // batches
    return Schedule(torch.where(once >= 0, once + examples * epochs[:, None], once))


def quiet_copy(model: nn.Module, batch_norm: BatchNorm) -> nn.Module:
    """A copy that draws nothing at random: dropout off, BatchNorm as asked."""
    check_batch_norm(batch_norm)
    copy = deepcopy(model).eval()
    for layer in batch_norm_layers(copy).values():
        layer.train(batch_norm == "batch")
    quicken(copy)
    return copy


def _objective(network: nn.Module, loss: str) -> Objective:
    """The mean loss of a batch, with the network in the modes it is in: training clients would drop at random."""
    measure, shared = example_loss(loss), shares_tensors(network)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        fresh = each(torch.clone, buffers)  # BatchNorm writes into what it is given
        output = functional_call(network, ({**params, **fresh},), (batch.x,), tie_weights=shared)
        return measure(output, batch.y).mean(), fresh

    return evaluate


def check_batch_norm(batch_norm: str) -> None:
    """Refuse a mode that is not there."""
    if batch_norm not in ("batch", "running"):
        raise BadInput(
            "batch_norm", expected='"batch" or "running"', got=repr(batch_norm), remedy='Try "batch".'
        )
