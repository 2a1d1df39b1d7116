"""DLF without its prior over epochs (Dimitrov et al. 2022, "Ours (no prior)"), the ablation of dlf.py.

Steps 1 to 5 of dlf.py; the loss lacks the term that draws the epochs together, so only the match, the total
variation and the range of pixels hold the images of different epochs. Where we differ: as there.
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
from fedxray.attacks.inversion.match_epochs import Average, averaged, check_average


@dataclass(frozen=True, kw_only=True)
class DlfNoPrior(DlfSettings, Attack):
    """What did the training images look like? As dlf, but epochs are not drawn together."""

    name: ClassVar[str] = "dlf-no-prior"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    average: Average = "matched"  # plain: without matching; none: the first epoch's images

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)
        check_average(self.average)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, known.recipe, by_epoch=True)
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, averaged(found.images, view.space, self.average))
