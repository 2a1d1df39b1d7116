"""Exact local model of a client in federated least squares (paper 003, Alg. 2).

A client's work from theta is an affine map with her own optimum theta* as its fixed point, so that theta =
W^-1 (theta - theta_out) + theta*: regress what she was sent on how she changed it, and the intercept is
theta*.

Where we differ: the paper's pseudo-inverse of the normal matrix squares the condition of the system (its code
inverts the best conditioned square subset instead); we take all messages through one singular value
decomposition in float64 and say "undetermined" when they do not fix the model. It is exact for full batches;
with mini-batches in a fixed order the fixed point is that of the order, and with shuffled ones the noise sits
on the regressors, which biases the answer a little (`local-model-linear-forward` has it on the responses).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.messages import last_of, least_squares_model, messages_of_target

# --- Least squares through the singular values of a centred and evenly scaled matrix, with its
# conditioning.


ABOVE_ROUNDING = 10.0  # times the rounding of the messages that a direction must move to be believed


@dataclass(frozen=True, kw_only=True)
class AffineFit:
    """responses = intercept + inputs @ slope, fitted by least squares, and how well the inputs fix it."""

    slope: Tensor  # [inputs, responses]
    intercept: Tensor  # [responses]
    rank: int  # of the centred inputs; full when it equals their number
    condition: float | None  # of the evenly scaled inputs; None without full rank
    residual: float  # what is left of the responses' spread, 0..1
    uncertainty: float  # of the slope in its worst direction, from the rounding


def fit_affine(inputs: Tensor, responses: Tensor, rounding: float) -> AffineFit:
    """The fit of responses [n, k] on inputs [n, d], whose entries were rounded by up to `rounding`.

    Centring takes the intercept out of the system, equal columns make the result independent of the parameters'
    units, and the inputs are never multiplied by themselves, which would square their condition. Directions that
    do not stand out from the rounding count as absent; along them nothing is assumed to change.
    """
    middle, answer = inputs.mean(0), responses.mean(0)
    centred, wanted = inputs - middle, responses - answer
    noise = ABOVE_ROUNDING * rounding * len(inputs) ** 0.5  # length of a column that holds rounding alone
    sizes = centred.norm(dim=0)
    scale = torch.where(sizes > noise, sizes, torch.inf)  # a column that never moved says nothing
    left, values, right = torch.linalg.svd(centred / scale, full_matrices=False)
    exact = torch.finfo(values.dtype).eps * max(inputs.shape) * values.max()
    kept = values > torch.maximum(exact, noise / scale.min())
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    back = right.T * inverse / scale[:, None]  # from the directions of the messages to the inputs
    slope = back @ (left.T @ wanted)
    rest, spread, rank = wanted - centred @ slope, float(wanted.norm()), int(kept.sum())
    return AffineFit(
        slope=slope,
        intercept=answer - middle @ slope,
        rank=rank,
        condition=float(values[0] / values[rank - 1]) if rank == inputs.shape[1] else None,
        residual=float(rest.norm()) / spread if spread > 0 else 0.0,
        uncertainty=rounding * float(torch.linalg.matrix_norm(back, 2)),
    )


def undetermined(fit: AffineFit, messages: int, parameters: int) -> str:
    """Why the messages do not fix a model of so many parameters; nothing where they do."""
    if messages < parameters + 1:
        return f"{messages} messages cannot fix {parameters} parameters: at least {parameters + 1} are needed"
    if fit.rank < parameters:
        return f"the {messages} messages point in {fit.rank} independent directions only, {parameters} are needed"
    return ""


@dataclass(frozen=True, kw_only=True)
class LocalModelLinear(Attack):
    """The intercept of the regression of the models sent on the changes made."""

    name: ClassVar[str] = "local-model-linear"
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
        """Lines 1 to 4 of Alg. 2."""
        seen = messages_of_target(view)
        fit = fit_affine(-seen.updates, seen.starts, seen.rounding)
        messages, parameters = seen.starts.shape
        reason = undetermined(fit, messages, parameters)
        return of_model(
            seen.model(fit.intercept),
            last_of(view.of_target()).buffers,
            status="undetermined" if reason else "ok",
            reason=reason,
            facts={
                "messages": messages,
                "parameters": parameters,
                "rank": fit.rank,
                "condition": fit.condition,
                "residual": fit.residual,
            },
        )


# --- Exact local model of a client in federated least squares, by her update map (paper 000, Prop. 1 and
# 3).
#
# A client's change is theta - theta_out = W theta - v with v = W theta*: regress the changes on the models
# sent, then solve W theta* = v.
#
# Where we differ: all rows of W are fitted on all messages by one decomposition in float64 (the proof of
# Prop. 3 gives each row its own messages, to have independent errors); W theta* = v is solved around the
# mean model sent, and a map whose singular values do not stand out from the rounding is "undetermined"
# (Prop. 1 needs (1 - 2 eta lambda / m)^E ≠ 1).


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
