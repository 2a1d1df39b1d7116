"""A client's work in federated least squares as an affine map, and how well messages fix it (papers 000 and 003).

The loss is |X theta - y|^2 / m and H = X'X. So many steps at learning rate eta take theta to theta - W (theta
- theta*) with W = I - (I - 2 eta H / m)^steps. Full batches take one step per epoch; with mini-batches of b
the papers count steps = E ceil(m / b) and put the rest into noise.

Corrections: Lemma 1 of 000 (W is invertible) is false for no step, and for an even number of them when an
eigenvalue of 2 eta H / m is 2; the last line of its Prop. 3 drops a factor d inside the logarithm, which is
kept here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedxray.errors import BadInput


def messages_needed(parameters: int) -> int:
    """Messages that fix a least squares model of so many parameters (bias included): one more than those."""
    return parameters + 1


def local_steps(examples: int, batch_size: int, epochs: int) -> int:
    """E ceil(m / b)."""
    return epochs * -(-examples // batch_size)


def update_matrix(x: Tensor, *, learning_rate: float, steps: int) -> Tensor:
    """W [d, d] of a client with design matrix x [m, d] that takes so many full-batch steps."""
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    power: Tensor = torch.linalg.matrix_power(eye - 2 * learning_rate / len(x) * x.T @ x, steps)
    return eye - power


def update_eigenvalues(x: Tensor, *, learning_rate: float, steps: int) -> Tensor:
    """The eigenvalues 1 - (1 - 2 eta lambda / m)^steps of W, in the ascending order of those of H, shape [d]."""
    curvatures: Tensor = torch.linalg.eigvalsh(x.T @ x)
    return 1 - (1 - 2 * learning_rate / len(x) * curvatures) ** steps


def map_fixes_optimum(x: Tensor, *, learning_rate: float, steps: int, tolerance: float = 1e-9) -> bool:
    """Whether W is invertible, so that the client's optimum is the only model she leaves unchanged."""
    return bool((update_eigenvalues(x, learning_rate=learning_rate, steps=steps).abs() > tolerance).all())


def noise_variance(*, learning_rate: float, sigma: float, steps: int) -> float:
    """The most variance of an entry of a reply, eta^2 sigma^2 steps, for eta up to m / (2 lambda_max(H))."""
    return (learning_rate * sigma) ** 2 * steps


def forward_error_bound(
    *,
    learning_rate: float,
    sigma: float,
    parameters: int,
    steps: int,
    messages: int,
    least_eigenvalue: float,
    least_update: float,
    optimum_norm: float,
    delta: float,
) -> float:
    """Eq. 26 of 000: the most distance to the optimum, with probability at least 1 - delta.

    For W-form fits with each row on messages of its own. `least_eigenvalue` is that of Theta_in' Theta_in / n,
    `least_update` that of W. It holds once the messages are many enough to keep the fitted W invertible
    (`forward_bound_holds`).
    """
    _check_bound(parameters, messages, least_eigenvalue, delta)
    inner = steps * (parameters + 1 + math.log(2 * parameters / delta)) / (messages * least_eigenvalue)
    return 2 * learning_rate * sigma * parameters / least_update * (optimum_norm + 1) * math.sqrt(inner)


def forward_bound_holds(
    *,
    learning_rate: float,
    sigma: float,
    parameters: int,
    steps: int,
    messages: int,
    least_eigenvalue: float,
    least_update: float,
    delta: float,
) -> bool:
    """Whether there are messages enough for Eq. 26: the error of W is at most half its least eigenvalue."""
    _check_bound(parameters, messages, least_eigenvalue, delta)
    spread = noise_variance(learning_rate=learning_rate, sigma=sigma, steps=steps) * parameters**2
    share = (parameters + 1 + math.log(2 * parameters / delta)) / (messages * least_eigenvalue)
    return spread * share <= least_update**2 / 4


def error_order(
    *,
    learning_rate: float,
    sigma: float,
    parameters: int,
    steps: int,
    messages: int,
    least_eigenvalue: float,
    delta: float,
) -> float:
    """Theorem 1 of 003 without its unstated constant: the order of Alg. 2's error, with probability 1 - delta.

    `least_eigenvalue` is that of Theta_out' Theta_out / n, not Theta_in as in 000.
    """
    _check_bound(parameters, messages, least_eigenvalue, delta)
    inner = parameters * steps * (parameters + 1 + math.log(2 * parameters / delta))
    return learning_rate * sigma * parameters * math.sqrt(inner / (messages * least_eigenvalue))


def _check_bound(parameters: int, messages: int, least_eigenvalue: float, delta: float) -> None:
    if messages <= parameters:
        expected = f"more than {parameters} messages for {parameters} parameters"
        raise BadInput("messages", expected=expected, got=messages, remedy="No fewer can fix the model.")
    if not least_eigenvalue > 0:
        expected, remedy = "an eigenvalue above 0", "The messages must differ in every direction."
        raise BadInput("least_eigenvalue", expected=expected, got=least_eigenvalue, remedy=remedy)
    if not 0 < delta < 1:
        raise BadInput("delta", expected="a probability above 0 and below 1", got=delta, remedy="Try 0.05.")
