"""The heuristic of Driouich et al. with the settings that the paper lists for every client (Tables 5 to 8).

The paper states layers, learning rates and the steps of the search. It states neither the steps of the fit nor the
optimisers, nor in which units its learning rates are: `reading = "raw"` takes those of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model import messages
from fedxray.attacks.local_model.heuristic import LocalModelHeuristic
from fedxray.settings import setting

# Data set -> for each of its ten clients: units of both hidden layers, rate of the fit, steps and rate of the search.
PRESETS: dict[str, tuple[tuple[float, ...], ...]] = {
    "flights": (
        (64,) * 10,
        (1e-5, 1e-5, 1e-5, 1e-6, 1e-5, 1e-5, 1e-5, 1e-5, 1e-4, 1e-6),
        (*(10_000,) * 7, 7000, 10_000, 6000),
        (1e-3, 1e-2, 1e-3, 1e-3, 1e-2, 1e-2, 1e-2, 5e-3, 1e-3, 1e-3),
    ),
    "adult": (
        (16, 16, 32, 32, 32, 32, 32, 16, 16, 16),
        (1e-3, 1e-3, 1e-5, *(1e-4,) * 7),
        (*(1000,) * 6, 100, 1000, 1000, 1000),
        (0.1, 0.01, 0.1, 0.1, 0.01, 0.1, 0.01, 0.1, 0.1, 0.1),
    ),
    "leaf": ((32,) * 10, (*(1e-4,) * 5, 1e-3, *(1e-4,) * 4), (5000,) * 10, (1e-2,) * 10),
    "att-faces": ((64,) * 10, (1e-4,) * 10, (10_000,) * 10, (1e-3,) * 10),
}


def paper_settings(data: str, client: int) -> dict[str, Any]:
    """Return the paper's settings of the heuristic for a client; those beyond its ten have the first ones'."""
    units, fit_lr, steps, lr = (row[client % len(row)] for row in PRESETS[data])
    return {"hidden": (int(units), int(units)), "fit_lr": fit_lr, "steps": int(steps), "lr": lr}


@dataclass(frozen=True, kw_only=True)
class LocalModelHeuristicPreset(messages.LocalModelAttack):
    """The heuristic with the paper's settings for a data set, client by client."""

    name: ClassVar[str] = "local-model-heuristic-preset"
    paper: ClassVar[str] = "driouich-2022"
    small: ClassVar[Mapping[str, Any]] = {"data": "adult", "fit_steps": 60}

    data: Literal["flights", "adult", "leaf", "att-faces"] = setting("leaf", "Data set whose settings are used.")
    reading: Literal["norm-descent", "follow-update", "raw"] = setting(
        "norm-descent", "As that of local-model-heuristic."
    )
    fit_steps: int = setting(3000, "Training steps of the network that learns the client's updates.", least=1)

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the heuristic with the settings of the target."""
        chosen = paper_settings(self.data, view.target or 0)
        return LocalModelHeuristic(reading=self.reading, fit_steps=self.fit_steps, **chosen).attack(view, context)
