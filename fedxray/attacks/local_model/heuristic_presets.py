"""The settings of `local-model-heuristic` that paper 000 gives client by client (its Tables 5 to 8).

The paper does not say by what they were chosen. If by the likeness to the client's own model, no adversary could
have chosen them, so a result made with them shows the attack at its best and should say so. It also leaves out
how long the regressor was trained, and both optimisers.
"""

from __future__ import annotations

from typing import Any

from fedxray.errors import BadInput, unknown_name

CLIENTS = 10
_SETTINGS: dict[str, dict[str, tuple[Any, ...]]] = {
    "flights": {
        "hidden": ((64, 64),) * 10,
        "fit_lr": (1e-5, 1e-5, 1e-5, 1e-6, 1e-5, 1e-5, 1e-5, 1e-5, 1e-4, 1e-6),
        "steps": (10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 7_000, 10_000, 6_000),
        "lr": (1e-3, 1e-2, 1e-3, 1e-3, 1e-2, 1e-2, 1e-2, 5e-3, 1e-3, 1e-3),
    },
    "adult": {
        "hidden": ((16, 16),) * 2 + ((32, 32),) * 5 + ((16, 16),) * 3,
        "fit_lr": (1e-3, 1e-3, 1e-5, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4),
        "steps": (1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 100, 1_000, 1_000, 1_000),
        "lr": (0.1, 0.01, 0.1, 0.1, 0.01, 0.1, 0.01, 0.1, 0.1, 0.1),
    },
    "leaf-synthetic": {
        "hidden": ((32, 32),) * 10,
        "fit_lr": (1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-3, 1e-4, 1e-4, 1e-4, 1e-4),
        "steps": (5_000,) * 10,
        "lr": (1e-2,) * 10,
    },
    "att-faces": {
        "hidden": ((64, 64),) * 10,
        "fit_lr": (1e-4,) * 10,
        "steps": (10_000,) * 10,
        "lr": (1e-3,) * 10,
    },
}


def paper_settings(dataset: str, client: int) -> dict[str, Any]:
    """The paper's settings for one of its ten clients, as fields of the attack."""
    if dataset not in _SETTINGS:
        raise unknown_name("dataset", dataset, _SETTINGS)
    if not 0 <= client < CLIENTS:
        expected, remedy = f"a client from 0 to {CLIENTS - 1}", "The paper has ten clients."
        raise BadInput("client", expected=expected, got=client, remedy=remedy)
    return {name: values[client] for name, values in _SETTINGS[dataset].items()}
