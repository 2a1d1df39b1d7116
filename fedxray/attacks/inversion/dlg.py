"""Deep Leakage from Gradients (Zhu, Liu and Han 2019), and paper 002's reading of it.

Inputs and labels are sought together whose replayed update is the one seen:
    1. Draw inputs from N(0, 1) and, for every input, free scores of the classes from N(0, 1).
    2. The labels are the softmax of the scores; the client's loss takes them as probabilities.
    3. Descend on the sum of squared differences between replayed and seen update, over inputs and scores
       together, by L-BFGS with a learning rate of 1; no prior, no box.
    4. Of all iterates and restarts keep the one where this loss is lowest.
L-BFGS wants a loss that is smooth: networks with sigmoids or softplus. With ReLU it often fails.

With reading = "002" it is what paper 002 calls DLG: labels are known (granted, or from a sub-attack), Adam with a
learning rate of 0.1 takes 1,000 steps, and the update of several local steps is matched as it was sent. The paper
does not say where it starts; here from the same inputs as `awa` and `agic` whatever the settings, `start` and `box`
as there (but N(0, 1) and no box by default).

Where we differ: 1,200 steps by default, each one evaluation of the loss (300 calls of up to 20 such steps in
the authors' code), in which no pixel and no score changes by more than 1, since L-BFGS without a line search may
jump to where sigmoids are flat; several images may be sought; the best iterate is kept, not the last.
`unit` is what the difference is measured in. It changes nothing but the size of the loss, and so only the
thresholds of L-BFGS and the epsilon of Adam: "length" (a thousandth of the length of the update seen; default of
the original: in larger units L-BFGS takes the first slope for no slope on networks that are not very
sensitive), "sent" (as it was sent; default of 002) or "rate" (the client's learning rate). A sum of replies is
read as the update of one client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need, any_update, classification, images
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import squared_l2
from fedxray.attacks.inversion.problem import (
    Start,
    as_far_as_told,
    check_count,
    check_label_attack,
    check_start,
    drawn_starts,
    image_needs,
    into_the_box,
    labels_in_batches,
    recipe_of,
    replayable,
    replayed,
    shared_starts,
)
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, examples_behind, known_examples, observation_at
from fedxray.errors import BadInput
from fedxray.optim import Adam, Lbfgs, Method, Project, Restarts, restarts
from fedxray.params import Params, scaled
from fedxray.seeds import fork, normal_like

Unit = Literal["length", "sent", "rate"]
UNITS = ("length", "sent", "rate")
PART_OF_LENGTH = 1e-3
REACH = 1.0  # of a step of L-BFGS


@dataclass(frozen=True)
class Reading:
    """What a paper means by DLG."""

    steps: int
    learning_rate: float
    unit: Unit
    known_labels: bool


READINGS = {"zhu": Reading(1200, 1.0, "length", False), "002": Reading(1000, 0.1, "sent", True)}


@dataclass(frozen=True, kw_only=True)
class Dlg(Attack):
    """What did the training images look like? Images and labels are sought together that cause the update sent."""

    name: ClassVar[str] = "dlg"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 50}
    adapts: ClassVar[bool] = True

    reading: Literal["zhu", "002"] = "zhu"
    steps: int | None = None  # None: what the reading has, 1,200 or 1,000
    learning_rate: float | None = None  # None: what the reading has, 1 or 0.1
    unit: Unit | None = None  # None: what the reading has
    restarts: int = 1
    start: Start = "normal"
    box: bool = False  # whether every step goes back into the range of valid inputs
    labels: Attack = field(default_factory=LabelsIdlg)  # reading 002, where the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        if self.reading not in READINGS:
            raise BadInput("reading", expected='"zhu" or "002"', got=repr(self.reading), remedy='Try "zhu".')
        self.method()
        check_unit(self.unit or "sent")
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_count("restarts", self.restarts)
        check_start(self.start)
        check_label_attack(self.labels)

    def method(self) -> Method:
        """The optimiser of the reading."""
        paper = READINGS[self.reading]
        steps = paper.steps if self.steps is None else self.steps
        rate = paper.learning_rate if self.learning_rate is None else self.learning_rate
        return (
            Lbfgs(steps=steps, lr=rate, reach=REACH) if self.reading == "zhu" else Adam(steps=steps, lr=rate)
        )

    def needs(self) -> tuple[Need, ...]:
        """Images with classes, an update, how it was made and how many examples made it; 002: labels too."""
        if READINGS[self.reading].known_labels:
            return image_needs(self.at, self.labels)
        return (images(), classification(), any_update(), known_examples(self.at), replayable(self.at))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation, examples = observation_at(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        labels, facts = None, {"labels": "sought with the images"}
        if READINGS[self.reading].known_labels:
            labels, facts = labels_in_batches(view, context, self.labels, self.at)
        like = first_tensor(observation)
        draw = drawn_starts if labels is None else shared_starts
        starts = draw(view, like, examples, context, self.restarts, self.start)
        if labels is None:
            starts = [one | {"scores": self._scores(view, one["inputs"], context, place)}
                      for place, one in enumerate(starts)]  # fmt: skip
        unit = self.unit or READINGS[self.reading].unit
        loss = matching_loss(view, observation, examples, labels, unit, self.batch_norm)
        project = _inputs_only(into_the_box(view, like)) if self.box else None
        found = restarts(loss, starts, self.method(), report=context.report, project=project, what=self.name)
        evidence = reconstruction(found, labels, facts | {"round": observation.round})
        return as_far_as_told(view, observation, evidence)

    def _scores(self, view: View, inputs: Tensor, context: Context, place: int) -> Tensor:
        """Free scores of the classes, shape [examples, classes]."""
        blank = inputs.new_empty(len(inputs), view.space.outputs)
        return normal_like(blank, fork(context.generator, "labels", place))


def matching_loss(
    view: View,
    observation: Observation,
    examples: int,
    labels: Tensor | None,
    unit: Unit,
    batch_norm: BatchNorm,
) -> Callable[[dict[str, Tensor]], Tensor]:
    """The squared difference between the update of a guess and the one seen; without labels the guess has scores."""
    client, aim = replayed(view, observation, examples, batch_norm)
    size = unit_size(unit, aim, view, observation)
    goal = scaled(aim, 1 / size)
    known = None if labels is None else labels.to(first_tensor(observation).device)

    def loss(point: dict[str, Tensor]) -> Tensor:
        y = torch.softmax(point["scores"], -1) if known is None else known
        return squared_l2(scaled(client.update(point["inputs"], y), 1 / size), goal)

    return loss


def unit_size(unit: Unit, aim: Params, view: View, observation: Observation) -> float:
    """What differences are divided by."""
    recipe = recipe_of(view, observation)
    assert recipe is not None
    if unit == "rate":
        return recipe.learning_rate if recipe.kind == "weights" else 1.0
    length = float(squared_l2(aim, scaled(aim, 0.0))) ** 0.5
    return PART_OF_LENGTH * length if unit == "length" and 0 < length < float("inf") else 1.0


def _inputs_only(project: Project) -> Project:
    """The projection of the inputs alone: scores of classes have no range."""
    return lambda point: {**point, **project({"inputs": point["inputs"]})}


def reconstruction(found: Restarts, labels: Tensor | None, facts: dict[str, Any]) -> Evidence:
    """The guess of lowest own loss; labels that were sought are the likeliest ones."""
    end = found.outcome
    told = end.best["scores"].argmax(-1) if labels is None else labels.to(end.best["inputs"].device)
    facts |= {"own_loss": [one.best_loss for one in found.outcomes], "restart": found.chosen}
    return of_images(
        end.best["inputs"], told, status=end.status, reason=end.reason, curve=end.curve, facts=facts
    )


def first_tensor(observation: Observation) -> Tensor:
    """A tensor that tells type and device."""
    return next(iter(observation.start.values()))


def check_unit(unit: str) -> None:
    """Refuse a unit that is not there."""
    if unit not in UNITS:
        raise BadInput("unit", expected=f"one of {', '.join(UNITS)}", got=repr(unit), remedy='Try "length".')
