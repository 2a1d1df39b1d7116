"""The curious client ("Federated Learning Nodes Can Reconstruct Peers' Image Data", paper 004).

A client that took part in two rounds in a row holds two global models. It inverts their difference as if one client
with everyone's images had sent it:
    1. The mean reply is (W_next - W) over the server's step. Take the own part out where its weight is known,
       (mean - (n / N) own) N / (N - n); else leave it in (see `fedxray.attacks.sums`).
    2. Take the labels of all images as granted, or as counts from a sub-attack on the same reply.
    3. Draw small pictures evenly from 0 to 1; enlarged by bicubic up-sampling they are the guess.
    4. Replay the local steps of one client that holds all N images, from W, and descend on the squared distance
       of its update from the mean reply, by Adam from 0.1 down to 0.01 along half a cosine.
    5. Of all iterates keep the one of least loss, with pixels brought back into their range.
    6. With own images left in, match them to guesses of their class: those are put aside, and how well they came
       back is the one measure of quality that an attacker has.
The seat knows neither how many clients there are nor what each of them holds. N and the learning rate may be assumed
(`assumed_examples`, `assumed_learning_rate`); labels are then estimated anew for what is assumed. `search` in a
plan tries such assumptions and keeps the one under which the own images come back best.

Where we differ: the authors neither take out the own part nor set their own images aside, their labels are the true
ones in the true order, and their pictures are a quarter of the resolution (`latent = 4`, right for 128 pixels).
The distance is divided by the squared length of the reply, which leaves Adam's steps as they are; the best iterate is
kept, not the last, and its pixels are clipped. The same attack works from a server under secure aggregation, which
has nothing to take out, and on single replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.aim import observation_at
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion.curious_settings import (
    RANGES,
    SearchedSettings,
    check_searched,
    invert,
    own_guesses,
)
from fedxray.attacks.inversion.known import as_far_as_told, image_needs, labels_in_batches, replayed
from fedxray.attacks.sums import Reading, read_sum


@dataclass(frozen=True, kw_only=True)
class CuriousClient(SearchedSettings, Attack):
    """What did all the others' training images look like? The change of the global model is inverted as one reply."""

    name: ClassVar[str] = "curious-client"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = (
        "curious-client", "secure-aggregation", "server", "eavesdropper", "active-server",
    )  # fmt: skip
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "latent": 1}
    adapts: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES
    judged_by: ClassVar[str] = "own_error"
    unjudged: ClassVar[str] = (
        'It needs own images among those sought: own_share = "recover" from a client\'s seat.'
    )

    def __post_init__(self) -> None:
        """Check every setting."""
        check_searched(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return tuple(self._as_read(need) for need in image_needs(self.at, self.labels))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        reading = self._read(view)
        alone = reading.view
        observation = observation_at(alone, self.at)
        labels, facts = labels_in_batches(alone, context, self.labels, self.at)
        labels = labels.to(device=next(iter(observation.start.values())).device)
        client, seen = replayed(alone, observation, len(labels), self.batch_norm)
        found = invert(
            self, alone, context, lambda inputs: client.update(inputs, labels), seen, labels, self.name
        )
        found = as_far_as_told(alone, observation, found)
        found = replace(found, facts=found.facts | facts | reading.facts | {"round": observation.round})
        if reading.own is None:
            return found
        mine, told = own_guesses(found.tensors["inputs"], labels, reading.own, view.space)
        return replace(found, tensors={**found.tensors, "own": mine}, facts=found.facts | told)

    def _read(self, view: View) -> Reading:
        return read_sum(view, self.at, self.own_share, self.assumed)

    def _as_read(self, need: Need) -> Need:
        """A need of the reply that the sum is read as."""
        return replace(need, met=lambda view: need.met(self._read(view).view))
