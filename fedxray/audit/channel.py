"""An active server's line to the clients of a simulated run, which it continues from a recorded round."""

from __future__ import annotations

from collections.abc import Sequence

from fedxray.adversary import roles
from fedxray.adversary.view import Channel, Exchange
from fedxray.federation.round_loop import Federation, continue_run
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth


def open_channel(
    transcript: Transcript, truth: Truth, *, rounds: Sequence[int] | None = None
) -> Channel | None:
    """A channel that goes on after the last of these rounds (or of all recorded ones).

    There is none to a recording of a live federation, whose clients cannot be asked again, and none under secure
    aggregation, which hides what a single client replies.
    """
    after = max(transcript.rounds() if rounds is None else rounds, default=None)
    if transcript.recorded or transcript.secure_aggregation or after is None:
        return None
    federation = Federation(
        space=truth.space,
        clients=truth.train,
        holdout=truth.holdout,
        public=truth.public,
        model=truth.model,
        recipe=truth.recipe,
        defence=truth.defence,
        rounds=truth.rounds,
    )

    def channel(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        branch = continue_run(
            federation,
            transcript,
            seed=truth.seed,
            after=after,
            clients=clients,
            rounds=rounds,
            tamper=tamper,
        )
        replies = roles.server(branch.transcript, client=clients[0]).observations
        return Exchange(observations=replies, state=branch.state, rounds_spent=branch.rounds_spent)

    return channel
