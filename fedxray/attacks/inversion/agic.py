"""Approximate Gradient Inversion, AGIC (Xu, Hong, Huang, Chen and Decouchant 2022, arXiv 2204.13784).

The local steps of a round are approximated by one step on all their batches together:
    1. Take the labels as granted, or from a sub-attack. Draw inputs from N(0, 1).
    2. The update of a guess is one step on all inputs, with the total length of all the client's steps on a constant
       gradient.
    3. Minimise the sum over layers of weight * (1 - cosine of the layer's replayed and observed update), plus total
       variation. Weights rise linearly from 1 at the first convolution to their number at the last, and so for linear
       layers; other layers have weight 1. Adam on the sign of the gradient, as in inverting_gradients.py.
    4. With at = "all" the sum is over all observed rounds: the client trained on the same records in each.
It is accurate while steps are small, and costs one step however many the client took.

There is no public code, and the paper states that weights were chosen empirically: ramps, optimiser and total variation
are ours. optimiser = "adam" with total_variation = 0 is AGIC as Song et al. 2023 describe it. A combined batch would
hold every image once per epoch; since the client trains on the same images, they are sought once.

With match = "l2" the same weights apply to squared differences instead, in the given `unit`: the norm of the updates
then counts too, which a cosine ignores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import distance_to, squares
from fedxray.attacks.inversion.dlg import UNIT, Unit, first_tensor, unit_size
from fedxray.attacks.inversion.layer_weights import layers_of, ramps
from fedxray.attacks.inversion.problem import DecayName, ImageInversion, Start
from fedxray.attacks.observations import AtOrAll, observation_at
from fedxray.optim import MOST_RATE, Adam, Method, SignedAdam, Stairs, restarts
from fedxray.params import Params
from fedxray.priors import total_variation
from fedxray.settings import setting

RoundLoss = Callable[[Tensor], Tensor]  # inputs [examples, ...] -> the weighted distance of one round
RISING = {"conv": None, "linear": None}  # weights rise to the number of such layers


@dataclass(frozen=True, kw_only=True)
class Agic(ImageInversion):
    """What did the training images look like? Treats the round as one step; later layers have more weight."""

    name: ClassVar[str] = "agic"
    paper: ClassVar[str] = "xu-2022"
    small: ClassVar[Mapping[str, Any]] = {"steps": 120}

    steps: int = setting(1000, problem.STEPS, least=1)
    learning_rate: float = setting(0.1, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    optimiser: Literal["signed", "adam"] = setting(
        "signed", "Adam on the sign of the gradient with a falling learning rate, or plain Adam."
    )
    decay: DecayName | None = setting(
        None, f"{problem.DECAY} Default: in stairs with the signed optimiser, constant with plain Adam."
    )
    total_variation: float = setting(1e-4, problem.TOTAL_VARIATION, least=0)
    match: Literal["cosine", "l2"] = setting(
        "cosine", "Distance per layer: one minus the cosine, or the squared difference."
    )
    unit: Unit = setting("rate", f"{UNIT} (match = l2).")
    start: Start = setting("normal", problem.START)
    box: bool = setting(True, problem.BOX)
    at: AtOrAll = setting("first", "Which of the target's updates are attacked.")  # type: ignore[assignment]

    def method(self) -> Method:
        """Return Adam on signs with falling steps, or plain Adam."""
        if self.optimiser == "adam":
            return Adam(steps=self.steps, lr=self.learning_rate, decay=problem.DECAYS[self.decay or "none"])
        decay = Stairs() if self.decay is None else problem.DECAYS[self.decay]
        return SignedAdam(steps=self.steps, lr=self.learning_rate, decay=decay)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        seen = view.of_target() if self.at == "all" else (observation_at(view, self.at),)
        labels, facts = problem.labels_in_batches(view, context, self.labels, self.at)
        like = first_tensor(seen[0])
        rounds = [self._round_loss(view, observation, labels) for observation in seen]

        def loss(point: dict[str, Tensor]) -> Tensor:
            x = point["inputs"]
            distance = torch.stack([one_round(x) for one_round in rounds]).sum()
            return distance + self.total_variation * total_variation(x) if self.total_variation else distance

        tried = restarts(
            loss, problem.shared_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=problem.into_the_box(view, like) if self.box else None, what=self.name,
        )  # fmt: skip
        return problem.reconstruction(view, seen[0], tried, labels, facts | {"rounds": len(seen)})

    def _round_loss(self, view: View, observation: Observation, labels: Tensor) -> RoundLoss:
        """Return the weighted distance of one round as a function of the inputs."""
        client, aim = problem.replayed(view, observation, len(labels), self.batch_norm, merged=True)
        layers = layers_of(view.model, aim)
        counts = ramps(layers, RISING)
        size = unit_size(self.unit, aim, view, observation)
        angles = [(layer.tensors, distance_to(_of(aim, layer.tensors), "cosine")) for layer in layers]

        def loss(x: Tensor) -> Tensor:
            update = client.update(x, labels)
            if self.match == "l2":
                squared = squares(update, aim)
                by_layer = [torch.stack([squared[name] for name in layer.tensors]).sum() / size**2 for layer in layers]
            else:
                by_layer = [angle(_of(update, names)) for names, angle in angles]
            distances = torch.stack(by_layer)  # [layers]
            return (distances * distances.new_tensor(counts)).sum()

        return loss


def _of(params: Params, names: tuple[str, ...]) -> dict[str, Tensor]:
    return {name: params[name] for name in names}
