"""Model inversion (Fredrikson, Jha and Ristenpart 2015; Eq. 5 of paper 000): the image of a class in a model.

For every class an image is sought that the client's model is sure to be of that class:
    1. Start from one plain shade, for every class alike.
    2. Descend on the model's doubt that it is of the class, by plain gradient steps.
    3. After each step go back into the range of valid pixels.
    4. Keep the images of least cost.
It gives one image per class that the model knows, not an image that was trained on.

Where we differ: both papers descend on 1 - probability (`cost = "probability"`), whose slope vanishes wherever the
model is sure of another class, so that little happens; by default we descend on -log of the probability, which the
attacker can see to reach several times the confidence. Fredrikson's stopping rules are left out, since steps are
cheap; all classes are descended on side by side, and the images kept are those of least summed cost. Paper 000 gives
step sizes (1e-3 or 1e-4) without a number of steps or a start; we take Fredrikson's step size and start from
mid-grey. `total_variation` adds the smoothness that later work asks for; the papers have none.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, classification, images, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_class_images
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput
from fedxray.optim import Sgd, check_settings, minimise
from fedxray.params import Params
from fedxray.priors import clip, total_variation

COSTS = ("probability", "log-probability")


@dataclass(frozen=True, kw_only=True)
class ModelInversion(Attack):
    """What do the images of a class look like? For each class, the image that the client's model is surest of."""

    name: ClassVar[str] = "model-inversion"
    kind: ClassVar[Kind] = "class-images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ()
    floors: ClassVar[tuple[str, ...]] = ("class-mean",)
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"steps": 100}

    model: Attack = field(default_factory=LastReturned)
    steps: int = 1000
    learning_rate: float = 0.1
    cost: Literal["probability", "log-probability"] = "log-probability"
    total_variation: float = 0.0
    shade: float = 0.5  # of the first image: 0 is black, 1 white

    def __post_init__(self) -> None:
        """Check every setting."""
        check_settings(self.method())
        if self.cost not in COSTS:
            raise BadInput(
                "cost", expected=" or ".join(COSTS), got=repr(self.cost), remedy=f"Try {COSTS[0]!r}."
            )
        if not 0 <= self.total_variation < float("inf"):
            expected, remedy = "a finite number of at least 0", "Try 0."
            raise BadInput(
                "total_variation", expected=expected, got=repr(self.total_variation), remedy=remedy
            )
        if not 0 <= self.shade <= 1:
            raise BadInput("shade", expected="a number from 0 to 1", got=repr(self.shade), remedy="Try 0.5.")

    def method(self) -> Sgd:
        """Plain gradient steps."""
        return Sgd(steps=self.steps, lr=self.learning_rate)

    def needs(self) -> tuple[Need, ...]:
        """Images with classes, and whatever the model's own reconstruction needs."""
        return (images(), classification(), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, all classes at once."""
        params, buffers = model_params(context.run(self.model, view))
        like, classes = next(iter(params.values())), len(view.space.classes)
        low, high = view.space.bounds(like)
        start = (low + self.shade * (high - low)).expand(classes, *view.space.shape).clone()
        labels = torch.arange(classes, dtype=torch.int64, device=like.device)
        network = copy.deepcopy(view.model).eval()

        def cost(point: dict[str, Tensor]) -> Tensor:
            sure = log_probabilities(network, params, buffers, point["inputs"], labels)
            each = -sure if self.cost == "log-probability" else 1 - sure.exp()
            # A sum, so that every image takes its own steps whatever the number of classes.
            return each.sum() + classes * self.total_variation * total_variation(point["inputs"])

        found = minimise(
            cost,
            {"inputs": start},
            self.method(),
            report=context.report,
            project=lambda point: {"inputs": clip(point["inputs"], low, high)},
            what=self.name,
        )
        best = found.best["inputs"]
        with torch.no_grad():
            sure = log_probabilities(network, params, buffers, best, labels).exp()
        facts = {"confidence": float(sure.mean()), "cost": found.best_loss / classes}
        return of_class_images(
            best, labels, status=found.status, reason=found.reason, curve=found.curve, facts=facts
        )


def log_probabilities(
    network: nn.Module, params: Params, buffers: Params, x: Tensor, labels: Tensor
) -> Tensor:
    """The log of the probability that the network gives each image [n, c, h, w] of its label [n]; shape [n]."""
    output = functional_call(network, ({**params, **buffers},), (x,))
    return torch.log_softmax(output, -1).gather(1, labels[:, None])[:, 0]
