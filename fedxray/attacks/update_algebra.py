"""The coefficients of records in a client's updates, by generalised least squares over rounds.

To first order the update of a round is a sum over records: u = -update / step = sum_i sum_v w_iv g_i(v), where g_i(v)
is the gradient of record i under its v-th value, or of the record as it is. The coefficients w = prior + z directions'
are sought, where z [records, unknowns] has mean zero and covariance `spread`.

A round is not that exact: its batch, the drift over the local steps and clipping give every record a weight of its own.
This error lies in the span of the very gradients that carry the signal, so it enters as a nuisance. Gradients are taken
at two points of the way, the model sent and the model returned, and counted half. With G_p [parameters, records] those
at point p under the present coefficients, and D [parameters, records * unknowns] those of the directions:
    u = base + D z + sum_p G_p e_p + noise,     e_p ~ N(0, 1),     noise ~ N(0, kappa * mean |G|^2)  per entry.
Gradients of records that were trained on but are not given are assumed to be like the given ones: with `missing` of
them for each given one, base and the variance of e_p are 1 + missing times as large.

With S the covariance of nuisance and noise, information = sum over rounds of D' S^-1 D and pull = that of
D' S^-1 (u - base) estimate z under its prior. Both, by S^-1 = (1 - G (G'G + kappa)^-1 G') / kappa, consist of inner
products alone. A second pass has the estimated coefficients in G.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedxray.adversary.view import Observation
from fedxray.attacks.inversion.replay import pulled
from fedxray.attacks.record_gradients import GradientsAt
from fedxray.federation.recipe import Recipe
from fedxray.params import add, scaled

SECONDS = 3e-6  # of one answer, per squared number of records and message: measured at 100 to 550 records
USUAL = (1e-3, 1e-2)  # kappa and ridge of the first pass, and where nothing can choose better ones
STRENGTHS = (USUAL, *((kappa, ridge) for kappa in (1e-3, 1e-1) for ridge in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)))


@dataclass(frozen=True, kw_only=True)
class Unknowns:
    """What is known of the coefficients w [records, values] = prior + z directions' before any message; float64."""

    prior: Tensor  # [records, values]
    directions: Tensor  # [values, unknowns]
    spread: Tensor  # [records, unknowns, unknowns], covariance of z

    def coefficients(self, z: Tensor) -> Tensor:
        """Return the coefficients [records, values] of an estimate z [records, unknowns]."""
        return self.prior + z @ self.directions.T


def of_values(probabilities: Tensor) -> Unknowns:
    """Return the indicators of values with these probabilities [records, values]: coefficients that sum to one."""
    values = probabilities.shape[1]
    square = torch.eye(values, dtype=probabilities.dtype, device=probabilities.device)
    contrasts = torch.linalg.qr(square[:, 1:] - 1.0 / values)[0]  # an orthonormal basis of what sums to zero
    covariance = torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None]
    return Unknowns(prior=probabilities, directions=contrasts, spread=contrasts.T @ covariance @ contrasts)


def of_presence(probabilities: Tensor) -> Unknowns:
    """Return the indicators of presence with these probabilities [records]: one coefficient for each record."""
    spread = (probabilities * (1 - probabilities))[:, None, None]
    return Unknowns(prior=probabilities[:, None], directions=torch.ones_like(spread[0]), spread=spread)


# Inner products of one round


@dataclass(frozen=True, kw_only=True)
class RoundProducts:
    """The inner products of one round's gradients with each other and with minus the update; float64."""

    gram: tuple[tuple[Tensor, ...], ...]  # by two points [values * records, values * records]
    along: tuple[Tensor, ...]  # by point [values * records]


ProductsOf = Callable[[Observation], RoundProducts]
POINTS = 2  # of the way of an update
ENTRIES_HELD = 20_000_000  # of products of all rounds, between two passes


