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

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.affine import fit_affine, undetermined
from fedxray.attacks.local_model.messages import last_of, least_squares_model, messages_of_target


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
