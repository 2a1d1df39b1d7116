"""Inverting Gradients (Geiping, Bauermeister, Dröge and Moeller 2020), for FedSGD and for FedAvg.

Images are sought whose replayed update points in the direction of the one seen, and that are smooth:
    1. Take the labels as granted, or from a sub-attack.
    2. Draw images from N(0, 1) in the space of the model's inputs.
    3. Descend on 1 - cos(replayed update, seen update) + weight * total variation, by Adam on the sign of the
       gradient, with a tenth of the learning rate from 3/8, 5/8 and 7/8 of the steps on; after each step go
       back into the range of valid pixels.
    4. Of all iterates and restarts keep the one where this loss is lowest.
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

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, check_at, known_examples, observation_at
from fedxray.attacks.base import Attack, Context, Need, any_update, images
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import DISTANCES
from fedxray.attacks.inversion.replay import BatchNorm, Replay, check_batch_norm, replay, straight_schedule
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.recipe import Recipe
from fedxray.methods import SignedAdam, Stairs
from fedxray.minimise import Project, restarts
from fedxray.params import Params, scaled
from fedxray.priors import clip, total_variation
from fedxray.seeds import fork, normal_like


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

    steps: int = 2400
    learning_rate: float = 0.1
    total_variation: float = 1e-4
    match: str = "cosine"  # cosine | cosine-by-layer | l2 | l1
    restarts: int = 1
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        if self.match not in DISTANCES:
            raise unknown_name("match", self.match, DISTANCES)
        if not 0 <= self.total_variation < float("inf"):
            raise BadInput("total_variation", expected="a finite number ≥ 0", got=repr(self.total_variation),
                           remedy="Try 1e-4.")  # fmt: skip
        if isinstance(self.restarts, bool) or not isinstance(self.restarts, int) or self.restarts < 1:
            raise BadInput("restarts", expected="a whole number of at least 1", got=repr(self.restarts),
                           remedy="Try 1.")  # fmt: skip
        if self.labels.kind != "labels":
            raise BadInput(
                "labels", expected="an attack on labels", got=self.labels.name, remedy="Try labels-idlg."
            )

    def method(self) -> SignedAdam:
        """The optimiser of the paper."""
        return SignedAdam(steps=self.steps, lr=self.learning_rate, decay=Stairs())

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        inner = tuple(_unless_granted(need) for need in self.labels.needs())
        return (images(), any_update(), known_examples(self.at), _replayable(self.at), *inner)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = self._labels(view, context)
        like = next(iter(observation.start.values()))
        labels = labels.to(device=like.device)
        client, seen = replayed(view, observation, len(labels), self.batch_norm)
        blank = torch.empty((len(labels), *view.space.shape), dtype=like.dtype, device=like.device)
        starts = [
            {"inputs": normal_like(blank, fork(context.generator, "restart", place))}
            for place in range(self.restarts)
        ]
        found = restarts(
            partial(self._loss, client, seen, labels), starts, self.method(),
            report=context.report, project=into_the_box(view, blank), what=self.name,
        )  # fmt: skip
        facts |= {"round": observation.round, "own_loss": [one.best_loss for one in found.outcomes],
                  "restart": found.chosen}  # fmt: skip
        end = found.outcome
        return of_images(
            end.best["inputs"], labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts
        )

    def _loss(self, client: Replay, seen: Params, labels: Tensor, point: dict[str, Tensor]) -> Tensor:
        distance = DISTANCES[self.match](client.update(point["inputs"], labels), seen)
        return distance + self.total_variation * total_variation(point["inputs"])

    def _labels(self, view: View, context: Context) -> tuple[Tensor, dict[str, Any]]:
        """The labels to work with, shape [examples], and where they come from."""
        if view.grants.labels is not None:
            return view.grants.labels, {"labels": "granted"}
        counts = view.grants.label_counts
        facts: dict[str, Any] = {"labels": "granted counts"}
        if counts is None:
            evidence = context.run(self.labels, view)
            counts = evidence.tensors["counts"]
            facts = {"labels": self.labels.name, "labels_status": evidence.status}
        return torch.arange(len(counts), device=counts.device).repeat_interleave(counts), facts


def replayed(
    view: View, observation: Observation, examples: int, batch_norm: BatchNorm
) -> tuple[Replay, Params]:
    """The client's round to replay, and what it should come to."""
    recipe = recipe_of(view, observation)
    assert recipe is not None
    order = straight_schedule(examples, recipe)
    client = replay(
        view.model, observation.start, recipe, order, buffers=observation.buffers, batch_norm=batch_norm
    )
    is_sum = observation.contributors is None or len(observation.contributors) > 1
    step = recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)
    return client, scaled(observation.update, 1 / step) if is_sum else observation.update


def recipe_of(view: View, observation: Observation) -> Recipe | None:
    """How the update was made: one gradient needs no telling."""
    if observation.kind == "gradient":
        return Recipe(algorithm="fedsgd", loss=view.loss)
    return view.grants.recipe


def into_the_box(view: View, like: Tensor) -> Project:
    """Back into the range of valid inputs."""
    low, high = view.space.bounds(like)
    return lambda point: {name: clip(value, low, high) for name, value in point.items()}


def _replayable(at: At) -> Need:
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: recipe_of(view, observation_at(view, at)) is not None,
    )


def _unless_granted(need: Need) -> Need:
    """A need of the label attack, which falls away when labels are granted."""
    return Need(
        what=need.what,
        given_by=f'{need.given_by}, or grants = ["labels"]',
        met=lambda view: (
            view.grants.labels is not None or view.grants.label_counts is not None or need.met(view)
        ),
    )
