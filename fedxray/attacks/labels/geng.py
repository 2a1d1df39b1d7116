"""Label counts from one gradient (Geng et al. 2021), with the network evaluated at the start or the end of the round.

    1. Draw inputs from N(0, 1): p_k is their mean softmax, O the mean sum of the inputs of the last layer.
    2. With G_k the sum of row k of the last layer's mean gradient, count_k = N (p_k - G_k / O).
    3. Round to integers that sum to N.
It is exact where p is the mean prediction of the client's examples and all of them enter the last layer with the same
sum O: then G_k = O (p_k - share of class k). Counts always sum to N before rounding too, since the p_k sum to 1 and the
rows of the gradient to 0. It needs an O away from 0, so non-negative features, as after a ReLU; otherwise the outcome
is undetermined. A weight update of U steps is read as their mean gradient. `source = "bias"` uses count_k = N (p_k -
bias gradient), which needs no O and is exact given p; the paper has no such form.

`labels-geng-start` takes p and O from the model sent, `labels-geng-end` from the one returned: the baselines of
Dimitrov et al. 2022. Their code evaluates the end one step early, with weights 1/U and (U - 1)/U on the start and the
end, and so does the default here; `exactly = true` takes the end itself. For one gradient all are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.attacks.labels.last_layer import CountsByFormula
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class LabelsGengStart(CountsByFormula):
    """How many training examples of each class are there? From the last layer, with the model that was sent."""

    name: ClassVar[str] = "labels-geng-start"
    paper: ClassVar[str] = "geng-2021"

    def places(self, steps: int) -> list[float]:
        """Return the start of the round."""
        return [0.0]


@dataclass(frozen=True, kw_only=True)
class LabelsGengEnd(CountsByFormula):
    """How many training examples of each class are there? From the last layer, with the model that was returned."""

    name: ClassVar[str] = "labels-geng-end"
    paper: ClassVar[str] = "geng-2021"

    exactly: bool = setting(
        False, "Whether the returned model itself is used, not one step before it as in the authors' code."
    )

    def places(self, steps: int) -> list[float]:
        """Return the end of the round, or one step before it."""
        return [1.0 if self.exactly else (steps - 1) / steps]
