"""Deep Leakage from Gradients (Zhu, Liu and Han 2019), and DLG as Song et al. 2023 describe it.

Inputs and labels are sought together whose replayed update equals the observed one:
    1. Draw inputs from N(0, 1) and, for every input, class logits from N(0, 1).
    2. The labels are the softmax of the logits; the client's loss takes them as probabilities.
    3. Minimise the sum of squared differences between replayed and observed update over inputs and logits together,
       by L-BFGS with a learning rate of 1; no prior, no box.
    4. Of all iterates and restarts keep the one with the lowest loss.
L-BFGS requires a smooth loss: networks with sigmoids or softplus. With ReLU it often fails.

With reading = "song" it is DLG as in Song et al. 2023 (AWA): labels are known (granted, or from a sub-attack), Adam
with a learning rate of 0.1 takes 1,000 steps, and the update of several local steps is matched as it was sent. That
paper does not state the initial guess; here it is the same as for `awa` and `agic` whatever the settings, with
`start` and `box` as there (but N(0, 1) and no box by default).

Where we differ: 1,200 steps by default, each one evaluation of the loss (300 calls of up to 20 such steps in the
authors' code), and no pixel or logit changes by more than 1 per step, since L-BFGS without a line search may jump to
where sigmoids are flat; several images may be sought; the best iterate is kept, not the last.
`unit` is the scale of the differences. It changes only the magnitude of the loss, and so only the thresholds of L-BFGS
and the epsilon of Adam: "length" (a thousandth of the norm of the observed update; default of the original: at larger
scales L-BFGS treats the first gradient as zero on networks with small gradients), "sent" (as it was sent; default of
reading "song") or "rate" (the client's learning rate). A sum of replies is read as the update of one client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need, any_update, classification, images
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import squared_l2
from fedxray.attacks.inversion.problem import DecayName, ImageInversion, Start
from fedxray.attacks.inversion.replay import BatchNorm
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import examples_behind, known_examples, observation_at
from fedxray.optim import MOST_RATE, Adam, Lbfgs, Method, restarts
from fedxray.params import Params, scaled
from fedxray.priors import total_variation
from fedxray.seeds import fork, normal_like
from fedxray.settings import setting

Unit = Literal["length", "sent", "rate"]
UNIT = (
    "Scale of the differences between updates: a thousandth of the norm of the observed update, as sent, or the "
    "client's learning rate"
)
PART_OF_LENGTH = 1e-3
REACH = 1.0  # largest change of an entry in a step of L-BFGS


@dataclass(frozen=True)
class DlgVariant:
    """The defaults of DLG in one paper."""

    steps: int
    learning_rate: float
    unit: Unit
    known_labels: bool


VARIANTS = {"zhu": DlgVariant(1200, 1.0, "length", False), "song": DlgVariant(1000, 0.1, "sent", True)}


@dataclass(frozen=True, kw_only=True)
class Dlg(ImageInversion):
    """What did the training images look like? Seeks images and labels together that reproduce the update."""

    name: ClassVar[str] = "dlg"
    paper: ClassVar[str] = "zhu-2019"
    small: ClassVar[Mapping[str, Any]] = {"steps": 50}

    reading: Literal["zhu", "song"] = setting(
        "zhu",
        'Variant: the original, which also seeks the labels and uses L-BFGS ("zhu"), or that of Song et al. 2023, with '
        'known labels and Adam ("song").',
    )
    steps: int | None = setting(None, f"{problem.STEPS} Default: 1,200, or 1,000 with reading song.", least=1)
    learning_rate: float | None = setting(
        None, f"{problem.LEARNING_RATE} Default: 1, or 0.1 with reading song.", above=0, most=MOST_RATE
    )
    unit: Unit | None = setting(None, f'{UNIT}. Default: "length", or "sent" with reading song.')
    decay: DecayName = setting("none", problem.DECAY)
    total_variation: float = setting(0.0, problem.TOTAL_VARIATION, least=0)
    start: Start = setting("normal", problem.START)
    box: bool = setting(False, problem.BOX)
    labels: Attack = setting(
        LabelsIdlg,
        "Reading song: label attack used where neither labels nor label counts are granted.",
        check=problem.check_label_attack,
    )

    def method(self) -> Method:
        """Return the optimiser of the variant."""
        variant = VARIANTS[self.reading]
        steps = variant.steps if self.steps is None else self.steps
        rate = variant.learning_rate if self.learning_rate is None else self.learning_rate
        decay = problem.DECAYS[self.decay]
        if self.reading == "zhu":
            return Lbfgs(steps=steps, lr=rate, reach=REACH, decay=decay)
        return Adam(steps=steps, lr=rate, decay=decay)

    def needs(self) -> tuple[Need, ...]:
        """List images with classes, an update, its recipe and its number of examples; in reading "song" labels too."""
        if VARIANTS[self.reading].known_labels:
            return problem.image_needs(self.at, self.labels)
        return (images(), classification(), any_update(), known_examples(self.at), problem.replayable(self.at))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation, examples = observation_at(view, self.at), examples_behind(view, self.at)
        assert examples is not None
        labels, facts = None, {"labels": "sought with the images"}
        if VARIANTS[self.reading].known_labels:
            labels, facts = problem.labels_in_batches(view, context, self.labels, self.at)
        like = first_tensor(observation)
        draw = problem.drawn_starts if labels is None else problem.shared_starts
        starts = draw(view, like, examples, context, self.restarts, self.start)
        if labels is None:
            blank = like.new_empty(examples, view.space.outputs)  # class logits
            draws = [fork(context.generator, "labels", number) for number in range(self.restarts)]
            starts = [start | {"scores": normal_like(blank, draw)} for start, draw in zip(starts, draws, strict=True)]
        unit = self.unit or VARIANTS[self.reading].unit
        loss = matching_loss(view, observation, examples, labels, unit, self.batch_norm, self.total_variation)
        box = problem.into_the_box(view, like)  # of the inputs only: logits have no range
        project = (lambda point: {**point, **box({"inputs": point["inputs"]})}) if self.box else None
        tried = restarts(loss, starts, self.method(), report=context.report, project=project, what=self.name)
        most_likely = tried.outcome.best["scores"].argmax(-1) if labels is None else labels
        return problem.reconstruction(view, observation, tried, most_likely, facts)


def matching_loss(
    view: View,
    observation: Observation,
    examples: int,
    labels: Tensor | None,
    unit: Unit,
    batch_norm: BatchNorm,
    smoothness: float = 0.0,
) -> Callable[[dict[str, Tensor]], Tensor]:
    """Return the squared difference between the update of a guess and the observed one, as a loss.

    Without labels [examples] the guess holds class logits called "scores" [examples, classes]. `smoothness` is the
    weight of the total variation.
    """
    client, aim = problem.replayed(view, observation, examples, batch_norm)
    size = unit_size(unit, aim, view, observation)
    goal = scaled(aim, 1 / size)

    def loss(point: dict[str, Tensor]) -> Tensor:
        y = torch.softmax(point["scores"], -1) if labels is None else labels
        distance = squared_l2(scaled(client.update(point["inputs"], y), 1 / size), goal)
        return distance + smoothness * total_variation(point["inputs"]) if smoothness else distance

    return loss


def unit_size(unit: Unit, aim: Params, view: View, observation: Observation) -> float:
    """Return the scale by which differences of updates are divided."""
    recipe = problem.recipe_of(view, observation)
    assert recipe is not None
    if unit == "rate":
        return recipe.learning_rate if recipe.kind == "weights" else 1.0
    length = float(squared_l2(aim, scaled(aim, 0.0))) ** 0.5
    return PART_OF_LENGTH * length if unit == "length" and 0 < length < float("inf") else 1.0


def first_tensor(observation: Observation) -> Tensor:
    """Return a tensor with the dtype and device of the update."""
    return next(iter(observation.start.values()))