def round_products(gradients: GradientsAt, seen: Observation) -> RoundProducts:
    """Return the inner products of one round; a gradient that was sent as it is has one point, the model sent."""
    points = [gradients(seen.start, seen.buffers)]
    if seen.kind == "weights":
        points.append(gradients(add(seen.start, seen.update), seen.buffers_after or seen.buffers))
    gram: list[list[Tensor]] = [[] for _ in points]
    for place, left in enumerate(points):
        for other, right in enumerate(points):
            gram[place].append(left.inner(right) if other >= place else gram[other][place].T)
    wanted = scaled(seen.update, -1.0)
    return RoundProducts(gram=tuple(map(tuple, gram)), along=tuple(point.along(wanted) for point in points))


def step_length(recipe: Recipe, examples: int) -> float:
    """Return the mean length of one record's gradient in an update of a client with that many examples."""
    if recipe.kind == "gradient":
        return 1 / examples
    return recipe.learning_rate * pulled(recipe, recipe.steps(examples)) / examples


# Generalised least squares


@dataclass(frozen=True, kw_only=True)
class Normal:
    """The normal equations of one strength of noise, summed over rounds."""

    information: Tensor  # [records * unknowns, records * unknowns]
    pull: Tensor  # [records * unknowns]

    def solve(self, unknowns: Unknowns, ridge: float) -> Tensor:
        """Return the estimate of z [records, unknowns]; `ridge` is the weight of the prior beside the messages."""
        records, free = unknowns.prior.shape[0], unknowns.directions.shape[1]
        size = self.information.diagonal().mean() * unknowns.spread.diagonal(dim1=1, dim2=2).mean()
        prior = torch.linalg.inv(unknowns.spread) * (ridge * size)
        softened = self.information.clone().reshape(records, free, records, free)
        every = torch.arange(records, device=prior.device)
        softened[every, :, every] += prior
        solved: Tensor = torch.linalg.solve(softened.reshape(records * free, -1), self.pull)
        return solved.reshape(records, free)


@dataclass(frozen=True, kw_only=True)
class Messages:
    """The rounds of one client, and what is assumed of its work."""

    rounds: Sequence[Observation]
    step: float | None  # length of one record's gradient in an update; None: fitted to each round
    missing: float = 0.0  # records that are not given, for each that is


def estimates(
    gradients: GradientsAt, messages: Messages, unknowns: Unknowns, strengths: Sequence[tuple[float, float]]
) -> list[Tensor]:
    """Return the coefficients [records, values] by strength (kappa, ridge), after a first pass with the usual one.

    `gradients` are those of every record under every value, the first value of all records first.
    """
    kappa, ridge = USUAL
    products_of: ProductsOf = partial(round_products, gradients)
    if POINTS**2 * unknowns.prior.numel() ** 2 * len(messages.rounds) <= ENTRIES_HELD:
        held = {seen.round: products_of(seen) for seen in messages.rounds}
        products_of = lambda seen: held[seen.round]  # noqa: E731
    (first,) = normal_equations(products_of, messages, unknowns, unknowns.prior, [kappa])
    present = unknowns.coefficients(first.solve(unknowns, ridge)).clamp(0, 1)
    kappas = sorted({kappa for kappa, _ in strengths})
    normals = dict(zip(kappas, normal_equations(products_of, messages, unknowns, present, kappas), strict=True))
    return [unknowns.coefficients(normals[kappa].solve(unknowns, ridge)) for kappa, ridge in strengths]


def normal_equations(
    products_of: ProductsOf, messages: Messages, unknowns: Unknowns, present: Tensor, kappas: Sequence[float]
) -> list[Normal]:
    """Return the normal equations of every kappa, with the nuisance of the present coefficients [records, values]."""
    size = unknowns.prior.shape[0] * unknowns.directions.shape[1]
    information = [unknowns.prior.new_zeros((size, size)) for _ in kappas]
    pull = [unknowns.prior.new_zeros(size) for _ in kappas]
    for seen in messages.rounds:
        system = reduced(products_of(seen), messages, unknowns, present)
        for place, kappa in enumerate(kappas):
            more, ahead = system.without_nuisance(kappa, 1 + messages.missing)
            information[place] += more
            pull[place] += ahead
    return [Normal(information=one, pull=other) for one, other in zip(information, pull, strict=True)]


