"""The global model, taken for the client's: what everyone in the federation can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, global_models
from fedxray.attacks.evidence import Evidence, Kind, of_model


@dataclass(frozen=True, kw_only=True)
class GlobalModel(Attack):
    """The last global model that was seen."""

    name: ClassVar[str] = "global-model"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = (
        "server",
        "eavesdropper",
        "active-server",
        "curious-client",
        "secure-aggregation",
    )
    grants: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...] | None] = ()
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)

    def needs(self) -> tuple[Need, ...]:
        """A global model."""
        return (global_models(),)

    def attack(self, view: View, context: Context) -> Evidence:
        """The global model of the latest round."""
        last = max(view.globals, key=lambda one: one.round)
        return of_model(last.params, last.buffers, facts={"round": last.round})
