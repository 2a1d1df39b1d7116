"""Improved Deep Leakage from Gradients (Zhao, Mopuri and Bilen 2020).

The label is read off the gradient, and only the input is sought:
    1. With cross-entropy and one example, the gradient of the last layer has the other sign for the true class
       than for all others (`labels-idlg`): that is the label.
    2. Draw an input from N(0, 1).
    3. Descend on the sum of squared differences between replayed and seen update by L-BFGS with a learning rate
       of 1; no prior, no box.
    4. Of all iterates and restarts keep the one where this loss is lowest.

Where we differ: granted labels are used where there are any; several examples may be sought, with the extension
of `labels-idlg` (another label attack can be named); steps, their reach and the unit of the loss are as in `dlg`.
L-BFGS wants a network that is smooth (sigmoids or softplus).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion.dlg import REACH, first_tensor, matching_loss, reconstruction
from fedxray.attacks.inversion.problem import (
    as_far_as_told,
    check_count,
    check_label_attack,
    drawn_starts,
    image_needs,
    labels_in_batches,
)
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, observation_at
from fedxray.optim import Lbfgs, restarts


@dataclass(frozen=True, kw_only=True)
class Idlg(Attack):
    """What did the training image look like? The label is read off the update, then the image is sought."""

    name: ClassVar[str] = "idlg"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 50}
    adapts: ClassVar[bool] = True

    steps: int = 1200
    learning_rate: float = 1.0
    restarts: int = 1
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_count("restarts", self.restarts)
        check_label_attack(self.labels)

    def method(self) -> Lbfgs:
        """The optimiser of the paper."""
        return Lbfgs(steps=self.steps, lr=self.learning_rate, reach=REACH)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = labels_in_batches(view, context, self.labels, self.at)
        starts = drawn_starts(view, first_tensor(observation), len(labels), context, self.restarts)
        loss = matching_loss(view, observation, len(labels), labels, "length", self.batch_norm)
        found = restarts(loss, starts, self.method(), report=context.report, what=self.name)
        evidence = reconstruction(found, labels, facts | {"round": observation.round})
        return as_far_as_told(view, observation, evidence)