@dataclass(frozen=True, kw_only=True)
class System:
    """The inner products of one round between directions D, nuisances G and the rest u - base of the update."""

    between: Tensor  # D'D [unknown, unknown]
    mixed: Tensor  # D'G [unknown, points * records]
    nuisance: Tensor  # G'G [points * records, points * records]
    pull: Tensor  # D'(u - base) [unknown]
    drag: Tensor  # G'(u - base) [points * records]

    def without_nuisance(self, kappa: float, variance: float) -> tuple[Tensor, Tensor]:
        """Return D' S^-1 D and D' S^-1 (u - base)."""
        level = kappa * self.nuisance.diagonal().mean().clamp(min=torch.finfo(self.pull.dtype).tiny)
        softened = self.nuisance.clone()
        softened.diagonal().add_(level / variance)
        factor = torch.linalg.cholesky(softened)
        right = torch.cat([self.mixed.T, self.drag[:, None]], 1)
        solved = torch.linalg.solve_triangular(factor, right, upper=False)  # [points * records, unknown + 1]
        gone = solved[:, :-1].T @ solved
        return (self.between - gone[:, :-1]) / level, (self.pull - gone[:, -1]) / level


def reduced(products: RoundProducts, messages: Messages, unknowns: Unknowns, present: Tensor) -> System:
    """Return the system of one round under the present coefficients."""
    records, values = unknowns.prior.shape
    directions, before, now = unknowns.directions, unknowns.prior.T.reshape(-1), present.T.reshape(-1)
    mean_products = [torch.stack(row).mean(0) for row in products.gram]  # of one point with the mean of all
    step = messages.step or fitted_step(products, before * (1 + messages.missing))
    # Inner products of all gradients with u - base, by point [values * records].
    rest = [
        line / step - inner @ (before * (1 + messages.missing))
        for line, inner in zip(products.along, mean_products, strict=True)
    ]
    # Gradients of all with those at point q under the present coefficients [values, records, records].
    turned = [[_summed(inner * now, values) for inner in row] for row in products.gram]
    nuisance = torch.cat(
        [torch.cat([_summed((inner * now[:, None]).T, values).T for inner in row], 1) for row in turned]
    )
    mixed = torch.cat(
        [torch.stack(column).mean(0).reshape(values, records, records) for column in zip(*turned, strict=True)], 2
    )
    whole = torch.stack(mean_products).mean(0).reshape(values, records, values, records)
    half = torch.einsum("viwj,wd->vijd", whole, directions)
    return System(
        between=torch.einsum("vijd,vc->icjd", half, directions).reshape(records * directions.shape[1], -1),
        mixed=torch.einsum("vij,vc->icj", mixed, directions).reshape(records * directions.shape[1], -1),
        nuisance=nuisance,
        pull=(torch.stack(rest).mean(0).reshape(values, records).T @ directions).reshape(-1),
        drag=torch.cat([(line * now).reshape(values, records).sum(0) for line in rest]),
    )


def _summed(matrix: Tensor, values: int) -> Tensor:
    """Return the sum over values of a matrix whose columns are those of every record under every value."""
    return matrix.reshape(len(matrix), values, -1).sum(1)


def fitted_step(products: RoundProducts, coefficients: Tensor) -> float:
    """Return the length under which the sum of gradients with these coefficients is nearest to the update."""
    whole = torch.stack([torch.stack(row).mean(0) for row in products.gram]).mean(0)
    square = float(coefficients @ whole @ coefficients)
    ahead = float(torch.stack(products.along).mean(0) @ coefficients)
    return ahead / square if ahead > 0 and square > 0 else 1.0
