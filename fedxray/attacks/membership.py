"""Membership inference by loss (Yeom et al. 2018): records with a lower loss are more likely members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, granted, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_membership
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.predict import losses
from fedxray.losses import example_loss
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class MembershipLoss(Attack):
    """Which of these records are in the training data? Ranks them by the loss of the client's model."""

    name: ClassVar[str] = "membership-loss"
    kind: ClassVar[Kind] = "membership"
    paper: ClassVar[str] = "yeom-2018"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, and the needs of the attack on the model."""
        return (granted("target-records"), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """Return minus the loss of every record."""
        records = view.grants.target_records
        assert records is not None
        params, buffers = model_params(context.run(self.model, view))
        by_record = losses(view.model, params, buffers, records.x, records.y, example_loss(view.loss))
        return of_membership(-by_record)
