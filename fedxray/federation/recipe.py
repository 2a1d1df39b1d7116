"""The training recipe that clients and server share, and the schedule of batches that follows from it.

A schedule is drawn outside the training, so that a round can be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedxray.defences.base import Sampling
from fedxray.errors import BadInput, check_one_of, check_whole, unknown_name
from fedxray.losses import AUTO, LOSSES
from fedxray.seeds import permutation


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One federation's training recipe; `loss` is the name of a per-example loss, "auto" that of the kind of target.

    With fedsgd a round is one gradient of all examples, for any epochs, batch_size, momentum and shuffle.
    """

    algorithm: Literal["fedsgd", "fedavg", "fedprox"] = "fedavg"
    epochs: int = 1  # local epochs in one round
    batch_size: int | Literal["all"] = 32
    learning_rate: float = 0.01
    momentum: float = 0.0
    mu: float = 0.0  # strength of fedprox's penalty on the distance to the received model
    shuffle: Literal["epoch", "once", "never"] = "epoch"  # when a client draws a new order of its examples
    loss: str = AUTO  # a federation sets it: cross-entropy for classes, mse for numbers
    weighting: Literal["examples", "uniform"] = "examples"  # of the replies in the mean
    server_learning_rate: float = 1.0
    batch_norm: Literal["shared", "local"] = "shared"  # whether running statistics are sent

    def __post_init__(self) -> None:
        """Check every setting."""
        check_one_of("algorithm", self.algorithm, ("fedsgd", "fedavg", "fedprox"))
        check_one_of("shuffle", self.shuffle, ("epoch", "once", "never"))
        check_one_of("weighting", self.weighting, ("examples", "uniform"))
        check_one_of("batch_norm", self.batch_norm, ("shared", "local"))
        object.__setattr__(self, "loss", str(self.loss).lower())  # "MSE" is understood
        if self.loss not in (AUTO, *LOSSES):
            raise unknown_name("loss", self.loss, (AUTO, *LOSSES))
        check_whole("epochs", self.epochs, least=1, usual=1)
        if self.batch_size != "all":
            check_whole("batch_size", self.batch_size, least=1, usual=32)
        _above("learning_rate", self.learning_rate)
        _above("server_learning_rate", self.server_learning_rate)
        if not 0 <= self.momentum < 1:
            raise BadInput(
                "momentum", expected="a number from 0 up to but below 1", got=self.momentum, remedy="Try 0.9."
            )
        if self.mu < 0 or (self.mu > 0 and self.algorithm != "fedprox"):
            remedy = 'Set algorithm = "fedprox" or leave mu out.'
            raise BadInput("mu", expected='a number ≥ 0, with algorithm = "fedprox"', got=self.mu, remedy=remedy)

    @property
    def kind(self) -> Literal["weights", "gradient"]:
        """The kind of a reply: a change of weights, or one gradient."""
        return "gradient" if self.algorithm == "fedsgd" else "weights"

    def batch_length(self, examples: int) -> int:
        """Examples in a full batch of a client with that many examples."""
        return examples if self.batch_size == "all" or self.algorithm == "fedsgd" else min(self.batch_size, examples)

    def steps(self, examples: int) -> int:
        """Local steps in one round of a client with that many examples."""
        if self.algorithm == "fedsgd":
            return 1
        return self.epochs * -(-examples // self.batch_length(examples))


def _above(argument: str, got: float) -> None:
    if not got > 0 or got == float("inf"):
        raise BadInput(argument, expected="a finite number above 0", got=repr(got), remedy="Try 0.01.")


def client_weights(examples: Sequence[int], recipe: Recipe) -> list[float]:
    """The weight of every reply: its number of examples, or one."""
    return [float(count) if recipe.weighting == "examples" else 1.0 for count in examples]


# Schedules of batches


@dataclass(frozen=True)
class Schedule:
    """Indices of the examples of every local step, shape [steps, batch]; -1 pads a smaller batch."""

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
        """Indices of one step without the padding, [examples]."""
        row = self.index[step]
        return row[row >= 0]

    def rows(self) -> Iterator[Tensor]:
        """Indices step by step without the padding, which is at the end of a row."""
        for row, count in zip(self.index, (self.index >= 0).sum(1).tolist(), strict=True):
            yield row[:count]


def draw_schedule(examples: int, recipe: Recipe, generator: torch.Generator) -> Schedule:
    """The batches of one client in one round: an order per epoch, cut into batches, the last one smaller."""
    length = recipe.batch_length(examples)
    if recipe.algorithm == "fedsgd":
        return Schedule(torch.arange(examples, device="cpu")[None])
    once = permutation(examples, generator) if recipe.shuffle == "once" else torch.arange(examples, device="cpu")
    epochs = []
    for _ in range(recipe.epochs):
        order = permutation(examples, generator) if recipe.shuffle == "epoch" else once
        epochs.append(_cut(order, length))
    return Schedule(torch.cat(epochs))


def draw_by_chance(steps: int, examples: int, sampling: Sampling, generator: torch.Generator) -> Schedule:
    """Poisson batches: every step includes each example independently at the same rate; a step may be empty.

    With pairs, a fresh order of all examples is cut into pairs, and each pair is included independently, its two
    examples side by side.
    """
    drawn = []
    for _ in range(steps):
        order = permutation(examples, generator) if sampling.pairs else torch.arange(examples, device="cpu")
        size = 2 if sampling.pairs else 1
        chance = torch.rand(-(-examples // size), generator=generator, dtype=torch.float64, device="cpu")
        drawn.append(order[(chance < sampling.rate).repeat_interleave(size)[:examples]])
    width = max((len(row) for row in drawn), default=0)
    return Schedule(torch.stack([_padded(row, width) for row in drawn]))


def _padded(row: Tensor, width: int) -> Tensor:
    """A row padded with -1 to `width` entries."""
    padding = torch.full((width - row.numel(),), -1, dtype=row.dtype, device=row.device)
    return torch.cat([row, padding])


def _cut(order: Tensor, length: int) -> Tensor:
    """An order cut into rows of equal length, padded with -1 at the end, shape [batches, length]."""
    return _padded(order, order.numel() + -order.numel() % length).reshape(-1, length)
