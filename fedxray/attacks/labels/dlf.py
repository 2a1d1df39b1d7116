"""Label counts of a FedAvg client (RecLabels of "Data Leakage in Federated Averaging", Dimitrov et al. 2022).

The network changes while the client trains, so the formula of Geng et al. is used at every local step, with the
network's statistics in between those of the model sent and of the model returned:
    1. Draw 3,000 inputs from N(0, 1); on the model sent and on the one returned, take p_k, the mean softmax, and O, the
       mean sum of what enters the last layer: the same inputs for both.
    2. For the steps i = 0 .. U-1: p_i = (1 - i/U) p_sent + (i/U) p_returned, and O_i alike.
    3. With G_k the sum of row k of the last layer's mean gradient, counts_i = N (p_i - G / O_i).
    4. Take the mean of counts_i over the steps and round it to whole counts that sum to N (see counts.py).
With one step it is Geng's formula at the start.

Where we differ: the paper's text puts i/U on the model sent; over all steps the mean is the same, and we write it as
the authors' code does. With momentum a step's counts weigh as much as its gradient does in the update (the paper has
no momentum). A sum of several clients is read as one client that holds all their examples (see head.py). FedProx's
pull is not taken out. `source = "bias"` uses N (p_i - bias gradient), which needs no O; the paper has no such form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.labels.last_layer import Source, check_settings, estimate, needs_of_formula
from fedxray.attacks.observations import At


@dataclass(frozen=True, kw_only=True)
class LabelsDlf(Attack):
    """How many training examples of each class are there? From the last layer, following the network as it trained."""

    name: ClassVar[str] = "labels-dlf"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

    samples: int = 3000
    source: Source = "rows"
    at: At = "first"

    def __post_init__(self) -> None:
        """Check every setting."""
        check_settings(self.samples, self.source, self.at)

    def needs(self) -> tuple[Need, ...]:
        """An update with a linear head, how it was made and on how many examples."""
        return needs_of_formula(self.source, self.at)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        return estimate(view, context, every_step, samples=self.samples, source=self.source, at=self.at)


def every_step(steps: int) -> list[float]:
    """How far along the way from the model sent to the one returned every local step is."""
    return [step / steps for step in range(steps)]
