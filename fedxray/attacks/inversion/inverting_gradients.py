"""Inverting Gradients (Geiping, Bauermeister, Dröge and Moeller 2020), for FedSGD and for FedAvg.

Smooth images are sought whose replayed update points in the direction of the observed one:
    1. Take the labels as granted, or from a sub-attack.
    2. Draw images from N(0, 1) in the space of the model's inputs (start = "normal"), uniformly over the valid
       range ("uniform"), or around its middle ("grey"); the authors' code has such starts too.
    3. Minimise 1 - cos(replayed update, observed update) + weight * total variation, by Adam on the sign of the
       gradient, with a tenth of the learning rate from 3/8, 5/8 and 7/8 of the steps on; project onto the range of
       valid pixels after each step.
    4. Of all iterates and restarts keep the one with the lowest loss.
With skip_zeros = true entries of the update that are exactly zero do not count in 3. They belong to units that are
inactive for every image. A unit that is wrongly active in the guess adds a row there whose size does not depend on how
active it is, so no gradient deactivates it, and the rest of the guess compensates for it: small batches get stuck.
(Our own addition, off by default.)
For FedAvg the client's local steps are replayed. Their order is unknown: images are used in the order of the guess,
the same in every epoch.

Where we differ: 2,400 steps by default, for a CPU (24,000 in the paper, 4,800 in the authors' default settings); the
best iterate is kept, not the last; several images may share a label; BatchNorm uses the statistics of the batch, as
the client did (the authors' networks were in evaluation mode on both sides). A sum of replies is read as the update of
one client that holds everyone's images: exact for FedSGD weighted by examples, approximate for FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import DISTANCES, DistanceTo, distance_to, where_seen
from fedxray.attacks.inversion.problem import ImageInversion, Start
from fedxray.attacks.inversion.replay import Replay
from fedxray.attacks.observations import observation_at
from fedxray.optim import MOST_RATE, SignedAdam, Stairs, restarts
from fedxray.params import Params
from fedxray.priors import total_variation
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class InvertingGradients(ImageInversion):
    """What did the training images look like? Optimises images until they reproduce the direction of the update."""

    name: ClassVar[str] = "inverting-gradients"
    paper: ClassVar[str] = "geiping-2020"
    small: ClassVar[Mapping[str, Any]] = {"steps": 120}

    steps: int = setting(2400, problem.STEPS, least=1)
    learning_rate: float = setting(0.1, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    total_variation: float = setting(1e-4, problem.TOTAL_VARIATION, least=0)
    match: str = setting("cosine", problem.MATCH, choices=tuple(DISTANCES))
    start: Start = setting("normal", problem.START)
    skip_zeros: bool = setting(False, "Whether entries in which the observed update is exactly zero are ignored.")

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = problem.labels_in_batches(view, context, self.labels, self.at)
        like = next(iter(observation.start.values()))
        client, seen = problem.replayed(view, observation, len(labels), self.batch_norm)
        loss = partial(self._loss, client, seen, distance_to(seen, self.match), labels)
        starts = problem.drawn_starts(view, like, len(labels), context, self.restarts, self.start)
        method = SignedAdam(steps=self.steps, lr=self.learning_rate, decay=Stairs())
        project = problem.into_the_box(view, like)
        tried = restarts(loss, starts, method, report=context.report, project=project, what=self.name)
        return problem.reconstruction(view, observation, tried, labels, facts)

    def _loss(
        self, client: Replay, seen: Params, distance: DistanceTo, labels: Tensor, point: dict[str, Tensor]
    ) -> Tensor:
        update = client.update(point["inputs"], labels)
        match = distance(where_seen(update, seen) if self.skip_zeros else update)
        return match + self.total_variation * total_variation(point["inputs"])
