"""Model inversion (Fredrikson, Jha and Ristenpart 2015; Eq. 5 of Driouich et al.): the image of a class in a model.

For every class an image is sought that the client's model assigns to that class with high probability:
    1. Start from a uniform grey, for every class the same.
    2. Minimise one minus the model's probability of the class, by plain gradient steps.
    3. Project onto the range of valid pixels after each step.
    4. Keep the images with the lowest cost.
The result is one image per class as the model represents it, not a training image.

Where we differ: both papers minimise 1 - probability (`cost = "probability"`), whose gradient vanishes wherever the
model is confident of another class, so that little happens; by default we minimise -log of the probability, which the
attacker can see to reach several times the confidence. Fredrikson's stopping rules are left out, since steps are
cheap; all classes are optimised in parallel, and the images kept are those with the lowest total cost. Driouich et al.
give step sizes (1e-3 or 1e-4) without a number of steps or a start; we take Fredrikson's step size and start from
mid-grey. A step that is too small for a network leaves the images grey, which the attacker sees by its own cost;
`rates` are tried in addition, and the images of lowest cost are kept. `total_variation` adds the smoothness of later
work; the papers have none.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, classification, images, needs_of_model
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_class_images
from fedxray.attacks.inversion.problem import into_the_box
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.optim import MOST_RATE, Sgd, minimise
from fedxray.params import Params
from fedxray.priors import total_variation
from fedxray.settings import setting


class ClassImages(Attack):
    """Base of attacks that reconstruct an image of every class from a model."""

    kind: ClassVar[Kind] = "class-images"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    floors: ClassVar[tuple[str, ...]] = ("class-mean", "random-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client", "global-model")


@dataclass(frozen=True, kw_only=True)
class ModelInversion(ClassImages):
    """What do the images of a class look like? For each class, the image with the highest confidence of the model."""

    name: ClassVar[str] = "model-inversion"
    paper: ClassVar[str] = "fredrikson-2015"
    grants: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = {"steps": 100}

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")
    steps: int = setting(1000, "Optimisation steps.", least=1)
    learning_rate: float = setting(0.1, "Learning rate of gradient descent.", above=0, most=MOST_RATE)
    cost: Literal["probability", "log-probability"] = setting(
        "log-probability", "What is minimised: 1 - probability of the class (the papers), or -log of it."
    )
    total_variation: float = setting(
        0.0, "Weight of the total variation penalty; larger values give smoother images.", least=0
    )
    shade: float = setting(0.5, "Grey of the initial image: 0 is black, 1 white.", least=0, most=1)
    rates: tuple[float, ...] = setting(
        (), "Further learning rates to try; the images of lowest cost are kept.", above=0, most=MOST_RATE, later=True
    )

    def needs(self) -> tuple[Need, ...]:
        """List images with classes, and the needs of the attack on the model."""
        return (images(), classification(), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, all classes at once."""
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

        rates, project = (self.learning_rate, *self.rates), into_the_box(view, like)
        ends = [
            minimise(
                cost,
                {"inputs": start},
                Sgd(steps=self.steps, lr=rate),
                report=context.report,
                project=project,
                what=self.name,
            )
            for rate in rates
        ]
        rate, end = min(zip(rates, ends, strict=True), key=lambda tried: tried[1].best_loss)
        best = end.best["inputs"]
        with torch.no_grad():
            sure = log_probabilities(network, params, buffers, best, labels).exp()
        facts = {"confidence": float(sure.mean()), "cost": end.best_loss / classes, "lr": rate}
        return of_class_images(best, labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts)


def log_probabilities(network: nn.Module, params: Params, buffers: Params, x: Tensor, labels: Tensor) -> Tensor:
    """Return the log probability [n] that the network assigns to each image [n, c, h, w] for its label [n]."""
    output = functional_call(network, ({**params, **buffers},), (x,))
    return torch.log_softmax(output, -1).gather(1, labels[:, None])[:, 0]
