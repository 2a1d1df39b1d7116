"""How far the mean of several clients is from one client that holds all their records (paper 004, appendix A, Lemma 1).

Clients k with weights w_k (N_k / N) take tau full-batch steps of rate eta from W; g_k and J_k are gradient and
Hessian of client k's mean loss at W, g and J their weighted means. With
    delta(tau) = W_fed - W_single,
the mean of the clients' models minus the model of the one client:
    - tau = 1, a single client, or clients with equal records: delta = 0.
    - delta(2) = eta^2 sum_k w_k (J_k - J)(g_k - g), exactly where losses are quadratic.
    - In general delta(tau) = tau (tau - 1) / 2 of that, up to terms in eta^3.
    - Records drawn alike for all: E delta(tau) = tau (tau - 1) / 2 eta^2 (K - 1) / N Cov(J, g) in leading order.
      This is of the mean vector; E |delta| is larger than |E delta|.

Corrections: Eq. 39 drops eta^2; Eq. 27 has N_k^2 where N^2 is meant; with the numbers that the text gives
(mu_J = 1000) the term in eta^2 is 0.54 times the one in eta^3, not 33.1 times: that follows from mu_J = 1 and from
comparing delta(2) instead of three times it. So the leading term is not always the largest, see `terms_at_three_steps`.
And all of it asks for smooth losses: ReLU and max pooling have kinks which no Hessian sees, and clients that part cross
them. Then delta is larger than the leading term and falls more slowly than eta^2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.params import Params, add, scaled, subtract, weighted_mean

Loss = Callable[[Params], Tensor]  # a client's mean loss over its records, a scalar


def walked(start: Params, loss: Loss, rate: float, steps: int) -> dict[str, Tensor]:
    """Parameters after so many full-batch steps."""
    here = dict(start)
    for _ in range(steps):
        here = add(here, gradient(loss, here), -rate)
    return here


def divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """delta(steps) itself: all clients walk, and so does the one client whose loss is their weighted mean."""
    _check(losses, weights, steps)
    together = weighted_mean([walked(start, loss, rate, steps) for loss in losses], weights)
    return subtract(together, walked(start, mean_loss(losses, weights), rate, steps))


def quadratic_divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """delta(steps) if every loss were its expansion to second order at `start`; exact for quadratic losses."""
    _check(losses, weights, steps)
    moves = [_quadratic_move(start, loss, rate, steps) for loss in losses]
    return subtract(
        weighted_mean(moves, weights), _quadratic_move(start, mean_loss(losses, weights), rate, steps)
    )


def leading_divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """tau (tau - 1) / 2 eta^2 sum_k w_k (J_k - J)(g_k - g); J drops out, as the deviations of g_k sum to nothing."""
    _check(losses, weights, steps)
    slopes = [gradient(loss, start) for loss in losses]
    mean = weighted_mean(slopes, weights)
    bent = [curved(loss, start, subtract(slope, mean)) for loss, slope in zip(losses, slopes, strict=True)]
    return scaled(weighted_mean(bent, weights), rate**2 * steps * (steps - 1) / 2)


def expected_divergence(
    covariance: Tensor, *, rate: float, steps: int, clients: int, examples: int
) -> Tensor:
    """E delta in leading order for records drawn alike: Cov(J, g) = E[J g] - E[J] E[g] of one record, any shape."""
    return covariance * (rate**2 * steps * (steps - 1) / 2 * (clients - 1) / examples)


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Scalars that stand for the moments of gradient g and Hessian J of one record, as the paper weighs them."""

    slope: float  # mean of g
    curve: float  # mean of J
    curve_slope: float  # Cov(J, g)
    curves: float  # Cov(J, J)
    squared_slope: float  # Cov(J^2, g)


def terms_at_three_steps(
    moments: Moments, *, rate: float, clients: int, examples: int
) -> tuple[float, float]:
    """The terms in eta^2 and in eta^3 of E delta(3) (Eq. 30), to be compared in size."""
    share = (clients - 1) / examples
    second = 3 * rate**2 * share * moments.curve_slope
    third = (
        share * moments.curves * moments.slope
        - (clients**2 - 1) / examples**2 * moments.squared_slope
        - 2 * share * (examples - clients - 1) / examples * moments.curve * moments.curve_slope
    )
    return second, rate**3 * third


def gradient(loss: Loss, at: Params) -> dict[str, Tensor]:
    """The gradient of a loss."""
    free = {name: value.detach().requires_grad_() for name, value in at.items()}
    with torch.enable_grad():
        found = torch.autograd.grad(
            loss(free), list(free.values()), allow_unused=True, materialize_grads=True
        )
    return dict(zip(free, found, strict=True))


def curved(loss: Loss, at: Params, along: Params) -> dict[str, Tensor]:
    """The Hessian of a loss times a vector."""
    free = {name: value.detach().requires_grad_() for name, value in at.items()}
    values = list(free.values())
    with torch.enable_grad():
        slopes = torch.autograd.grad(
            loss(free), values, create_graph=True, allow_unused=True, materialize_grads=True
        )
        inner = torch.stack([(slope * along[name]).sum() for name, slope in zip(free, slopes, strict=True)])
        found = torch.autograd.grad(inner.sum(), values, allow_unused=True, materialize_grads=True)
    return dict(zip(free, found, strict=True))


def mean_loss(losses: Sequence[Loss], weights: Sequence[float]) -> Loss:
    """The loss of one client that holds all records."""
    total = sum(weights)
    shares = [weight / total for weight in weights]

    def loss(params: Params) -> Tensor:
        return torch.stack([share * one(params) for share, one in zip(shares, losses, strict=True)]).sum()

    return loss


def _quadratic_move(start: Params, loss: Loss, rate: float, steps: int) -> dict[str, Tensor]:
    """- eta sum over u < steps of (I - eta J)^u g."""
    slope = gradient(loss, start)
    moved = scaled(slope, -rate)
    for _ in range(steps - 1):
        slope = add(slope, curved(loss, start, slope), -rate)
        moved = add(moved, slope, -rate)
    return moved


def _check(losses: Sequence[Loss], weights: Sequence[float], steps: int) -> None:
    if steps < 1:
        raise BadInput("steps", expected="a whole number of at least 1", got=steps, remedy="Try 3.")
    if not losses or len(losses) != len(weights) or min(weights) <= 0:
        raise BadInput(
            "weights",
            expected="one weight above 0 for every client",
            got=f"{len(weights)} weights of {len(losses)} clients",
            remedy="Use how many records each holds.",
        )
