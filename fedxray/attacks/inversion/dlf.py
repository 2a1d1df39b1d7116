"""Data Leakage in Federated Averaging (Dimitrov, Balunović, Konstantinov and Vechev 2022), Algorithm 2.

The client's whole round is simulated, with images of its own in every epoch, and its order is not needed:
    1. Take the labels as granted, or their counts as granted or from a sub-attack, in an order; cut them into
       batches, the same in all epochs.
    2. Draw images from N(0, 1) in the space of the model's inputs, one set per epoch.
    3. Simulate the client's local steps on them. The loss is how far the sum of the simulated gradients is from
       (start - end) / learning rate, divided by the number of steps; plus total variation; plus what lies outside
       the range of pixels; plus the prior: every epoch's summary should be the same, whatever the order.
    4. Descend by Adam on all images at once, through all local steps.
    5. Match every epoch's images with those of the first (largest total PSNR, one to one) and average.

Paper and authors' code differ, and the published numbers come from the code, so its way is the default:
    - The paper matches by the cosine. The scripts match by squared differences of the summed update that count
      e^-layer: `match = "l2-by-depth"`, against `match = "cosine"`. The presets are weighed for the former. With a
      cosine the other terms are divided by the update's squared length per step, else they would drown it.
    - The paper puts labels into a random order. The code keeps them as the data loader gave them when counts
      are known (an order that says nothing of the client's batches: granted counts are shuffled here) and
      sorted by class when it estimated the counts: `label_order = "given"`, against "random" or "sorted".
    - The code returns the last finite iterate: `keep = "last"`. Since the weight of the match changes during the
      first half of the steps, `keep = "best"` compares losses of the second half only.
Weights and learning rates are the authors' for FEMNIST; `preset = "cifar100"` takes theirs for CIFAR-100.

A quicker way, off unless asked for: with `together = 0.5` all epochs hold the same images in the first half of the
steps and go their own ways from there; 200 such steps end above 400 of the paper's (docs/performance.md).

Where we differ: a last batch may be smaller (the authors' slices then mix epochs); restarts are chosen by the own
loss (the authors' code, which ran only one, would choose by the truth). A sum of replies is read as the
update of one client that holds everyone's images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion.dlf_objective import (
    Penalty,
    descend,
    evidence_of,
    objective,
    simulation,
    what_is_known,
)
from fedxray.attacks.inversion.dlf_settings import DlfSettings, check_dlf, prior_of
from fedxray.attacks.inversion.known import image_needs
from fedxray.attacks.inversion.match_epochs import Average, averaged, check_average
from fedxray.errors import BadInput
from fedxray.priors import EPOCH_PRIORS, random_kernel
from fedxray.seeds import fork


@dataclass(frozen=True, kw_only=True)
class Dlf(DlfSettings, Attack):
    """What did the training images look like? The client's whole round is simulated, with images per epoch."""

    name: ClassVar[str] = "dlf"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    prior: str | None = (
        None  # l1 or l2, then mean or max, then perhaps conv: femnist l2-mean, cifar100 l2-max-conv
    )
    prior_weight: float | None = None  # None: the authors' for this preset and prior (Table 4)
    average: Average = "matched"  # plain: without matching; none: the first epoch's images
    together: float = 0.0  # share of the steps in which all epochs hold the same images; 0: the paper's way

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)
        prior_of(self.preset, self.prior, self.prior_weight)
        check_average(self.average)
        if not 0 <= self.together <= 1:
            raise BadInput(
                "together",
                expected="a share of the steps, 0 to 1",
                got=repr(self.together),
                remedy="Try 0.5.",
            )

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, known.recipe, by_epoch=True)
        loss = objective(view, self, simulated, self._prior(view, context), together=self.together)
        found = descend(view, self, context, loss, self.name)
        return evidence_of(found, known, averaged(found.images, view.space, self.average))

    def _prior(self, view: View, context: Context) -> Penalty:
        """The weighted prior; a convolution is drawn from the root, so that all settings get the same one."""
        name, weight = prior_of(self.preset, self.prior, self.prior_weight)
        prior, kernel = EPOCH_PRIORS[name], None
        if prior.convolved:
            like = next(iter(view.of_target()[0].start.values()))
            kernel = random_kernel(like.new_empty(view.space.shape), fork(context.root, "dlf", "convolution"))
        return lambda x: weight * prior(x, kernel)
