"""The course of an attack for the report: its own loss by step and the settings it tried; never a record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.attacks.evidence import Evidence

MOST_POINTS = 60  # of a curve
MOST_TRIALS = 1_000  # of a search, all of which are told: which was best goes by its place among them
TAKEN = "taken"  # among the facts of an attack: what it took the client for, and what settings followed
SEARCH = "search"  # among the facts of an attack that searched settings, as Found.told() writes them


def course(evidence: Evidence) -> dict[str, Any]:
    """`curve`, `search` and `taken` of a case, as far as the attack has them."""
    told, taken = evidence.facts.get(SEARCH), evidence.facts.get(TAKEN)
    studied = isinstance(told, Mapping) and bool(told.get("trials"))
    return (
        ({"curve": thinned(evidence.curve)} if evidence.curve else {})
        | ({SEARCH: told} if studied else {})
        | ({TAKEN: taken} if taken else {})
    )


def thinned(curve: Sequence[float], most: int = MOST_POINTS) -> dict[str, list[Any]]:
    """Evenly spaced steps of a curve with the loss at each, the first and the last among them."""
    last = len(curve) - 1
    count = min(len(curve), most)
    steps = [0] if count < 2 else [round(place * last / (count - 1)) for place in range(count)]
    return {"steps": steps, "losses": [_digits(curve[step]) for step in steps]}


def _digits(loss: float) -> float | None:
    """Five digits are enough for a drawing; a loss that is no number is missing."""
    return float(f"{loss:.5g}") if math.isfinite(loss) else None
