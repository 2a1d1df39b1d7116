"""Messages as a recorder writes them; without torch, so that other processes start fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedxray.federation.recording.format import Said


def training_message(round: int | None, node: str = "7", **settings: Any) -> Said:
    """One training of a network with two inputs."""
    number = round or 1
    base = Said(
        what="train",
        node=node,
        run="1",
        round=round,
        sent={"weight": np.full((1, 2), number, np.float32), "bias": np.zeros(1, np.float32)},
        reply={"weight": np.full((1, 2), number + 0.5, np.float32), "bias": np.ones(1, np.float32)},
        examples=4,
    )
    return replace(base, **settings)
