"""Coefficients of records in updates: against explicit gradients and covariances, and by their properties."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation
from fedxray.attacks.observations import usable
from fedxray.attacks.record_gradients import gradients_at
from fedxray.attacks.update_algebra import (
    Messages,
    Unknowns,
    estimates,
    fitted_step,
    normal_equations,
    of_presence,
    of_values,
    round_products,
    step_length,
)
from fedxray.federation.recipe import Recipe
from fedxray.params import add, each, flatten, parameters_of, unflatten
from fedxray.seeds import fork, normal_like
from tests.attacks.test_gradient_gram import one_by_one

RECORDS, WIDTH = 5, 6
NETWORK = nn.Sequential(nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def examples(values: int) -> tuple[Tensor, Tensor]:
    """Every record under every value, which is the first column, and its class."""
    x = normal_like(torch.empty(RECORDS, WIDTH, dtype=torch.float64), fork(1, "records"))
    every = torch.cat([torch.cat([torch.full_like(x[:, :1], value), x[:, 1:]], 1) for value in range(values)])
    return every, (torch.arange(RECORDS) % 2).repeat(values)


def observation(number: int, kind: str = "weights") -> Observation:
    draw = fork(number, "round")
    start, update = (each(lambda value: 0.3 * normal_like(value, draw), parameters_of(NETWORK)) for _ in range(2))
    return Observation(round=number, start=start, update=update, kind=kind, contributors=(0,), examples=None)  # type: ignore[arg-type]


def unknowns_of(values: int) -> Unknowns:
    drawn = torch.rand((RECORDS, values), generator=fork(2), dtype=torch.float64) + 0.1
    return of_presence(drawn[:, 0] / 1.2) if values == 1 else of_values(drawn / drawn.sum(1, keepdim=True))


def by_covariances(
    messages: Messages, unknowns: Unknowns, present: Tensor, kappa: float, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """The normal equations from explicit gradients and the inverse of the whole covariance."""
    information, pull = torch.zeros(()), torch.zeros(())
    for seen in messages.rounds:
        ends = [seen.start, add(seen.start, seen.update)] if seen.kind == "weights" else [seen.start]
        shape = (unknowns.prior.shape[1], RECORDS, -1)
        points = [one_by_one(NETWORK, "cross-entropy", end, x, y).reshape(shape) for end in ends]
        mean = torch.stack(points).mean(0)  # [values, records, parameters]
        nuisances = [torch.einsum("iv,vip->ip", present, point) for point in points]
        directions = torch.einsum("vc,vip->icp", unknowns.directions, mean).flatten(0, 1)
        noise = kappa * torch.cat(nuisances).square().sum(1).mean()
        covariance = noise * torch.eye(mean.shape[2], dtype=mean.dtype)
        for nuisance in nuisances:
            covariance = covariance + (1 + messages.missing) * nuisance.T @ nuisance
        base = (1 + messages.missing) * torch.einsum("iv,vip->p", unknowns.prior, mean)
        down = -flatten({name: seen.update[name] for name in seen.start})
        along = down @ base  # where no step is given: that of least squares, 1 where they point apart
        step = messages.step or (along / (base @ base) if along > 0 else 1.0)
        rest = down / step - base
        inverse = torch.linalg.inv(covariance)
        information = information + directions @ inverse @ directions.T
        pull = pull + directions @ inverse @ rest
    return information, pull


@pytest.mark.parametrize(("step", "missing"), [(0.2, 0.3), (None, 0.5)])
@pytest.mark.parametrize("kind", ["weights", "gradient"])
@pytest.mark.parametrize("values", [1, 2, 3])
def test_sums_equal_those_of_explicit_covariances(values: int, kind: str, step: float | None, missing: float) -> None:
    x, y = examples(values)
    unknowns = unknowns_of(values)
    present = torch.rand((RECORDS, values), generator=fork(3), dtype=torch.float64)
    messages = Messages(rounds=[observation(0, kind), observation(1, kind)], step=step, missing=missing)
    products_of = partial(round_products, gradients_at(NETWORK, "cross-entropy", x, y))
    quick = normal_equations(products_of, messages, unknowns, present, [1e-2, 0.5])
    for normal, kappa in zip(quick, [1e-2, 0.5], strict=True):
        information, pull = by_covariances(messages, unknowns, present, kappa, x, y)
        assert torch.allclose(normal.information, information, rtol=1e-6)
        assert torch.allclose(normal.pull, pull, rtol=1e-6)
        size = information.diagonal().mean() * unknowns.spread.diagonal(dim1=1, dim2=2).mean()
        prior = torch.block_diag(*torch.linalg.inv(unknowns.spread)) * size * 0.1
        solved = torch.linalg.inv(information + prior) @ pull
        assert torch.allclose(normal.solve(unknowns, 0.1).flatten(), solved, rtol=1e-6)


def test_values_sum_to_one_and_have_the_spread_of_their_probabilities() -> None:
    unknowns = unknowns_of(3)
    z = torch.randn((RECORDS, 2), generator=fork(4), dtype=torch.float64)
    assert torch.allclose(unknowns.coefficients(z).sum(1), torch.ones(RECORDS, dtype=torch.float64))
    back = unknowns.directions @ unknowns.spread @ unknowns.directions.T
    chance = unknowns.prior
    assert torch.allclose(back, torch.diag_embed(chance) - chance[:, :, None] * chance[:, None])


@pytest.mark.parametrize("values", [1, 2, 3])
def test_one_exact_gradient_gives_the_coefficients(values: int) -> None:
    x, y = examples(values)
    picked = torch.tensor([0, 1, 1, 0, 1]) % values
    real = (
        torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)[:, None]
        if values == 1
        else nn.functional.one_hot(picked, values).double()
    )
    blank = observation(0, "gradient")
    rows = one_by_one(NETWORK, "cross-entropy", blank.start, x, y).reshape(values, RECORDS, -1)
    total = torch.einsum("iv,vip->p", real, rows) / RECORDS
    seen = Observation(
        round=0, start=blank.start, update=unflatten(-total, blank.start), kind="gradient", contributors=(0,),
        examples=RECORDS,
    )  # fmt: skip
    even = torch.full((RECORDS, values), 1 / values, dtype=torch.float64)
    unknowns = of_presence(torch.full_like(even[:, 0], 0.5)) if values == 1 else of_values(even)
    step = step_length(Recipe(algorithm="fedsgd"), RECORDS)
    messages = Messages(rounds=[seen], step=step)
    # A small nuisance leaves the exact solution where it is.
    (guess,) = estimates(gradients_at(NETWORK, "cross-entropy", x, y), messages, unknowns, [(1.0, 1e-9)])
    assert torch.allclose(guess, real, atol=1e-4)
    products = round_products(gradients_at(NETWORK, "cross-entropy", x, y), seen)
    assert fitted_step(products, real.T.reshape(-1)) == pytest.approx(step)


def test_permuting_records_permutes_and_updates_enter_linearly() -> None:
    x, y = examples(2)
    unknowns, order = unknowns_of(2), torch.tensor([3, 0, 4, 1, 2])
    strengths = [(1e-2, 1e-2), (1e-1, 1e-3)]
    messages = Messages(rounds=[observation(0)], step=0.2)
    turned = torch.cat([order, order + RECORDS])
    first = estimates(gradients_at(NETWORK, "cross-entropy", x, y), messages, unknowns, strengths)
    again = estimates(
        gradients_at(NETWORK, "cross-entropy", x[turned], y[turned]), messages, of_values(unknowns.prior[order]),
        strengths,
    )  # fmt: skip
    assert all(torch.allclose(left[order], right) for left, right in zip(first, again, strict=True))
    pulls = []
    one, two = observation(0, "gradient"), observation(1, "gradient")
    half = each(lambda value: value / 2, add(one.update, two.update))
    for update in (one.update, two.update, half):
        seen = Observation(round=0, start=one.start, update=update, kind="gradient", contributors=(0,), examples=None)
        at = gradients_at(NETWORK, "cross-entropy", x, y)
        (normal,) = normal_equations(
            partial(round_products, at), Messages(rounds=[seen], step=0.2), unknowns, unknowns.prior, [1e-2]
        )
        pulls.append(normal.pull)
    assert torch.allclose((pulls[0] + pulls[1]) / 2, pulls[2])


def test_steps_of_recipes() -> None:
    assert step_length(Recipe(algorithm="fedsgd"), 10) == pytest.approx(0.1)
    plain = Recipe(learning_rate=0.1, epochs=2, batch_size=4)  # three batches in each of two epochs
    assert step_length(plain, 10) == pytest.approx(0.1 * 6 / 10)
    heavy = Recipe(learning_rate=0.1, epochs=1, batch_size=5, momentum=0.5)  # 1 + 1.5
    assert step_length(heavy, 10) == pytest.approx(0.1 * 2.5 / 10)


def test_rounds_without_an_update_are_left_out_and_the_others_spread() -> None:
    rounds = [observation(number) for number in range(6)]
    still = Observation(
        round=9, start=rounds[0].start, update=each(torch.zeros_like, rounds[0].update), kind="weights",
        contributors=(0,), examples=None,
    )  # fmt: skip
    assert [seen.round for seen in usable([*rounds, still], 3)] == [0, 2, 4]
    assert usable([still], 3) == []
