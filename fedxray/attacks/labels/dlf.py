"""Label counts of a FedAvg client (RecLabels of "Data Leakage in Federated Averaging", Dimitrov et al. 2022).

The network changes while the client trains, so the formula of Geng et al. 2021 is used at every local step, with the
network's statistics interpolated between the model sent and the model returned:
    1. Draw 3,000 inputs from N(0, 1); on the model sent and on the one returned, compute p_k, the mean softmax, and O,
       the mean sum of the inputs of the last layer: the same inputs for both models.
    2. For the steps i = 0 .. U-1: p_i = (1 - i/U) p_sent + (i/U) p_returned, and O_i likewise.
    3. With G_k the sum of row k of the last layer's mean gradient, counts_i = N (p_i - G / O_i).
    4. Take the mean of counts_i over the steps and round it to integers that sum to N (see last_layer.py).
With one step it is Geng's formula at the start.

Where we differ: the paper's text puts i/U on the model sent; over all steps the mean is the same, and we write it as
the authors' code does. With momentum a step's counts are weighted like its gradient in the update (the paper has no
momentum). A sum of several clients is read as one client that holds all their examples (see last_layer.py). The
proximal term of FedProx is not subtracted. `source = "bias"` uses N (p_i - bias gradient), which needs no O; the paper
has no such form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.attacks.labels.last_layer import CountsByFormula


@dataclass(frozen=True, kw_only=True)
class LabelsDlf(CountsByFormula):
    """How many training examples of each class are there? From the last layer, along the client's training."""

    name: ClassVar[str] = "labels-dlf"
    paper: ClassVar[str] = "dimitrov-2022"

    def places(self, steps: int) -> list[float]:
        """Return the position of every local step between the model sent and the model returned."""
        return [step / steps for step in range(steps)]
