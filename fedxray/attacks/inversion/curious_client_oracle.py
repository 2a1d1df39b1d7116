"""The upper bound of the curious client (paper 004, appendix F): the true clients are simulated, one by one.

As curious_client.py, but step 4 replays every client by itself, on as many images and with the labels that it really
had (grant `oracle-groups`), and averages their updates as the server does. Nobody in a federation knows who holds which
labels: what this one gains is what reading a sum as one client's reply costs. Images of the same label start from the
same picture in both, so that with one local step, of which a sum hides nothing, both find the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import observation_at
from fedxray.attacks.base import Attack, Context, Need, any_update, granted, images
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion.aware import aware
from fedxray.attacks.inversion.curious_settings import CuriousSettings, check_curious, invert
from fedxray.attacks.inversion.known import aim_of, replayable
from fedxray.attacks.inversion.replay import Replay, replay, straight_schedule
from fedxray.attacks.sums import Assumed, Reading, read_sum
from fedxray.federation.recipe import client_weights
from fedxray.params import Params, weighted_mean


@dataclass(frozen=True, kw_only=True)
class CuriousClientOracle(CuriousSettings, Attack):
    """The most that a change of the global model could tell: whoever knows who holds which labels inverts it."""

    name: ClassVar[str] = "curious-client-oracle"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("curious-client", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples", "oracle-groups")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "latent": 1}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_curious(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, and everyone's labels."""
        return (images(), any_update(), replayable(self.at), granted("oracle-groups"))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        reading = self._read(view)
        observation = observation_at(reading.view, self.at)
        groups = self._groups(view, reading)
        labels = [part.to(next(iter(observation.start.values())).device) for part in groups.values()]
        sizes = [len(part) for part in labels]
        clients, seen = self._clients(reading.view, observation, sizes)
        recipe = reading.view.grants.recipe
        assert recipe is not None
        weights = client_weights(sizes, recipe)

        def update(inputs: Tensor) -> dict[str, Tensor]:
            parts = zip(clients, inputs.split(sizes), labels, strict=True)
            return weighted_mean([client.update(x, y) for client, x, y in parts], weights)

        found = invert(self, reading.view, context, update, seen, torch.cat(labels), self.name)
        facts = found.facts | reading.facts | {"round": observation.round, "clients": len(sizes)}
        if reading.own is None:
            return replace(found, facts=facts)
        seats = {seat.client for seat in view.own}
        mine = torch.cat([torch.full_like(part, client in seats, dtype=torch.bool)
                          for client, part in zip(groups, labels, strict=True)])  # fmt: skip
        return replace(found, tensors={**found.tensors, "own": mine}, facts=facts)

    def _read(self, view: View) -> Reading:
        return read_sum(view, self.at, self.own_share, Assumed())

    def _groups(self, view: View, reading: Reading) -> dict[int, Tensor]:
        """The sorted labels of every client whose images the reading holds, by client."""
        groups = view.grants.oracle["oracle-groups"]
        out = {seat.client for seat in view.own} if reading.facts["own_share"] == "subtracted" else set()
        return {client: one.y.sort().values for client, one in enumerate(groups) if client not in out}

    def _clients(
        self, view: View, observation: Observation, sizes: Sequence[int]
    ) -> tuple[list[Replay], Params]:
        """Every client's round to replay, and what their mean should come to."""
        recipe = view.grants.recipe
        assert recipe is not None
        aim, found = aim_of(observation, recipe), []
        for size in sizes:
            client = replay(
                view.model, observation.start, recipe, straight_schedule(size, recipe),
                buffers=observation.buffers, batch_norm=self.batch_norm,
            )  # fmt: skip
            found.append(aware(view, observation, recipe, size, client, aim)[0])
        return found, aim
