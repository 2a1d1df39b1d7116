"""Inverting Gradients (Geiping, Bauermeister, Dröge and Moeller 2020), for FedSGD and for FedAvg.

Images are sought whose replayed update points in the direction of the one seen, and that are smooth:
    1. Take the labels as granted, or from a sub-attack.
    2. Draw images from N(0, 1) in the space of the model's inputs (start = "normal"), evenly over the valid
       range ("uniform"), or around its middle ("grey"); the authors' code has such starts too.
    3. Descend on 1 - cos(replayed update, seen update) + weight * total variation, by Adam on the sign of the
       gradient, with a tenth of the learning rate from 3/8, 5/8 and 7/8 of the steps on; after each step go
       back into the range of valid pixels.
    4. Of all iterates and restarts keep the one where this loss is lowest.
With skip_zeros = true entries of the update that are exactly zero do not count in 3. They come from units that are
off for every image. A unit that is wrongly on in the guess adds a row there whose size does not depend on how
far it is on, so no slope turns it off, and the rest of the guess is bent to make up for it: small batches
get stuck. (Our own addition, off by default.)
For FedAvg the client's local steps are replayed. Its order is unknown: images are used in the order of the
guess, the same in every epoch.

Where we differ: 2,400 steps by default, for a CPU (24,000 in the paper, 4,800 in the authors' default
settings); the best iterate is kept, not the last; several images may share a label; BatchNorm uses
the statistics of the batch, as the client did (the authors' networks were in evaluation mode on both sides). A
sum of replies is read as the update of one client that holds everyone's images: exact for FedSGD weighted
by examples, rough for FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import DISTANCES, where_seen
from fedxray.attacks.inversion.problem import (
    Start,
    as_far_as_told,
    check_count,
    check_label_attack,
    check_start,
    check_weight,
    drawn_starts,
    image_needs,
    into_the_box,
    labels_in_batches,
    replayed,
)
from fedxray.attacks.inversion.replay import BatchNorm, Replay, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, observation_at
from fedxray.errors import unknown_name
from fedxray.optim import SignedAdam, Stairs, restarts
from fedxray.params import Params
from fedxray.priors import total_variation


@dataclass(frozen=True, kw_only=True)
class InvertingGradients(Attack):
    """What did the training images look like? Images are changed until they would cause the update sent."""

    name: ClassVar[str] = "inverting-gradients"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 120}
    adapts: ClassVar[bool] = True

    steps: int = 2400
    learning_rate: float = 0.1
    total_variation: float = 1e-4
    match: str = "cosine"  # cosine | cosine-by-layer | l2 | l1
    restarts: int = 1
    start: Start = "normal"
    skip_zeros: bool = False  # whether entries where the update seen is exactly zero count for nothing
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_weight("total_variation", self.total_variation)
        check_count("restarts", self.restarts)
        check_start(self.start)
        check_label_attack(self.labels)
        if self.match not in DISTANCES:
            raise unknown_name("match", self.match, DISTANCES)

    def method(self) -> SignedAdam:
        """The optimiser of the paper."""
        return SignedAdam(steps=self.steps, lr=self.learning_rate, decay=Stairs())

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = labels_in_batches(view, context, self.labels, self.at)
        like = next(iter(observation.start.values()))
        labels = labels.to(device=like.device)
        client, seen = replayed(view, observation, len(labels), self.batch_norm)
        found = restarts(
            partial(self._loss, client, seen, labels),
            drawn_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=into_the_box(view, like), what=self.name,
        )  # fmt: skip
        facts |= {"round": observation.round, "own_loss": [one.best_loss for one in found.outcomes],
                  "restart": found.chosen}  # fmt: skip
        end = found.outcome
        evidence = of_images(
            end.best["inputs"], labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts
        )
        return as_far_as_told(view, observation, evidence)

    def _loss(self, client: Replay, seen: Params, labels: Tensor, point: dict[str, Tensor]) -> Tensor:
        update = client.update(point["inputs"], labels)
        distance = DISTANCES[self.match](where_seen(update, seen) if self.skip_zeros else update, seen)
        return distance + self.total_variation * total_variation(point["inputs"])
