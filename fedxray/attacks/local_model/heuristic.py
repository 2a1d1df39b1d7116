"""A client's local model as the point where a learned update vanishes (paper 000, Alg. 2), for any model.

First a network G learns the client's changes from the models she was sent (Eq. 7), then a model is sought at
which it predicts no change (Eq. 8). `reading = "norm-descent"` descends |G|^2, as the paper writes;
"follow-update" adds the predicted change again and again, as its authors' later code does. Both start from
the last returned model.

Where we differ: models and changes are centred and scaled by one number each, so that Eq. 7 is the paper's up
to a factor; both stages run Adam (follow-update: plain steps) and keep the point of least own loss, which the
paper leaves open. The networks are exact but kept in the coordinates of what was seen (update_map.py). A
hundred messages say nothing about most directions of a large model; `restrict = "span"` therefore seeks among
the affine combinations of the models that were sent. One setting serves all clients; the paper's, chosen
client by client, are in heuristic_presets.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_model
from fedxray.attacks.local_model.last_returned import step_size
from fedxray.attacks.local_model.messages import (
    Messages,
    last_of,
    messages_of_target,
    returned,
    step_of,
)
from fedxray.attacks.local_model.update_map import UpdateMap, fit_update_map, predict
from fedxray.errors import BadInput, check_one_of
from fedxray.methods import Adam, Method, Sgd, check_settings
from fedxray.minimise import Outcome, minimise
from fedxray.params import flatten


@dataclass(frozen=True, kw_only=True)
class LocalModelHeuristic(Attack):
    """The model at which the learned update map predicts the least change."""

    name: ClassVar[str] = "local-model-heuristic"
    kind: ClassVar[Kind] = "model"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server")
    grants: ClassVar[tuple[str, ...]] = ("recipe",)
    reads: ClassVar[tuple[str, ...] | None] = ("recipe",)
    floors: ClassVar[tuple[str, ...]] = ("other-optimum",)
    controls: ClassVar[tuple[str, ...]] = ("other-client", "global-model")
    small: ClassVar[Mapping[str, Any]] = {"hidden": (8,), "fit_steps": 60, "steps": 40}

    reading: Literal["norm-descent", "follow-update"] = "norm-descent"
    restrict: Literal["none", "span"] = "none"
    hidden: tuple[int, ...] = (32, 32)  # layers of G; none makes it linear
    fit_steps: int = 1000
    fit_lr: float = 1e-3
    steps: int = 1000
    lr: float = 1e-3  # norm-descent: in spreads of the models sent; follow-update: in predicted changes

    def __post_init__(self) -> None:
        """Check the settings."""
        check_settings(Adam(steps=self.steps, lr=self.lr))
        check_settings(Adam(steps=self.fit_steps, lr=self.fit_lr))
        check_one_of("reading", self.reading, ("norm-descent", "follow-update"))
        check_one_of("restrict", self.restrict, ("none", "span"))
        if any(units < 1 for units in self.hidden):
            expected, remedy = "layer sizes of at least 1", "Try [32, 32]."
            raise BadInput("hidden", expected=expected, got=list(self.hidden), remedy=remedy)

    def needs(self) -> tuple[Need, ...]:
        """The target's own replies."""
        return (single_replies(), step_size())

    def attack(self, view: View, context: Context) -> Evidence:
        """Eq. 7, then Eq. 8."""
        seen, last = messages_of_target(view), last_of(view.of_target())
        start = flatten({name: returned(view, last)[name].double() for name in seen.like})
        buffers = last.buffers_after or last.buffers
        method = Adam(steps=self.fit_steps, lr=self.fit_lr)
        learned = fit_update_map(
            seen, self.hidden, method, context.generator, context.report, outside=self.restrict == "none"
        )
        if not learned.models.basis.shape[1]:
            reason = "all messages are about the same model, so nothing is known of how the update changes"
            return of_model(seen.model(start), buffers, status="undetermined", reason=reason)
        ground = make_ground(learned, start, self.reading, self.restrict)
        walk: Method = Adam(steps=self.steps, lr=self.lr)
        if self.reading == "follow-update":
            walk = Sgd(steps=self.steps, lr=self.lr * step_of(view, last))
        found = minimise(
            ground.loss(self.reading), ground.start(), walk, report=context.report, what="heuristic"
        )
        return self._evidence(seen, learned, ground, found, buffers)

    def _evidence(
        self,
        seen: Messages,
        learned: UpdateMap,
        ground: Ground,
        found: Outcome,
        buffers: Mapping[str, Tensor],
    ) -> Evidence:
        bad = next((one for one in (learned.fit, found) if one.status != "ok"), found)
        model = ground.origin + ground.directions @ found.best["place"] * learned.models.size
        return of_model(
            seen.model(model),
            buffers,
            status=bad.status,
            reason=bad.reason,
            curve=found.curve,
            facts={
                "messages": len(seen.starts),
                "directions": learned.models.basis.shape[1],
                "unexplained": learned.fit.best_loss,  # share of the changes' spread that G does not explain
                "predicted_change": found.best_loss,  # of the mean squared change
                "moved": float(found.best["place"].norm()),  # in spreads of the models sent
            },
        )


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where a model may move, and what G says there; places are in units of the spread of the models sent."""

    origin: Tensor  # [parameters]
    directions: Tensor  # [parameters, ways], orthonormal columns
    inside: Tensor  # [directions, ways + 1] to G's coordinates, the origin last
    beyond: Tensor | None  # [units, ways + 1] to what the first layer sees outside the span
    onward: Tensor  # [ways, changes + 1] from G's answer to the move along the ways, the mean last
    answer: Tensor  # [changes + 1, changes + 1] to orthogonal parts of the change, the mean last
    network: dict[str, Tensor]

    def start(self) -> dict[str, Tensor]:
        """The origin."""
        return {"place": self.directions.new_zeros(self.directions.shape[1])}

    def change(self, place: Tensor) -> Tensor:
        """What G answers at a place [ways], with a one for the mean, shape [changes + 1]."""
        here = torch.cat([place, torch.ones_like(place[:1])])
        beyond = None if self.beyond is None else self.beyond @ here
        found = predict(self.network, self.inside @ here, beyond)
        return torch.cat([found, torch.ones_like(place[:1])])

    def loss(self, reading: str) -> Any:
        """The predicted squared change; for follow-update with a slope that points back along that change."""

        def norm(point: dict[str, Tensor]) -> Tensor:
            return (self.answer @ self.change(point["place"])).square().sum()

        def followed(point: dict[str, Tensor]) -> Tensor:
            change = self.change(point["place"].detach())
            pull = -(self.onward @ change) @ point["place"]
            return (self.answer @ change).square().sum() + pull - pull.detach()

        return norm if reading == "norm-descent" else followed


def make_ground(learned: UpdateMap, start: Tensor, reading: str, restrict: str) -> Ground:
    """The part of the space that the walk can reach from the start [parameters], in small matrices.

    |G|^2 has its gradient in the span of the models and of the first layer's weights outside it, G itself lies
    in the span of the changes; so nothing is lost.
    """
    models, changes = learned.models, learned.changes
    origin, ways = start, models.basis
    if restrict == "span":
        origin = models.middle + models.basis @ (models.basis.T @ (start - models.middle))
    elif reading == "follow-update":
        ways = torch.linalg.qr(torch.cat([changes.basis, changes.middle[:, None]], 1))[0]
    elif learned.outside is not None:
        ways = torch.cat([models.basis, torch.linalg.qr(learned.outside.T)[0]], 1)
    away = torch.cat([ways, (origin - models.middle)[:, None] / models.size], 1)  # [parameters, ways + 1]
    given = torch.cat([changes.basis * changes.size, changes.middle[:, None]], 1)  # [parameters, changes + 1]
    usual = (changes.size**2 + float(changes.middle.square().sum())) ** 0.5
    return Ground(
        origin=origin,
        directions=ways,
        inside=models.basis.T @ away,
        beyond=None if learned.outside is None else learned.outside @ away,
        onward=ways.T @ given / models.size,
        answer=torch.linalg.qr(given)[1] / usual,
        network=learned.network,
    )
