"""Shared simulation, the baseline of Dimitrov et al. (2022) after Geiping et al. (2020).

As dlf.py, but the same images are used in every epoch, in the same batches:
    1. Labels in an order, cut into batches.
    2. One set of images from N(0, 1).
    3. Simulate all local steps, every epoch on these images; the loss of dlf.py without the prior, the match
       divided by the batches of one epoch.
    4. Descend by Adam; nothing is left to match or average.
It supposes that the client keeps its batches, which only `shuffle = "once"` or "never" does. Where we differ: as
in dlf.py.
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


@dataclass(frozen=True, kw_only=True)
class SharedSimulation(DlfSettings, Attack):
    """What did the training images look like? The round is simulated with the same batches in every epoch."""

    name: ClassVar[str] = "shared-simulation"
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
        simulated = simulation(view, self, known, known.recipe, by_epoch=False)
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, found.images[0])
