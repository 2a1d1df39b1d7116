"""A client's local model as the point where a learned update vanishes (Driouich et al., Alg. 2), for any model.

First a network G learns the client's changes from the models it was sent (Eq. 7), then a model is sought at which G
predicts no change (Eq. 8). `reading = "norm-descent"` minimises |G|^2, as the paper writes; "follow-update" adds the
predicted change again and again, as its authors' later code does. "raw" trains all weights of G on models and changes
in their own units, as the paper reads. All start from the last returned model.

Where we differ: both stages run Adam (follow-update: plain steps) and keep the point with the lowest loss, which the
paper leaves open; but for "raw", models and changes are centred and scaled by one number each, so that Eq. 7 is the
paper's up to a factor. A hundred messages leave most directions of a large model undetermined; `restrict = "span"`
therefore seeks among the affine combinations of the models that were sent. One setting serves all clients; the paper
has others client by client (Tables 5 to 8) and does not state how they were chosen.

The network is kept in coordinates: a regressor from all parameters to all parameters has a first layer
[units, parameters] and a last layer [parameters, units]. On n messages only its action between two spaces of at most
n - 1 dimensions is ever trained, so only that part is stored, exactly, and a model of 150,000 parameters costs as much
as one of 100. Outside these spaces it keeps its initial weights: random ones in the first layer (`outside`), zeros in
the last.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Context
from fedxray.attacks.evidence import Evidence, of_model
from fedxray.attacks.local_model import messages
from fedxray.errors import BadInput
from fedxray.optim import MOST_RATE, Adam, Method, Outcome, Sgd, minimise
from fedxray.params import flatten
from fedxray.progress import Report
from fedxray.seeds import fork, normal_like, uniform_like
from fedxray.settings import setting

# A client's update as a network between the span of the models it was sent and the span of its changes


@dataclass(frozen=True, kw_only=True)
class Span:
    """The affine space through some vectors."""

    middle: Tensor  # [parameters]
    basis: Tensor  # [parameters, directions], orthonormal columns
    size: float  # root mean square distance of the vectors from their mean
    places: Tensor  # [vectors, directions], from the mean, in units of `size`


@dataclass(frozen=True, kw_only=True)
class UpdateMap:
    """The fitted regressor and the two spaces it works between."""

    models: Span
    changes: Span
    network: dict[str, Tensor]
    outside: Tensor | None  # [units, parameters], first layer orthogonal to the models' span; None: zero
    fit: Outcome


def span_of(vectors: Tensor, rounding: float) -> Span:
    """Return the affine span of vectors [n, parameters], without directions below the rounding error."""
    middle = vectors.mean(0)
    # QR first: far cheaper than the singular values of a tall matrix.
    tall, small = torch.linalg.qr((vectors - middle).T)
    right, values, left = torch.linalg.svd(small, full_matrices=False)
    kept = values > rounding * sum(side**0.5 for side in vectors.shape)
    size = float(values[kept].square().sum() / len(vectors)) ** 0.5
    places = left[kept].T * values[kept] / max(size, torch.finfo(values.dtype).tiny)
    return Span(middle=middle, basis=tall @ right[:, kept], size=size, places=places)


def fit_update_map(
    seen: messages.Messages,
    hidden: tuple[int, ...],
    method: Method,
    generator: torch.Generator,
    report: Report,
    outside: bool,
) -> UpdateMap:
    """Fit the regressor of the changes on the models sent by the mean squared error over the messages (Eq. 7)."""
    models, changes = span_of(seen.starts, seen.rounding), span_of(seen.updates, seen.rounding)
    beyond, inside = _first_layer(models, hidden, fork(generator, "first layer"), outside=outside)
    start = fresh_network(inside, (*hidden, changes.basis.shape[1]), fork(generator, "network"))

    def loss(network: dict[str, Tensor]) -> Tensor:
        guess = predict(network, models.places)
        return (guess - changes.places).square().sum(1).mean()

    fit = minimise(loss, start, method, report=report, what="update map")
    return UpdateMap(models=models, changes=changes, network=fit.best, outside=beyond, fit=fit)


def _first_layer(
    models: Span, hidden: tuple[int, ...], generator: torch.Generator, *, outside: bool
) -> tuple[Tensor | None, Tensor]:
    """Draw weights of the first layer outside the span [units, parameters], and inside [units, directions].

    Their variance is torch's for inputs of unit variance: 1 / (3 parameters) on inputs of norm sqrt(parameters).
    """
    units = hidden[0] if hidden else 0
    if not outside or not units:
        shape = models.basis.new_empty((units, models.basis.shape[1]))
        return None, normal_like(shape, generator) / 3**0.5
    drawn = normal_like(models.basis.new_empty((units, len(models.middle))), generator) / 3**0.5
    inside = drawn @ models.basis
    return drawn - inside @ models.basis.T, inside


def fresh_network(first: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Return layers of these sizes after a given first one [units, inputs]; a single layer starts at zero."""
    if len(sizes) == 1:
        shape = first.new_zeros((sizes[0], first.shape[1]))
        return {"weight0": shape, "bias0": first.new_zeros(sizes[0])}
    network = {"weight0": first, "bias0": first.new_zeros(len(first))}
    for number, (inputs, units) in enumerate(itertools.pairwise(sizes), start=1):
        reach = 1 / inputs**0.5
        weight = uniform_like(first.new_empty((units, inputs)), generator)
        network[f"weight{number}"] = (2 * weight - 1) * reach
        network[f"bias{number}"] = first.new_zeros(units)
    return network


