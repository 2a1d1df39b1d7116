"""The client's last model moved on along her mean update: the obvious rival of every reconstruction.

A client pulls each model she is sent towards her own optimum; so many pulls more may land nearer to it.
`multiple = 0` is `last-returned`. Nothing the server sees says how far to go in a network, so it is a
setting; a far extrapolation can look like the client by its explanations and be useless as a model, so read
its loss beside any likeness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.last_returned import step_size
from fedxray.attacks.local_model.messages import last_of, returned
from fedxray.errors import BadInput, check_whole
from fedxray.params import add, subtract, weighted_mean


@dataclass(frozen=True, kw_only=True)
class LocalModelExtrapolate(Attack):
    """Last returned model + multiple * mean of the last updates."""

    name: ClassVar[str] = "local-model-extrapolate"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    multiple: float = 1.0
    over: int = 10  # updates in the mean, the latest ones

    def __post_init__(self) -> None:
        """Check the settings."""
        if not math.isfinite(self.multiple):
            raise BadInput("multiple", expected="a finite number", got=self.multiple, remedy="Try 1.")
        check_whole("over", self.over, least=1, usual=10)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies."""
        return (single_replies(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """The last model and the mean of the latest updates."""
        seen = sorted(view.of_target(), key=lambda one: one.round)[-self.over :]
        pulls = [subtract(returned(view, one), one.start) for one in seen]
        last = last_of(seen)
        model = add(returned(view, last), weighted_mean(pulls, [1.0] * len(pulls)), self.multiple)
        facts = {"round": last.round, "updates": len(pulls)}
        return of_model(model, last.buffers_after or last.buffers, facts=facts)
