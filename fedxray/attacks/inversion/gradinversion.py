"""See through Gradients, or GradInversion (Yin, Mallya, Vahdat, Alvarez, Kautz and Molchanov 2021).

Several guesses are sought side by side from different starts, held together by what they agree on:
    1. Take the labels as granted, or from a sub-attack; with distinct_labels = true by the paper's rule: the N
       classes whose row of the last layer has the lowest smallest entry of the gradient.
    2. Draw for each of `restarts` guesses images from N(0, 1).
    3. Descend on the sum over guesses of
           squared distance of replayed and seen update
         + tv * total variation + norm * half the mean square of the pixels
         + bn * distance of the BatchNorm statistics of the guess from the client's, the first layer ten times
         + group * mean squared distance to the mean of all guesses, from `group_from` of the steps on
       by Adam, with a learning rate that rises over 50 steps and falls to zero along a cosine, some normal
       noise after each step, and back into the range of valid pixels.
    4. Of the guesses keep the one where the loss without the group is lowest.
The client's BatchNorm statistics are those granted (`bn-statistics`); without the grant those that can be
worked out from the running statistics that the client returns; and where it returns none, the running
statistics of the model, as the paper's network had them. The result says which.

Where we differ: guesses are averaged pixel by pixel without the registration of images by a trained network, but
images of one label are matched first; 2,400 steps by default (20,000 in the paper) and 4 guesses; the
squared distance is measured in the squared length of the update seen, so that the weights mean the same for every
network; the noise is 0.01 of the learning rate, as in a public implementation (0.2 in the paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.aim import At, check_at, examples_behind, observation_at
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.dlg import PART_OF_LENGTH, first_tensor, matching_loss
from fedxray.attacks.inversion.group import consensus
from fedxray.attacks.inversion.known import (
    as_far_as_told,
    check_count,
    check_label_attack,
    check_weight,
    drawn_starts,
    image_needs,
    into_the_box,
    labels_in_batches,
    recipe_of,
)
from fedxray.attacks.inversion.langevin import Langevin
from fedxray.attacks.inversion.norm_match import known_statistics, statistics_loss
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.decays import Cosine, WarmUp
from fedxray.errors import BadInput
from fedxray.minimise import Changing, Loss, minimise
from fedxray.models.inspect import head
from fedxray.priors import l2, total_variation
from fedxray.seeds import derive_seed

WARM_UP = 50  # steps, at most a tenth of all


@dataclass(frozen=True, kw_only=True)
class GradInversion(Attack):
    """What did the training images look like? Several guesses are pulled to what they have in common."""

    name: ClassVar[str] = "gradinversion"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 50, "restarts": 2}
    adapts: ClassVar[bool] = True

    steps: int = 2400
    learning_rate: float = 0.1
    restarts: int = 4
    tv: float = 1e-4
    norm: float = 1e-6
    bn: float = 0.1
    group: float = 0.01
    group_from: float = 0.25  # share of the steps after which guesses are pulled together
    noise: float = 0.01  # in learning rates
    distinct_labels: bool = False
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method(0)
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_count("restarts", self.restarts)
        check_label_attack(self.labels)
        for name in ("tv", "norm", "bn", "group", "noise"):
            check_weight(name, getattr(self, name))
        if not 0 <= self.group_from <= 1:
            raise BadInput(
                "group_from", expected="a share from 0 to 1", got=repr(self.group_from), remedy="Try 0.25."
            )

    def method(self, seed: int) -> Langevin:
        """The optimiser of the paper, with noise from this seed."""
        decay = WarmUp(over=max(1, min(WARM_UP, self.steps // 10)), then=Cosine())
        return Langevin(steps=self.steps, lr=self.learning_rate, noise=self.noise, seed=seed, decay=decay)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        labels, facts = self._labels(view, observation, context)
        starts = drawn_starts(view, first_tensor(observation), len(labels), context, self.restarts)
        start = {"inputs": torch.stack([one["inputs"] for one in starts])}  # [restarts, examples, ...]
        own, source = self._own_loss(view, observation, labels)
        end = minimise(
            self._together(own, labels), start, self.method(derive_seed(context.generator, "noise")),
            report=context.report, project=into_the_box(view, start["inputs"]), what=self.name,
        )  # fmt: skip
        with torch.enable_grad():  # the loss is made of gradients
            losses = [own({"inputs": one}).item() for one in end.best["inputs"]]
        chosen = min(range(len(losses)), key=losses.__getitem__)
        facts |= {"round": observation.round, "own_loss": losses, "restart": chosen, "bn_statistics": source}
        evidence = of_images(
            end.best["inputs"][chosen],
            labels,
            status=end.status,
            reason=end.reason,
            curve=end.curve,
            facts=facts,
        )
        return as_far_as_told(view, observation, evidence)

    def _labels(
        self, view: View, observation: Observation, context: Context
    ) -> tuple[Tensor, dict[str, Any]]:
        """The labels to work with, shape [examples], and where they come from."""
        told = view.grants.labels is not None or view.grants.label_counts is not None
        if told or not self.distinct_labels:
            labels, facts = labels_in_batches(view, context, self.labels, self.at)
            return labels.to(first_tensor(observation).device), facts
        examples = examples_behind(view, self.at)
        assert examples is not None
        return lowest_rows(observation.update[head(view.model).weight], examples), {"labels": "lowest rows"}

    def _own_loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Loss, str]:
        """The loss of one guess by itself, and which BatchNorm statistics it uses."""
        match = matching_loss(view, observation, len(labels), labels, "length", self.batch_norm)
        recipe = recipe_of(view, observation)
        assert recipe is not None
        wanted, source = known_statistics(view, observation, recipe, len(labels))
        use = bool(wanted) and self.bn > 0
        statistics = statistics_loss(view, observation, recipe, wanted) if use else None

        def own(point: dict[str, Tensor]) -> Tensor:
            x = point["inputs"]
            value = PART_OF_LENGTH**2 * match(point) + self.tv * total_variation(x) + self.norm * l2(x)
            return value if statistics is None else value + self.bn * statistics(x)

        return own, source if use else "none"

    def _together(self, own: Loss, labels: Tensor) -> Changing:
        """The loss of all guesses, which pull each other from a certain step on."""
        settled = round(self.group_from * self.steps)

        def loss(point: dict[str, Tensor], step: int) -> Tensor:
            guesses = point["inputs"]
            value = torch.stack([own({"inputs": one}) for one in guesses]).sum()
            if step < settled or len(guesses) < 2 or not self.group:
                return value
            apart = ((guesses - consensus(guesses.detach(), labels)) ** 2).flatten(1).mean(1)
            return value + self.group * apart.sum()

        return Changing(at=loss, settled=settled)


def lowest_rows(update: Tensor, examples: int) -> Tensor:
    """The classes [examples] whose row of the gradient, minus the update [classes, features], dips lowest.

    The paper's rule knows each class once; more examples than classes start over.
    """
    order = (-update).min(1).values.argsort(stable=True)
    return order.repeat(-(-examples // len(order)))[:examples].sort().values
