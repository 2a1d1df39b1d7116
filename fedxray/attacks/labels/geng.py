"""Label counts from one gradient (Geng et al. 2021), with the network taken at the start or the end of the round.

    1. Draw inputs from N(0, 1): p_k is their mean softmax, O the mean sum of what enters the last layer.
    2. With G_k the sum of row k of the last layer's mean gradient, count_k = N (p_k - G_k / O).
    3. Round to whole counts that sum to N.
It is exact where p is the mean prediction of the client's examples and all of them enter the last layer with the same
sum O: then G_k = O (p_k - share of class k). Counts always sum to N before rounding too, since the p_k sum to 1 and the
rows of the gradient to 0. It needs an O away from 0, so features that are not negative, as after a ReLU; else the
outcome is undetermined. A weight update of U steps is read as their mean gradient. `source = "bias"` uses
count_k = N (p_k - bias gradient), which needs no O and is exact given p; the paper has no such form.

`labels-geng-start` takes p and O from the model sent, `labels-geng-end` from the one returned: the baselines of "Data
Leakage in Federated Averaging". Its code takes the end one step early, with weights 1/U and (U - 1)/U on the start
and the end, and so does the default here; `exactly = true` takes the end itself. For one gradient all are the same.
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
class LabelsGengStart(Attack):
    """How many training examples of each class are there? From the last layer, with the model sent as it was."""

    name: ClassVar[str] = "labels-geng-start"
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
        """The algorithm of the header at the start of the round."""
        return estimate(
            view, context, lambda steps: [0.0], samples=self.samples, source=self.source, at=self.at
        )


@dataclass(frozen=True, kw_only=True)
class LabelsGengEnd(Attack):
    """How many training examples of each class are there? From the last layer, with the model that came back."""

    name: ClassVar[str] = "labels-geng-end"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

    samples: int = 3000
    source: Source = "rows"
    exactly: bool = False  # the end itself, not one step before it
    at: At = "first"

    def __post_init__(self) -> None:
        """Check every setting."""
        check_settings(self.samples, self.source, self.at)

    def needs(self) -> tuple[Need, ...]:
        """An update with a linear head, how it was made and on how many examples."""
        return needs_of_formula(self.source, self.at)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header at the end of the round."""
        return estimate(view, context, self._places, samples=self.samples, source=self.source, at=self.at)

    def _places(self, steps: int) -> list[float]:
        return [1.0 if self.exactly else (steps - 1) / steps]
