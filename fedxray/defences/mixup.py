"""Mixup (Zhang et al. 2018): a client trains on mixtures of its examples, never on one of them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.defences.base import Defence, Examples, Seams, State, Told, Work
from fedxray.defences.noise import check_not_negative
from fedxray.errors import BadInput
from fedxray.seeds import permutation


@dataclass(frozen=True, kw_only=True)
class Mixup(Defence):
    """Every local step sees mixtures of inputs and of targets in place of its examples.

    With mix = "pairs" neighbours in a batch are averaged, so that each example enters one mixture (Driouich et al.);
    of an odd number the last stays alone. With mix = "drawn" every example is mixed with another of its batch, by a
    weight from Beta(alpha, alpha) for each batch, and enters two mixtures.
    """

    name: ClassVar[str] = "mixup"
    mix: Literal["pairs", "drawn"] = "pairs"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_not_negative("alpha", self.alpha)
        if self.alpha == 0:
            raise BadInput("alpha", expected="a number above 0", got=self.alpha, remedy="Try alpha = 1.0.")
        if self.mix not in ("pairs", "drawn"):
            expected = 'one of "pairs", "drawn"'
            raise BadInput("mix", expected=expected, got=repr(self.mix), remedy='Try mix = "pairs".')

    def seams(self, work: Work) -> Seams:
        """Batches are mixed; who knows it replays averages of pairs, which is what could be found at best."""
        if self.mix == "pairs":
            in_halves = Seams(batch=partial(_average, work.classes, halves), mixing="pairs")
            return Seams(
                batch=partial(_average, work.classes, neighbours), mixing="pairs", told=Told(replay=in_halves)
            )
        return Seams(batch=partial(_drawn, work.classes, self.alpha), mixing="several")

    def describe(self) -> str:
        """One line for the ledger and the report."""
        if self.mix == "pairs":
            return "mixup of disjoint pairs, averaged"
        return f"mixup of every example with another, weights from Beta({self.alpha:g}, {self.alpha:g})"


def _average(
    classes: int | None,
    pair: Callable[[Tensor], Tensor],
    batch: Examples,
    state: State,
    generator: torch.Generator,
) -> tuple[Examples, State]:
    x, y = batch
    return (pair(x), pair(probabilities(y, classes, x))), state


def neighbours(values: Tensor) -> Tensor:
    """Means of the first and second row, the third and fourth, ...; an odd last row stays, [ceil(rows / 2), ...]."""
    even = len(values) // 2 * 2
    return torch.cat([(values[:even:2] + values[1:even:2]) / 2, values[even:]])


def halves(values: Tensor) -> Tensor:
    """Means of a row of the first half and one of the second; an odd last row stays, [ceil(rows / 2), ...].

    For guesses that come sorted by label: neighbours among them share it, random pairs seldom do.
    """
    half = len(values) // 2
    return torch.cat([(values[:half] + values[half : 2 * half]) / 2, values[2 * half :]])


def _drawn(
    classes: int | None, alpha: float, batch: Examples, state: State, generator: torch.Generator
) -> tuple[Examples, State]:
    x, y = batch
    share, order = beta_draw(alpha, generator), permutation(len(x), generator).to(x.device)
    soft = probabilities(y, classes, x)
    return (share * x + (1 - share) * x[order], share * soft + (1 - share) * soft[order]), state


def beta_draw(alpha: float, generator: torch.Generator) -> float:
    """One draw from Beta(alpha, alpha): the quantile of a uniform one."""
    from scipy.special import betaincinv

    uniform = float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))
    return float(betaincinv(alpha, alpha, uniform))


def probabilities(y: Tensor, classes: int | None, like: Tensor) -> Tensor:
    """Targets that can be averaged: class numbers as probabilities [rows, classes], all others as they are."""
    if y.is_floating_point() or classes is None:
        return y
    return functional.one_hot(y, classes).to(like.dtype)
