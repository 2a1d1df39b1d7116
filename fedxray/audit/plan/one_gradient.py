"""FedSGD in a plan: a round is one gradient of all examples, so there is nothing else to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.audit.plan.parts import FederationPart
from fedxray.errors import BadInput

FIXED = {"epochs": 1, "batch_size": "all", "momentum": 0.0, "shuffle": "epoch"}


def for_gradients(document: dict[str, Any]) -> dict[str, Any]:
    """The plan with what follows from fedsgd: one batch of all examples, so that results tell of no other."""
    federation = document.get("federation")
    if "transcript" in document or not isinstance(federation, Mapping):
        return document
    if federation.get("algorithm") != "fedsgd" or "batch_size" in federation:
        return document
    return {**document, "federation": {**federation, "batch_size": FIXED["batch_size"]}}


def check_one_gradient(federation: FederationPart) -> None:
    """Refuse what fedsgd would ignore."""
    if federation.algorithm != "fedsgd":
        return
    for name, only in FIXED.items():
        given = getattr(federation, name)
        if name in federation.model_fields_set and given != only:
            raise BadInput(
                f"federation.{name}",
                expected='algorithm = "fedavg" or "fedprox" beside it',
                got=f"{given!r} with fedsgd, which sends one gradient of all examples",
                remedy=f"Leave {name} out, or change the algorithm.",
            )
