"""FedSGD-Epoch, a baseline of Dimitrov et al. (2022): every epoch is taken for one large step.

As shared_simulation.py, but each epoch is one step on all images, whose gradient counts as many times as the
epoch has batches. The authors' code has one set of images for all epochs, although the paper says that they are
matched and averaged; so here.

Where we differ: with momentum, the step counts as all the client's steps together would on a constant gradient.
Else as in dlf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion.dlf_objective import descend, evidence_of, objective, simulation, what_is_known
from fedxray.attacks.inversion.dlf_settings import DlfSettings, check_dlf
from fedxray.attacks.inversion.known import image_needs
from fedxray.attacks.inversion.merged_steps import one_step_per_epoch


@dataclass(frozen=True, kw_only=True)
class FedsgdEpoch(DlfSettings, Attack):
    """What did the training images look like? Every epoch is taken for one step on all images."""

    name: ClassVar[str] = "fedsgd-epoch"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(
            view, self, known, one_step_per_epoch(known.recipe, len(known.labels)), by_epoch=False
        )
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, found.images[0])
