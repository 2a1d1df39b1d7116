"""Exact local model of a client in federated least squares, by regression in both directions.

`local-model-linear` (Diana et al. 2025, Alg. 2): a client's work from theta is an affine map with its own optimum
theta* as fixed point, so theta = W^-1 (theta - theta_out) + theta*: regress the models sent on the changes, and the
intercept is theta*. Where we differ: the paper's pseudo-inverse of the normal matrix squares the condition number of
the system (its code inverts the best conditioned square subset instead); we use all messages in one singular value
decomposition in float64 and return "undetermined" when they do not determine the model. It is exact for full batches;
with mini-batches in a fixed order the fixed point is that of the order, and with shuffled ones the noise is in the
regressors, which biases the answer slightly (in `local-model-linear-forward` it is in the responses).

`local-model-linear-forward` (Driouich et al., Prop. 1 and 3): a client's change is theta - theta_out = W theta - v with
v = W theta*: regress the changes on the models sent, then solve W theta* = v. Where we differ: all rows of W are fitted
on all messages by one decomposition in float64 (the proof of Prop. 3 gives each row its own messages, to have
independent errors); W theta* = v is solved around the mean model sent, and a map whose singular values do not exceed
the rounding error is "undetermined" (Prop. 1 needs (1 - 2 eta lambda / m)^E != 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Status, of_model
from fedxray.attacks.local_model.messages import (
    LocalModelAttack,
    Messages,
    last_of,
    least_squares_model,
    messages_of_target,
)

# Least squares by the singular values of a centred matrix with columns of equal norm

ABOVE_ROUNDING = 10.0  # multiples of the rounding error by which a direction must vary to be used


@dataclass(frozen=True, kw_only=True)
class AffineFit:
    """responses = intercept + inputs @ slope, fitted by least squares, and how well the inputs determine it."""

    slope: Tensor  # [inputs, responses]
    intercept: Tensor  # [responses]
    rank: int  # of the centred inputs; full when it equals the number of columns
    condition: float | None  # condition number of the scaled inputs; None without full rank
    residual: float  # norm of the residuals relative to that of the centred responses, 0..1
    uncertainty: float  # of the slope in its worst direction, due to rounding


def fit_affine(inputs: Tensor, responses: Tensor, rounding: float) -> AffineFit:
    """Return the fit of responses [n, k] on inputs [n, d], whose entries have rounding errors up to `rounding`.

    Centring removes the intercept from the system, columns of equal norm make the result independent of the parameters'
    units, and the inputs are never multiplied by themselves, which would square their condition number. Directions
    that do not exceed the rounding error count as absent; along them no change is assumed.
    """
    middle, answer = inputs.mean(0), responses.mean(0)
    centred, wanted = inputs - middle, responses - answer
    noise = ABOVE_ROUNDING * rounding * len(inputs) ** 0.5  # norm of a column that holds rounding errors only
    sizes = centred.norm(dim=0)
    scale = torch.where(sizes > noise, sizes, torch.inf)  # a constant column carries no information
    left, values, right = torch.linalg.svd(centred / scale, full_matrices=False)
    exact = torch.finfo(values.dtype).eps * max(inputs.shape) * values.max()
    kept = values > torch.maximum(exact, noise / scale.min())
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    back = right.T * inverse / scale[:, None]  # [d, directions], from directions of the messages to the inputs
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
    """Return why the messages do not determine a model of `parameters` parameters; empty where they do."""
    if messages < parameters + 1:
        return f"{messages} messages cannot determine {parameters} parameters: at least {parameters + 1} are needed"
    if fit.rank < parameters:
        return f"the {messages} messages span only {fit.rank} independent directions, {parameters} are needed"
    return ""


class LeastSquares(LocalModelAttack):
    """Base of both directions of the regression."""

    grants: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...] | None] = ()
    requires: ClassVar[tuple[Need, ...]] = (single_replies(), least_squares_model())


@dataclass(frozen=True, kw_only=True)
class LocalModelLinear(LeastSquares):
    """The intercept of the regression of the models sent on the changes made."""

    name: ClassVar[str] = "local-model-linear"
    paper: ClassVar[str] = "diana-2025"

    def attack(self, view: View, context: Context) -> Evidence:
        """Run lines 1 to 4 of Alg. 2."""
        seen = messages_of_target(view)
        fit = fit_affine(-seen.updates, seen.starts, seen.rounding)
        reason = undetermined(fit, *seen.starts.shape)
        return _evidence(view, seen, fit.intercept, fit, reason)


@dataclass(frozen=True, kw_only=True)
class LocalModelLinearForward(LeastSquares):
    """The model that the fitted update map leaves unchanged."""

    name: ClassVar[str] = "local-model-linear-forward"
    paper: ClassVar[str] = "driouich-2022"

    def attack(self, view: View, context: Context) -> Evidence:
        """Solve Eq. 31, then theta* = W^-1 v."""
        seen = messages_of_target(view)
        fit = fit_affine(seen.starts, -seen.updates, seen.rounding)
        messages, parameters = seen.starts.shape
        model, map_rank, map_condition = fixed_point(fit, seen.starts.mean(0))
        reason = undetermined(fit, messages, parameters)
        if not reason and map_rank < parameters:
            reason = f"the client's work changes only {map_rank} of {parameters} directions"
        return _evidence(view, seen, model, fit, reason, map_rank=map_rank, map_condition=map_condition)


def _evidence(
    view: View, seen: Messages, model: Tensor, fit: AffineFit, reason: str, **facts: float | None
) -> Evidence:
    """Return a model [parameters] as evidence, with the conditioning of the fit it comes from."""
    messages, parameters = seen.starts.shape
    conditioning = {"rank": fit.rank, "condition": fit.condition, "residual": fit.residual}
    status: Status = "undetermined" if reason else "ok"
    return of_model(
        seen.model(model), last_of(view.of_target()).buffers, status=status, reason=reason,
        facts={"messages": messages, "parameters": parameters, **conditioning, **facts},
    )  # fmt: skip


def fixed_point(fit: AffineFit, around: Tensor) -> tuple[Tensor, int, float | None]:
    """Return the fixed point [parameters] of the map nearest to `around`, with the map's rank and condition number."""
    change = fit.intercept + around @ fit.slope  # W around - v
    left, values, right = torch.linalg.svd(fit.slope.T)
    kept = values > max(fit.uncertainty, len(values) * torch.finfo(values.dtype).eps * float(values.max()))
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    rank = int(kept.sum())
    point = around - right.T @ (inverse * (left.T @ change))
    return point, rank, float(values[0] / values[-1]) if rank == len(values) else None
