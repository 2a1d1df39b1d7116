"""Surrogate model extension (SME; Zhu, Yao and Blaschko 2023): one gradient stands for a whole round of local steps.

Every local step is a gradient at some model between the one that was sent and the one that came back. Their sum is
approximated by a single gradient at one model on the line between both, and that model is sought with the images:
    1. Take the labels as granted, or their counts as granted or from a sub-attack.
    2. Draw images from N(0, 1); begin at the middle of the line.
    3. The surrogate model is start + position * (end - start). The loss is the distance of its gradient on all
       images, times the number of local steps, from (start - end) / learning rate; plus total variation; plus a
       penalty on pixels outside their range.
    4. Minimise by Adam over images and position together; the position stays between 0 (start) and 1 (end).
An iteration costs one gradient, whatever the number of local steps. At position 0 it is `fedsgd-inversion`.

Where we differ: match, weights and schedule are those of DLF (the authors match by the cosine: match = "cosine"), so
that both can be compared; restarts and the last iterate as in DLF. The update of FedSGD has no line: its gradient is
taken at the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.inversion import replay as replaying
from fedxray.attacks.inversion.dlf import DlfFamily, Line, Objective, Simulation, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import scaled
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class Surrogate(DlfFamily):
    """What did the training images look like? Matches one gradient at a model between start and end of the round."""

    name: ClassVar[str] = "surrogate"
    paper: ClassVar[str] = "zhu-2023"

    position: float = setting(
        0.5, "Where on the line from the model sent (0) to the returned one (1) the search begins.", least=0, most=1
    )
    position_rate: float = setting(0.01, "Learning rate of the position; 0 keeps it.", least=0, most=1)

    def played(self, recipe: Recipe, examples: int) -> Recipe:
        """Return a recipe of one step."""
        return replaying.one_step(recipe, examples)

    def loss(self, view: View, context: Context, simulated: Simulation) -> Objective:
        """Return the loss of images and of the position on the line."""
        loss = objective(view, self, simulated)
        if simulated.client.recipe.kind == "gradient":
            return loss
        way = scaled(simulated.aim, 1 / simulated.unit)
        rate = self.position_rate / loss.numbers.learning_rate
        return replace(loss, line=Line(way=way, start=self.position, rate=rate))
