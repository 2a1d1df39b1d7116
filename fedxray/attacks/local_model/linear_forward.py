"""Exact local model of a client in federated least squares, by her update map (paper 000, Prop. 1 and 3).

A client's change is theta - theta_out = W theta - v with v = W theta*: regress the changes on the models
sent, then solve W theta* = v.

Where we differ: all rows of W are fitted on all messages by one decomposition in float64 (the proof of Prop.
3 gives each row its own messages, to have independent errors); W theta* = v is solved around the mean model
sent, and a map whose singular values do not stand out from the rounding is "undetermined" (Prop. 1 needs (1 -
2 eta lambda / m)^E ≠ 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.affine import AffineFit, fit_affine, undetermined
from fedxray.attacks.local_model.messages import last_of, least_squares_model, messages_of_target


@dataclass(frozen=True, kw_only=True)
class LocalModelLinearForward(Attack):
    """The model that the fitted update map leaves unchanged."""

    name: ClassVar[str] = "local-model-linear-forward"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...] | None] = ()
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies, about a least squares model."""
        return (single_replies(), least_squares_model())

    def attack(self, view: View, context: Context) -> Evidence:
        """Eq. 31, then theta* = W^-1 v."""
        seen = messages_of_target(view)
        fit = fit_affine(seen.starts, -seen.updates, seen.rounding)
        messages, parameters = seen.starts.shape
        found, map_rank, map_condition = fixed_point(fit, seen.starts.mean(0))
        reason = undetermined(fit, messages, parameters)
        if not reason and map_rank < parameters:
            reason = f"the client's work moves {map_rank} of {parameters} directions only"
        return of_model(
            seen.model(found),
            last_of(view.of_target()).buffers,
            status="undetermined" if reason else "ok",
            reason=reason,
            facts={
                "messages": messages,
                "parameters": parameters,
                "rank": fit.rank,
                "condition": fit.condition,
                "residual": fit.residual,
                "map_rank": map_rank,
                "map_condition": map_condition,
            },
        )


def fixed_point(fit: AffineFit, around: Tensor) -> tuple[Tensor, int, float | None]:
    """The point [parameters] nearest to `around` that the map leaves unchanged, with the map's rank and condition."""
    change = fit.intercept + around @ fit.slope  # W around - v
    left, values, right = torch.linalg.svd(fit.slope.T)
    kept = values > max(fit.uncertainty, len(values) * torch.finfo(values.dtype).eps * float(values.max()))
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    rank = int(kept.sum())
    found = around - right.T @ (inverse * (left.T @ change))
    return found, rank, float(values[0] / values[-1]) if rank == len(values) else None
