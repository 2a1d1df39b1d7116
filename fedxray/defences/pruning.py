"""Pruning: a share of the entries is set to zero, at random or by magnitude."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.defences.base import Defence, ExampleGradients, Hooks, KnownDefence, Work, stateless
from fedxray.defences.noise import PLACE, Place, place_words
from fedxray.params import Params
from fedxray.seeds import uniform_like
from fedxray.settings import REQUIRED, setting


@dataclass(frozen=True, kw_only=True)
class Pruning(Defence):
    """A share of the entries becomes zero: each at random, or the smallest of every tensor.

    At "update" the update is pruned; at "gradients" every example's own gradient, before the mean of a step is taken
    (Dimitrov et al. 2022). Remaining entries are not scaled up.
    """

    name: ClassVar[str] = "pruning"

    share: float = setting(REQUIRED, "Share of the entries set to zero.", least=0, below=1, example=0.9)
    by: Literal["random", "magnitude"] = setting(
        "magnitude", "Which entries: the smallest of every tensor, or random ones."
    )
    at: Place = setting("update", PLACE)

    def hooks(self, work: Work) -> Hooks:
        """Prune at the chosen place; an attacker that knows the defence matches surviving entries, or replays it."""
        if self.at == "update":
            return Hooks(outgoing=stateless(self._update), known=KnownDefence(cut=True))
        certain = stateless(self._gradients if self.by == "magnitude" else self._average)
        return Hooks(gradients=stateless(self._gradients), known=KnownDefence(replay=Hooks(gradients=certain)))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        chosen = "by chance" if self.by == "random" else "the smallest of every tensor"
        return f"pruning of {100 * self.share:g} % of the entries of {place_words(self.at)}, {chosen}"

    def _update(self, update: Params, generator: torch.Generator) -> dict[str, Tensor]:
        if self.by == "random":
            return prune_by_chance(update, self.share, generator)
        return {name: prune_smallest(value[None], self.share)[0] for name, value in update.items()}

    def _gradients(self, value: ExampleGradients, generator: torch.Generator) -> ExampleGradients:
        if self.by == "random":
            return replace(value, each=prune_by_chance(value.each, self.share, generator))
        return replace(value, each={name: prune_smallest(one, self.share) for name, one in value.each.items()})

    def _average(self, value: ExampleGradients, generator: torch.Generator) -> ExampleGradients:
        return replace(value, each={name: (1 - self.share) * one for name, one in value.each.items()})


def prune_by_chance(params: Params, share: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Return every entry set to zero with this probability, independently."""
    return {name: value * (uniform_like(value, generator) >= share) for name, value in params.items()}


def prune_smallest(values: Tensor, share: float) -> Tensor:
    """Return values [rows, ...] with the given share of each row, smallest in magnitude, set to zero."""
    flat = values.flatten(1)
    count = int(share * flat.shape[1] + 0.5)
    if count == flat.shape[1] > 1:  # a share below one keeps at least one entry, however it is rounded
        count -= 1
    if not count or not len(flat):
        return values
    smallest = flat.detach().abs().topk(count, dim=1, largest=False).indices
    kept = torch.ones_like(flat.detach()).scatter(1, smallest, 0.0)
    return (flat * kept).reshape(values.shape)
