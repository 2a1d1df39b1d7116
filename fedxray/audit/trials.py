"""What trials of a search say, as results tell them: which was best, and which the loss does not tell from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NEARLY = 0.1  # of the lowest loss


def best_trial(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first trial of the smallest loss, as the attacker chooses; none that was given up."""
    return min(_ended(trials), key=lambda one: float(one["loss"]))


def nearly_as_good(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The trials whose loss is at most a tenth above the lowest: what the loss does not tell apart from the chosen."""
    lowest = best_trial(trials)["loss"]
    most = lowest + NEARLY * abs(lowest)  # a loss below 0 must not shut its own trial out
    return [one for one in _ended(trials) if one["loss"] <= most]


def _ended(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in trials if one["loss"] is not None and not one.get("given_up")]
