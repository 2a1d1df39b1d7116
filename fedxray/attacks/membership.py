"""Membership inference by loss (Yeom et al. 2018): records that the model fits better were likelier trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, granted, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_membership
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.predict import losses
from fedxray.losses import example_loss


@dataclass(frozen=True, kw_only=True)
class MembershipLoss(Attack):
    """Which of these records were trained on? Those that the client's model fits best are named first."""

    name: ClassVar[str] = "membership-loss"
    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = (
        "server",
        "eavesdropper",
        "active-server",
        "curious-client",
        "secure-aggregation",
    )
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    model: Attack = field(default_factory=LastReturned)

    def needs(self) -> tuple[Need, ...]:
        """The records in question, and whatever the model's own reconstruction needs."""
        return (granted("target-records"), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """Minus the loss of every record."""
        records = view.grants.target_records
        assert records is not None
        params, buffers = model_params(context.run(self.model, view))
        found = losses(view.model, params, buffers, records.x, records.y, example_loss(view.loss))
        return of_membership(-found)
