"""Instance-wise label restoration (iLRG, Ma et al. 2023): label counts from weight and bias of the last layer.

    1. The gradient of row i over that of bias i is a mean of features in which the examples of class i dominate:
       treated as the mean features of class i.
    2. Through the last layer they give p_i, the prediction for an example of class i: softmax(W features + b).
    3. The bias gradient of class i is then (sum over classes j of count_j p_j[i] - count_i) / N. Solve these
       equations and sum of counts = N by least squares (pseudo-inverse).
    4. Set negative counts to 0, round, and correct the sum.
Neither data nor random inputs are needed, but a bias is: without one use `labels-dlf` or `labels-geng-start`.
It is exact where all examples have the same features, or those of a class have and no other class contributes to its
row. It fails for a class whose share of the examples is close to the network's prediction: its bias gradient is nearly
0, and dividing by it gives arbitrary features; and as a network becomes confident, since then the rows of present
classes vanish.

Where we differ: rounding is by largest remainder, which is the authors' correction of the sum without its slip (a
negative slice selects all but as many); a count above N is reduced by that, not set to 0; features are bounded in size,
not in their decimal exponents, and a bias gradient of 0 gives features of 0. The last layer is that of the model sent;
an update of several steps is read as their mean gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context, Need
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.labels import last_layer
from fedxray.attacks.labels.last_layer import LabelAttack
from fedxray.attacks.observations import observation_at
from fedxray.models.inspect import head

LARGEST = 1e10  # bound on the magnitude of a restored feature


@dataclass(frozen=True, kw_only=True)
class LabelsIlrg(LabelAttack):
    """How many training examples of each class are there? From equations between the last layer's weight and bias."""

    name: ClassVar[str] = "labels-ilrg"
    paper: ClassVar[str] = "ma-2023"

    def needs_of_counts(self) -> tuple[Need, ...]:
        """List an update with a linear last layer that has a bias, its recipe and its number of examples."""
        bias = last_layer.head_bias("labels-dlf or labels-geng-start")
        return (*last_layer.needs_of_head(self.at), last_layer.known_steps(self.at), bias)

    def counts(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header."""
        gradient, seen, place = last_layer.head_gradient(view, self.at), observation_at(view, self.at), head(view.model)
        assert gradient.bias is not None and place.bias is not None
        weight, bias = seen.start[place.weight].double(), seen.start[place.bias].double()
        raw = ilrg_counts(gradient.rows, gradient.bias, weight, bias, gradient.examples)
        doubt = "" if bool(gradient.bias.any()) else "the last layer did not change"
        facts = {"steps": gradient.steps, "round": seen.round, "examples": gradient.examples}
        return last_layer.evidence_of(raw, gradient.examples, facts, doubt)


def ilrg_counts(rows: Tensor, slope: Tensor, weight: Tensor, bias: Tensor, examples: int) -> Tensor:
    """Return raw counts [classes] from the gradients of weight `rows` [classes, features] and bias `slope` [classes].

    `weight` and `bias` are those of the last layer of the model sent.
    """
    features = torch.where(slope[:, None] == 0, 0.0, rows / slope[:, None]).clamp(-LARGEST, LARGEST)
    predictions = (features @ weight.T + bias).softmax(1)  # [class of the example, predicted class]
    equations = predictions.T - torch.eye(len(bias), dtype=bias.dtype, device=bias.device)
    system = torch.cat([equations, torch.ones_like(bias)[None]])
    right = torch.cat([examples * slope, torch.full_like(bias[:1], examples)])
    if not bool(torch.isfinite(system).all() and torch.isfinite(right).all()):
        return torch.full_like(bias, torch.nan)
    solved: Tensor = torch.linalg.pinv(system) @ right
    return solved
