"""Mixup (Zhang et al. 2018): a client trains on mixtures of its examples, never on a single one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.defences.base import Defence, Examples, Hooks, KnownDefence, Work, stateless
from fedxray.defences.noise import MOST
from fedxray.seeds import permutation
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class Mixup(Defence):
    """Every local step uses mixtures of inputs and of targets in place of its examples.

    With mix = "pairs" neighbours in a batch are averaged, so that each example enters one mixture (Driouich et al.);
    an odd last example stays single. With mix = "drawn" every example is mixed with another of its batch, by a
    weight from Beta(alpha, alpha) for each batch, and enters two mixtures.
    """

    name: ClassVar[str] = "mixup"

    mix: Literal["pairs", "drawn"] = setting(
        "pairs", "Average disjoint pairs of a batch, or mix each example with another by a random weight."
    )
    alpha: float = setting(1.0, "Both parameters of the Beta distribution of the mixing weight.", above=0, most=MOST)

    def hooks(self, work: Work) -> Hooks:
        """Mix every batch; an attacker that knows the defence replays averages of pairs, the best possible guess."""
        if self.mix == "pairs":
            in_halves = Hooks(batch=stateless(partial(_average, work.classes, halves)), mixing="pairs")
            averaged = stateless(partial(_average, work.classes, neighbours))
            return Hooks(batch=averaged, mixing="pairs", known=KnownDefence(replay=in_halves))
        return Hooks(batch=stateless(partial(_drawn, work.classes, self.alpha)), mixing="several")

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        if self.mix == "pairs":
            return "mixup of disjoint pairs, averaged"
        return f"mixup of every example with another, weights from Beta({self.alpha:g}, {self.alpha:g})"


def _average(
    classes: int | None, pair: Callable[[Tensor], Tensor], batch: Examples, generator: torch.Generator
) -> Examples:
    x, y = batch
    return pair(x), pair(probabilities(y, classes, x))


def neighbours(values: Tensor) -> Tensor:
    """Return means of rows 1 and 2, 3 and 4, ... [ceil(rows / 2), ...]; an odd last row stays."""
    even = len(values) // 2 * 2
    return torch.cat([(values[:even:2] + values[1:even:2]) / 2, values[even:]])


def halves(values: Tensor) -> Tensor:
    """Return means of a row of the first half and one of the second [ceil(rows / 2), ...]; an odd last row stays.

    For guesses sorted by label: neighbours among them share it, random pairs seldom do.
    """
    half = len(values) // 2
    return torch.cat([(values[:half] + values[half : 2 * half]) / 2, values[2 * half :]])


def _drawn(classes: int | None, alpha: float, batch: Examples, generator: torch.Generator) -> Examples:
    x, y = batch
    share, order = beta_draw(alpha, generator), permutation(len(x), generator).to(x.device)
    soft = probabilities(y, classes, x)
    return share * x + (1 - share) * x[order], share * soft + (1 - share) * soft[order]


def beta_draw(alpha: float, generator: torch.Generator) -> float:
    """Draw from Beta(alpha, alpha): the quantile of a uniform draw."""
    from scipy.special import betaincinv

    uniform = float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu"))
    return float(betaincinv(alpha, alpha, uniform))


def probabilities(y: Tensor, classes: int | None, like: Tensor) -> Tensor:
    """Return targets that can be averaged: class numbers as probabilities [rows, classes], others unchanged."""
    if y.is_floating_point() or classes is None:
        return y
    return functional.one_hot(y, classes).to(like.dtype)
