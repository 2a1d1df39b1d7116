"""The client's last returned model, taken as it is for its local model (papers 000 and 003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.messages import last_of, returned


@dataclass(frozen=True, kw_only=True)
class LastReturned(Attack):
    """What the target sent back in the last round that was seen; of a gradient, one step of the recipe's size."""

    name: ClassVar[str] = "last-returned"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies."""
        return (single_replies(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """Start plus update of the last observation."""
        last = last_of(view.of_target())
        return of_model(returned(view, last), last.buffers_after or last.buffers, facts={"round": last.round})


def step_size() -> Need:
    """The learning rate, where a client sends a gradient and no model."""
    return Need(
        what="the learning rate, since the client sends a gradient",
        given_by='grants = ["recipe"]',
        met=lambda view: (
            view.grants.recipe is not None or all(one.kind == "weights" for one in view.of_target())
        ),
    )
