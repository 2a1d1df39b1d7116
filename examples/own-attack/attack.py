"""Membership by the mean loss under the models that the client returned in several rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, granted, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_membership
from fedxray.losses import example_loss, losses
from fedxray.params import add
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class MembershipMeanLoss(Attack):
    """Ranks the granted records by minus their mean loss under the target's last returned models."""

    name: ClassVar[str] = "membership-mean-loss"
    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)
    small: ClassVar[Mapping[str, Any]] = {"window": 2}

    window: int = setting(10, "Number of last rounds that are used.", least=1)

    def needs(self) -> tuple[Need, ...]:
        """Return the needs: the records in question, and replies of the target alone."""
        return (granted("target-records"), single_replies())

    def attack(self, view: View, context: Context) -> Evidence:
        """Return minus the mean loss of every record."""
        records = view.grants.target_records
        assert records is not None  # by its needs
        by_round = []  # losses, [records] each
        for seen in view.of_target()[-self.window :]:
            returned = add(seen.start, seen.update)  # end = start + update
            buffers = seen.buffers_after or seen.buffers
            by_round.append(losses(view.model, returned, buffers, records.x, records.y, example_loss(view.loss)))
        return of_membership(-torch.stack(by_round).mean(0), facts={"rounds": len(by_round)})