def raw_network(
    parameters: int, hidden: tuple[int, ...], generator: torch.Generator, like: Tensor
) -> dict[str, Tensor]:
    """Return a fresh network from all parameters to all parameters, weights drawn as torch draws them, biases 0."""
    first = uniform_like(like.new_empty((hidden[0] if hidden else 0, parameters)), fork(generator, "first layer"))
    return fresh_network((2 * first - 1) / parameters**0.5, (*hidden, parameters), fork(generator, "network"))


def predict(network: dict[str, Tensor], places: Tensor, beyond: Tensor | None = None) -> Tensor:
    """Return the change [..., directions] at places [..., directions].

    `beyond` [..., units] is what the first layer adds from outside the span.
    """
    value = places @ network["weight0"].T + network["bias0"]
    value = value if beyond is None else value + beyond
    for number in range(1, len(network) // 2):
        value = torch.relu(value) @ network[f"weight{number}"].T + network[f"bias{number}"]
    return value


@dataclass(frozen=True, kw_only=True)
class LocalModelHeuristic(messages.LocalModelAttack):
    """The model at which the learned update map predicts the smallest change."""

    name: ClassVar[str] = "local-model-heuristic"
    paper: ClassVar[str] = "driouich-2022"
    small: ClassVar[Mapping[str, Any]] = {"hidden": (8,), "fit_steps": 60, "steps": 40}

    reading: Literal["norm-descent", "follow-update", "raw"] = setting(
        "norm-descent",
        "How the predicted update is brought to zero: by minimising its norm (the paper), by following it (the "
        "authors' later code), or by minimising its norm in the parameters' own units (as the paper reads).",
    )
    restrict: Literal["none", "span"] = setting(
        "none", "Where the model is sought: anywhere, or among affine combinations of the models sent."
    )
    hidden: tuple[int, ...] = setting(
        (32, 32), "Hidden layers of the network that learns the client's updates; none makes it linear.", least=1
    )
    fit_steps: int = setting(1000, "Training steps of that network.", least=1)
    fit_lr: float = setting(1e-3, "Learning rate of that training.", above=0, most=MOST_RATE)
    steps: int = setting(1000, "Optimisation steps of the search for the model.", least=1)
    lr: float = setting(
        1e-3,
        "Learning rate of the search, relative to the spread of the models sent; following updates, relative to the "
        "predicted change; raw, in units of the parameters.",
        above=0,
        most=MOST_RATE,
    )

    def check_settings(self) -> None:
        """Refuse raw units within the span of the models, which are coordinates."""
        if self.reading == "raw" and self.restrict != "none":
            remedy = 'Use reading = "norm-descent".'
            raise BadInput("restrict", expected="none, with raw", got=self.restrict, remedy=remedy)

    def attack(self, view: View, context: Context) -> Evidence:
        """Solve Eq. 7, then Eq. 8."""
        seen, last = messages.messages_of_target(view), messages.last_of(view.of_target())
        start = flatten({name: messages.returned(view, last)[name].double() for name in seen.like})
        buffers = last.buffers_after or last.buffers
        fitting = Adam(steps=self.fit_steps, lr=self.fit_lr)
        if self.reading == "raw":
            return self._raw(seen, start, buffers, fitting, context)
        learned = fit_update_map(
            seen, self.hidden, fitting, context.generator, context.report, outside=self.restrict == "none"
        )
        if not learned.models.basis.shape[1]:
            reason = "all messages are about the same model, so the dependence of the update on it is unknown"
            return of_model(seen.model(start), buffers, status="undetermined", reason=reason)
        ground = make_ground(learned, start, self.reading, self.restrict)
        method: Method = Adam(steps=self.steps, lr=self.lr)
        if self.reading == "follow-update":
            method = Sgd(steps=self.steps, lr=self.lr * messages.step_of(view, last))
        end = minimise(ground.loss(self.reading), ground.start(), method, report=context.report, what="heuristic")
        return self._evidence(seen, learned, ground, end, buffers)

    def _raw(
        self, seen: messages.Messages, start: Tensor, buffers: Mapping[str, Tensor], fitting: Method, context: Context
    ) -> Evidence:
        """Solve both with a network of all parameters, in their own units."""
        network = raw_network(len(start), self.hidden, context.generator, start)

        def misfit(network: dict[str, Tensor]) -> Tensor:
            return (predict(network, seen.starts) - seen.updates).square().sum(1).mean()

        fit = minimise(misfit, network, fitting, report=context.report, what="update map")

        def change(point: dict[str, Tensor]) -> Tensor:
            return predict(fit.best, point["model"]).square().sum()

        method = Adam(steps=self.steps, lr=self.lr)
        end = minimise(change, {"model": start}, method, report=context.report, what="heuristic")
        worst = next((stage for stage in (fit, end) if stage.status != "ok"), end)
        spread = float((seen.updates - seen.updates.mean(0)).square().sum(1).mean())
        facts = {
            "messages": len(seen.starts),
            "unexplained": fit.best_loss / spread if spread else 1.0,  # share of the variance of the changes
            "moved": float((end.best["model"] - start).norm() / start.norm()),  # relative to the model
        }
        ended = {"status": worst.status, "reason": worst.reason, "curve": end.curve}
        return of_model(seen.model(end.best["model"]), buffers, facts=facts, **ended)

    def _evidence(
        self, seen: messages.Messages, learned: UpdateMap, ground: Ground, end: Outcome, buffers: Mapping[str, Tensor]
    ) -> Evidence:
        worst = next((stage for stage in (learned.fit, end) if stage.status != "ok"), end)
        model = ground.origin + ground.directions @ end.best["place"] * learned.models.size
        facts = {
            "messages": len(seen.starts),
            "directions": learned.models.basis.shape[1],
            "unexplained": learned.fit.best_loss,  # share of the variance of the changes
            "predicted_change": end.best_loss,  # relative to the mean squared change
            "moved": float((ground.directions @ end.best["place"]).norm()),  # in spreads of the models sent
        }
        ended = {"status": worst.status, "reason": worst.reason, "curve": end.curve}
        return of_model(seen.model(model), buffers, facts=facts, **ended)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where a model may move, and what G predicts there; places are in units of the spread of the models sent."""

    origin: Tensor  # [parameters]
    directions: Tensor  # [parameters, ways], orthogonal columns
    inside: Tensor  # [directions, ways + 1] to G's coordinates; last column: the origin
    beyond: Tensor | None  # [units, ways + 1] to the input of the first layer from outside the span
    onward: Tensor  # [ways, changes + 1] from G's prediction to the move along the ways; last: the mean
    answer: Tensor  # [changes + 1, changes + 1] to orthogonal components of the change; last: the mean
    network: dict[str, Tensor]

    def start(self) -> dict[str, Tensor]:
        """Return the origin."""
        return {"place": self.directions.new_zeros(self.directions.shape[1])}

    def change(self, place: Tensor) -> Tensor:
        """Return G's prediction at a place [ways], with a one appended for the mean [changes + 1]."""
        here = torch.cat([place, torch.ones_like(place[:1])])
        beyond = None if self.beyond is None else self.beyond @ here
        change = predict(self.network, self.inside @ here, beyond)
        return torch.cat([change, torch.ones_like(place[:1])])

    def loss(self, reading: str) -> Any:
        """Return the predicted squared change as a loss; for follow-update its gradient is minus that change."""

        def norm(point: dict[str, Tensor]) -> Tensor:
            return (self.answer @ self.change(point["place"])).square().sum()

        def followed(point: dict[str, Tensor]) -> Tensor:
            change = self.change(point["place"].detach())
            pull = -(self.onward @ change) @ point["place"]
            return (self.answer @ change).square().sum() + pull - pull.detach()

        return norm if reading == "norm-descent" else followed


def _gain(outside: Tensor) -> float:
    """Return the root mean square norm of the rows of weights [units, parameters], at least 1."""
    return max(1.0, float(outside.square().sum(1).mean().sqrt()))


def make_ground(learned: UpdateMap, start: Tensor, reading: str, restrict: str) -> Ground:
    """Return the part of the space that the search can reach from the start [parameters], in small matrices.

    The gradient of |G|^2 lies in the span of the models and of the first layer's weights outside it, G itself in the
    span of the changes; so this is exact. Ways outside the models' span are as short as the first layer there is steep
    (about the square root of the parameters), so that one step means the same in models of any size.
    """
    models, changes = learned.models, learned.changes
    origin, ways = start, models.basis
    if restrict == "span":
        origin = models.middle + models.basis @ (models.basis.T @ (start - models.middle))
    elif reading == "follow-update":
        ways = torch.linalg.qr(torch.cat([changes.basis, changes.middle[:, None]], 1))[0]
    elif learned.outside is not None:
        ways = torch.cat([models.basis, torch.linalg.qr(learned.outside.T)[0] / _gain(learned.outside)], 1)
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
