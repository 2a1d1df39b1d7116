"""Lemma 1 of the curious client (2024) and its corrections, on least squares with known Hessians and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.params import Params, norm, scaled, subtract
from fedxray.theory import (
    Loss,
    RecordMoments,
    divergence,
    expected_divergence,
    gradient,
    hessian_product,
    leading_divergence,
    mean_loss,
    quadratic_divergence,
    terms_at_three_steps,
)

WIDTH = 3
SIZES = (2, 5, 3)


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def client(size: int, seed: int) -> tuple[Tensor, Tensor]:
    drawn = torch.randn(size, WIDTH + 1, generator=draws(seed), dtype=torch.float64)
    return drawn[:, :WIDTH], drawn[:, WIDTH]


def squares(x: Tensor, y: Tensor) -> Loss:
    return lambda params: ((x @ params["w"] - y) ** 2).mean() / 2


def smooth(x: Tensor, y: Tensor) -> Loss:
    """Smooth, but not quadratic."""
    return lambda params: torch.log(torch.cosh(x @ params["w"] - y)).mean()


def start() -> dict[str, Tensor]:
    return {"w": torch.tensor([0.7, -0.3, 0.2], dtype=torch.float64)}


CLIENTS = [client(size, seed) for seed, size in enumerate(SIZES)]
SQUARES: list[Loss] = [squares(*one) for one in CLIENTS]
SMOOTH: list[Loss] = [smooth(*one) for one in CLIENTS]


def by_hand(steps: int, rate: float, clients: Sequence[tuple[Tensor, Tensor]], weights: Sequence[float]) -> Tensor:
    """delta by matrices: (I - eta H)^steps brings the distance from the optimum of H w = b along."""

    def end(x: Tensor, y: Tensor, count: Sequence[float] | None = None) -> Tensor:
        share = (
            torch.full((len(y),), 1 / len(y), dtype=x.dtype) if count is None else torch.tensor(count, dtype=x.dtype)
        )
        h, b, w = x.T @ (share[:, None] * x), x.T @ (share * y), start()["w"]
        for _ in range(steps):
            w = w - rate * (h @ w - b)
        return w

    total = sum(weights)
    fed = sum((weight / total * end(*one) for weight, one in zip(weights, clients, strict=True)), torch.zeros(3))
    shares = [w / total / len(one[1]) for w, one in zip(weights, clients, strict=True) for _ in range(len(one[1]))]
    x, y = (torch.cat([one[place] for one in clients]) for place in (0, 1))
    return fed - end(x, y, [float(share) for share in shares])


@pytest.mark.parametrize("steps", [2, 3, 6])
@pytest.mark.parametrize("weights", [SIZES, (1, 1, 1)])
def test_simulated_and_closed_forms_agree_with_matrices(steps: int, weights: tuple[int, ...]) -> None:
    wanted = by_hand(steps, 0.05, CLIENTS, weights)
    for found in (divergence, quadratic_divergence):
        got = found(start(), SQUARES, weights, rate=0.05, steps=steps)["w"]
        assert torch.allclose(got, wanted, rtol=1e-6, atol=1e-9), found.__name__
    assert wanted.abs().max() > 1e-4


def test_two_steps_of_quadratic_losses_are_the_leading_term_exactly() -> None:
    exact = divergence(start(), SQUARES, SIZES, rate=0.3, steps=2)
    leading = leading_divergence(start(), SQUARES, SIZES, rate=0.3, steps=2)
    assert torch.allclose(exact["w"], leading["w"], rtol=1e-10, atol=1e-14)
    slopes = [gradient(loss, start())["w"] for loss in SQUARES]
    bends = [one[0].T @ one[0] / len(one[1]) for one in CLIENTS]
    total = sum(SIZES)
    mean_slope = sum((size / total * slope for size, slope in zip(SIZES, slopes, strict=True)), torch.zeros(3))
    mean_bend = sum((size / total * bend for size, bend in zip(SIZES, bends, strict=True)), torch.zeros(3, 3))
    wanted = sum(
        (size / total * (bend - mean_bend) @ (slope - mean_slope)
         for size, bend, slope in zip(SIZES, bends, slopes, strict=True)), torch.zeros(3)
    )  # fmt: skip
    assert torch.allclose(leading["w"], 0.09 * wanted, rtol=1e-10, atol=1e-14)


def test_nothing_parts_in_one_step_with_one_client_or_with_equal_records() -> None:
    for losses, weights, steps in ((SMOOTH, SIZES, 1), (SMOOTH[:1], (4,), 5), ([SMOOTH[0]] * 3, (1, 2, 3), 5)):
        for found in (divergence, quadratic_divergence, leading_divergence):
            apart = found(start(), losses, weights, rate=0.1, steps=steps)
            assert float(norm(apart)) < 1e-14, (found.__name__, len(losses), steps)


@pytest.mark.parametrize(("steps", "times"), [(3, 3), (4, 6), (5, 10)])
@pytest.mark.parametrize("losses", [SQUARES, SMOOTH], ids=["quadratic", "smooth"])
def test_as_the_rate_vanishes_steps_count_as_their_pairs(losses: list[Loss], steps: int, times: int) -> None:
    two, more = (divergence(start(), losses, SIZES, rate=1e-4, steps=one) for one in (2, steps))
    assert float(norm(more) / norm(two)) == pytest.approx(times, rel=3e-3)
    assert float(norm(subtract(more, scaled(two, times))) / norm(more)) < 3e-3


def test_the_leading_term_is_second_order_for_smooth_losses() -> None:
    rests = []
    for rate in (1e-2, 1e-3):
        exact = divergence(start(), SMOOTH, SIZES, rate=rate, steps=3)
        leading = leading_divergence(start(), SMOOTH, SIZES, rate=rate, steps=3)
        rests.append(float(norm(subtract(exact, leading)) / norm(exact)))
    assert rests[1] < 0.02 and rests[0] / rests[1] == pytest.approx(10, rel=0.3)


@pytest.mark.parametrize(("clients", "each"), [(2, 4), (4, 4), (4, 8), (8, 4)])
def test_the_mean_over_draws_is_the_lemma(clients: int, each: int) -> None:
    """For x ~ N(0, I) and y of its own, Cov(J, g) = (d + 1) w."""
    runs, width, rate = 40_000, 2, 0.1
    x = torch.randn(runs, clients, each, width, generator=draws(5), dtype=torch.float64)
    w = torch.tensor([1.0, -0.5], dtype=torch.float64)
    bends = torch.einsum("rkni,rknj->rkij", x, x) / each
    slopes = bends @ w  # y adds nothing to the mean
    apart = (bends - bends.mean(1, keepdim=True)) @ (slopes - slopes.mean(1, keepdim=True))[..., None]
    simulated = rate**2 * apart[..., 0].mean((0, 1))
    examples = clients * each
    wanted = expected_divergence((width + 1) * w, rate=rate, steps=2, clients=clients, examples=examples)
    assert torch.allclose(simulated, wanted, rtol=0.05)
    three = expected_divergence((width + 1) * w, rate=rate, steps=3, clients=clients, examples=examples)
    assert torch.allclose(three, 3 * wanted)


def test_the_papers_numbers_do_not_make_the_cubic_term_small() -> None:
    moments = {"slope": -0.004, "curve_slope": 1.0, "curves": 100.0, "squared_slope": 100.0}
    setting = {"rate": 0.003, "clients": 4, "examples": 64}
    second, third = terms_at_three_steps(RecordMoments(curve=1000.0, **moments), **setting)  # type: ignore[arg-type]
    assert abs(second / third) == pytest.approx(0.54, abs=0.01)
    second, third = terms_at_three_steps(RecordMoments(curve=1.0, **moments), **setting)  # type: ignore[arg-type]
    assert abs(second / third) == pytest.approx(99.4, abs=0.1)
    assert abs(second / 3 / third) == pytest.approx(33.1, abs=0.1), "what the paper compares"


def test_hessian_times_vector_is_that_of_finite_differences() -> None:
    along: Params = {"w": torch.tensor([0.2, 1.0, -0.4], dtype=torch.float64)}
    loss = mean_loss(SMOOTH, SIZES)
    little = 1e-6
    ahead, behind = (gradient(loss, {"w": start()["w"] + sign * little * along["w"]})["w"] for sign in (1, -1))
    assert torch.allclose(hessian_product(loss, start(), along)["w"], (ahead - behind) / (2 * little), rtol=1e-6)


def test_kinks_are_not_seen_by_any_hessian() -> None:
    """Where a ReLU switches between clients, they part although the leading term is nothing."""
    x = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    losses: list[Loss] = [
        lambda params, y=y: ((torch.relu(x @ params["w"]) - y) ** 2).mean() / 2  # type: ignore[misc]
        for y in (-1.0, 1.0)
    ]
    here = {"w": torch.tensor([0.05], dtype=torch.float64)}
    exact = divergence(here, losses, (1, 1), rate=0.1, steps=3)
    leading = leading_divergence(here, losses, (1, 1), rate=0.1, steps=3)
    assert float(norm(leading)) < 1e-12 < float(norm(exact))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="steps"):
        divergence(start(), SQUARES, SIZES, rate=0.1, steps=0)
    with pytest.raises(BadInput, match="weights"):
        leading_divergence(start(), SQUARES, (1, 2), rate=0.1, steps=2)
