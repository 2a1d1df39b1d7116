"""DLF with redrawn batches: one set of images, cut into other random batches in every step (ours).

A client shuffles its records in every epoch, and the attacker knows no order. DLF (Dimitrov et al. 2022) fixes one
order and seeks separate images for every epoch; here the images are the same in all epochs, and the order is averaged
out instead:
    1. Start from the images of `surrogate`, whose steps cost one gradient each.
    2. In every step draw an order of the images for each epoch, cut it into batches, simulate all local steps, and
       take the loss of DLF (squared differences by depth over the number of local steps, total variation, range of
       pixels), without a prior over epochs.
    3. Minimise by Adam at half of DLF's learning rate. Gradients are noisy, since the order changes, so the result is
       a moving mean of the iterates.
    4. Even the contrast of grey images on a plain background, as `dlf` does by default.

With `restarts` the first stage starts several times and is chosen by its own loss. Where the client takes a single
step there is no order, and this is plain inversion. Settings were chosen on writers of FEMNIST that no table reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.dlf import (
    EVEN_CONTRAST,
    DlfFamily,
    Objective,
    Simulation,
    evened,
    method_of,
    numbers_of,
    objective,
)
from fedxray.attacks.inversion.surrogate import Surrogate
from fedxray.data.dataset import Space
from fedxray.optim import MOST_RATE, Changing, Outcome, minimise
from fedxray.seeds import fork, permutation
from fedxray.settings import setting

MEAN = "mean"  # of the iterates
SLOWER = 0.5  # share of DLF's learning rate


@dataclass(frozen=True, kw_only=True)
class DlfRedrawn(DlfFamily):
    """What did the training images look like? Simulates the client's round with batches redrawn in every step."""

    name: ClassVar[str] = "dlf-redrawn"
    paper: ClassVar[str] = ""
    small: ClassVar[Mapping[str, Any]] = {"steps": 40, "first_steps": 60}

    steps: int = setting(55, f"{problem.STEPS} Those of the first stage are not counted.", least=1)
    learning_rate: float | None = setting(
        None,
        f"{problem.LEARNING_RATE} Default: half of the preset's, 0.2 for femnist, 0.05 for cifar100.",
        above=0,
        most=MOST_RATE,
    )
    first_steps: int = setting(300, "Steps of the first stage, `surrogate`.", least=1)
    averaging: float = setting(
        0.05, "Weight of the newest iterate in the moving mean; 1 returns the last iterate.", above=0, most=1
    )
    even_contrast: bool = setting(True, EVEN_CONTRAST)

    def one_set(self, images: Tensor, space: Space) -> Tensor:
        """Return the images, on a plain background with even contrast unless set otherwise."""
        return evened(images[0], space) if self.even_contrast else images[0]

    def loss(self, view: View, context: Context, simulated: Simulation) -> Objective:
        """Return the loss, with other batches in every step."""
        client = simulated.client
        epochs = sum(client.sizes) // client.examples
        loss = objective(view, self, replace(simulated, batches=epochs * simulated.batches))

        def orders(step: int) -> Tensor:
            draws = (permutation(client.examples, fork(context.root, "order", step, n)) for n in range(epochs))
            return torch.cat(list(draws)).to(simulated.labels.device)

        return replace(loss, orders=orders)

    def descended(self, view: View, context: Context, loss: Objective) -> tuple[Tensor, Outcome, dict[str, Any]]:
        """Minimise from the images of the first stage, and return the moving mean of the iterates."""
        first = context.run(self.first_stage(), view)
        start = first.tensors["inputs"][None]
        channels = view.space.shape[0]
        slower = SLOWER * numbers_of(self, channels).learning_rate
        method = method_of(self if self.learning_rate is not None else replace(self, learning_rate=slower), channels)
        end = minimise(
            Changing(at=loss.value, settled=loss.half),
            {"inputs": start, MEAN: start},
            method,
            report=context.report,
            project=self._averaged,
            what=self.name,
        )
        images = loss.simulation.client.shown(end.kept(self.keep)[MEAN][0])[None]
        return images, end, {"own_loss": [end.loss_of(self.keep)], "first_stage": first.status}

    def first_stage(self) -> Surrogate:
        """Return the attack whose images are the start."""
        shared = ("preset", "match", "match_weight", "total_variation", "clip", "label_order", "labels", "restarts")
        given = {name: getattr(self, name) for name in (*shared, "at", "batch_norm")}
        return Surrogate(steps=self.first_steps, **given)

    def _averaged(self, point: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the point with its moving mean brought up to date."""
        return point | {MEAN: torch.lerp(point[MEAN], point["inputs"], self.averaging)}
