"""A client isolated by an active server that sends her own model back to her (paper 003, section 4.2).

Round after round she trains on alone and so nears her own optimum; for least squares at the rate |I - W|.
Where a client sends gradients, the server takes the step for her, at the recipe's learning rate where it is
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import Exchange, View
from fedxray.attacks.base import Attack, Context, Need, line_to_the_client, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.last_returned import step_size
from fedxray.attacks.local_model.messages import last_of, returned, step_of
from fedxray.attacks.local_model.steer import Spaced, Steer, Walk, check_counts, spaced_rounds, walk_from
from fedxray.methods import Sgd
from fedxray.params import is_finite


@dataclass(frozen=True, kw_only=True)
class LocalModelSendBack(Attack):
    """What the client makes of her own model in so many rounds."""

    name: ClassVar[str] = "local-model-send-back"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("active-server",)
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"active_rounds": 5}

    active_rounds: int = 50
    every: int = 1  # 1 = consecutive rounds

    def __post_init__(self) -> None:
        """Check the settings."""
        check_counts(active_rounds=self.active_rounds, every=self.every)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies, a line to her, and her step size where she sends gradients."""
        return (single_replies(), line_to_the_client(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """Send back whatever came back."""
        last, spent = last_of(view.of_target()), isolate(view, self.active_rounds, self.every)
        walk: Walk = spent.state[1]
        finite = is_finite(walk.point)
        return of_model(
            walk.point,
            last_of(spent.observations).buffers_after or last.buffers_after or last.buffers,
            status="ok" if finite else "diverged",
            reason="" if finite else "the client's model was no longer finite",
            curve=walk.sizes,
            rounds_spent=walk.steps,
            facts={"rounds_passed": spent.rounds_spent},
        )


def isolate(view: View, steps: int, every: int = 1) -> Exchange:
    """Send the target its own last model back, so often; where it sends gradients, with the recipe's step."""
    assert view.channel is not None and view.target is not None
    last = last_of(view.of_target())
    rate = step_of(view, last)
    method = Sgd(steps=steps, lr=rate)  # sent - (sent - returned) is what was returned
    tamper = Spaced(inner=Steer(begin=walk_from(returned(view, last), method, rate)), every=every)
    return view.channel(tamper, rounds=spaced_rounds(steps, every), clients=[view.target])
