"""Which examples enter which local step: drawn outside the training, so that it can be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.defences.base import Sampling
from fedxray.federation.recipe import Recipe
from fedxray.seeds import permutation


@dataclass(frozen=True)
class Schedule:
    """Indices of the examples of every local step, shape [steps, batch]; -1 fills a smaller last batch."""

    index: Tensor

    @property
    def steps(self) -> int:
        """Number of local steps."""
        return int(self.index.shape[0])

    @property
    def width(self) -> int:
        """Examples in the largest batch."""
        return int(self.index.shape[1])

    def used(self, step: int) -> Tensor:
        """Indices of one step without the filling."""
        row = self.index[step]
        return row[row >= 0]

    def rows(self) -> Iterator[Tensor]:
        """Indices step by step without the filling, which stands at the end of a row."""
        for row, count in zip(self.index, (self.index >= 0).sum(1).tolist(), strict=True):
            yield row[:count]


def draw_schedule(examples: int, recipe: Recipe, generator: torch.Generator) -> Schedule:
    """The batches of one client in one round: an order per epoch, cut into batches, the last one smaller."""
    length = recipe.batch_length(examples)
    if recipe.algorithm == "fedsgd":
        return Schedule(torch.arange(examples, device="cpu")[None])
    once = (
        permutation(examples, generator) if recipe.shuffle == "once" else torch.arange(examples, device="cpu")
    )
    epochs = []
    for _ in range(recipe.epochs):
        order = permutation(examples, generator) if recipe.shuffle == "epoch" else once
        epochs.append(_cut(order, length))
    return Schedule(torch.cat(epochs))


def draw_by_chance(steps: int, examples: int, sampling: Sampling, generator: torch.Generator) -> Schedule:
    """Poisson batches: in every step each example comes by itself with the same chance; a step may be empty.

    In pairs, a fresh order of all examples is cut into pairs, and each pair comes by itself, its two side by side.
    """
    drawn = []
    for _ in range(steps):
        order = permutation(examples, generator) if sampling.pairs else torch.arange(examples, device="cpu")
        size = 2 if sampling.pairs else 1
        chance = torch.rand(-(-examples // size), generator=generator, dtype=torch.float64, device="cpu")
        drawn.append(order[(chance < sampling.rate).repeat_interleave(size)[:examples]])
    width = max((len(row) for row in drawn), default=0)
    return Schedule(torch.stack([_filled(row, width) for row in drawn]))


def _filled(row: Tensor, width: int) -> Tensor:
    """A row with -1 at its end."""
    filling = torch.full((width - row.numel(),), -1, dtype=row.dtype, device=row.device)
    return torch.cat([row, filling])


def _cut(order: Tensor, length: int) -> Tensor:
    """An order as rows of equal length, filled with -1 at the end, shape [batches, length]."""
    return _filled(order, order.numel() + -order.numel() % length).reshape(-1, length)
