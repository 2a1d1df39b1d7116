"""Improved Deep Leakage from Gradients (iDLG, Zhao, Mopuri and Bilen 2020).

The label is inferred from the gradient, and only the input is sought:
    1. With cross-entropy and one example, the gradient of the last layer has the opposite sign for the true class
       (`labels-idlg`): that is the label.
    2. Draw an input from N(0, 1).
    3. Minimise the sum of squared differences between replayed and observed update by L-BFGS with a learning rate
       of 1; no prior, no box.
    4. Of all iterates and restarts keep the one with the lowest loss.

Where we differ: granted labels are used where there are any; several examples may be sought, with the extension
of `labels-idlg` (another label attack can be named); steps, their largest size and the scale of the loss are as in
`dlg`. L-BFGS requires a smooth network (sigmoids or softplus).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.dlg import REACH, first_tensor, matching_loss
from fedxray.attacks.inversion.problem import ImageInversion
from fedxray.attacks.observations import observation_at
from fedxray.optim import MOST_RATE, Lbfgs, restarts
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class Idlg(ImageInversion):
    """What did the training image look like? Infers the label from the update, then seeks the image."""

    name: ClassVar[str] = "idlg"
    paper: ClassVar[str] = "zhao-2020"
    small: ClassVar[Mapping[str, Any]] = {"steps": 50}

    steps: int = setting(1200, problem.STEPS, least=1)
    learning_rate: float = setting(1.0, problem.LEARNING_RATE, above=0, most=MOST_RATE)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = problem.labels_in_batches(view, context, self.labels, self.at)
        starts = problem.drawn_starts(view, first_tensor(observation), len(labels), context, self.restarts)
        loss = matching_loss(view, observation, len(labels), labels, "length", self.batch_norm)
        method = Lbfgs(steps=self.steps, lr=self.learning_rate, reach=REACH)
        tried = restarts(loss, starts, method, report=context.report, what=self.name)
        return problem.reconstruction(view, observation, tried, labels, facts)
