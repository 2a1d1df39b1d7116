"""The papers' bounds as functions, with the corrections that checking them brought.

Four parts: attribute inference from a linear model; a client's work in federated least squares as an affine map; a
client whose model takes d messages to determine; several clients against one client with all their records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.errors import BadInput, check_whole
from fedxray.params import Params, add, scaled, subtract, weighted_mean

# Attribute inference from a linear model (Diana et al. 2025, Prop. 1; Driouich et al., Prop. 4)


def accuracy_bound(error: float, weight: float, *, low: float = 0.0, high: float = 1.0) -> float:
    """Lower bound on the share of records inferred correctly with a linear model: 1 - 4 E / (w (high - low))^2.

    `error` is the model's mean squared error on these records, `weight` its weight of the attribute, whose values are
    `low` and `high` (0 and 1 in the papers). A record is inferred wrongly only if its residual is at least half of the
    change that the attribute makes in the prediction. It does not matter how the model was obtained. At least 0.
    """
    if error < 0:
        raise BadInput(
            "error", expected="a mean squared error of at least 0", got=error, remedy="Give the mean of squares."
        )
    moved = (weight * (high - low)) ** 2
    return max(0.0, 1.0 - 4.0 * error / moved) if moved > 0 else 0.0


def nearer_value(rest: Tensor, weight: float, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """The inferred attribute [records] by the papers' two steps: solve for it, then take the nearer value.

    `rest` [records] is the target minus the prediction from all other columns; a tie gives `high`.
    """
    solved = rest / weight
    return torch.where(solved < (low + high) / 2, torch.full_like(rest, low), torch.full_like(rest, high))


# A client's work in federated least squares as an affine map (Driouich et al.; Diana et al. 2025)
#
# The loss is |X theta - y|^2 / m and H = X'X. After `steps` steps at learning rate eta, theta becomes
# theta - W (theta - theta*) with W = I - (I - 2 eta H / m)^steps. Full batches take one step per epoch; with
# mini-batches of b the papers count steps = E ceil(m / b) and treat the rest as noise.
#
# Corrections: Lemma 1 of Driouich et al. (W is invertible) is false for zero steps, and for an even number of steps
# when an eigenvalue of 2 eta H / m is 2; the last line of their Prop. 3 drops a factor d inside the logarithm, which
# is kept here.


def messages_needed(parameters: int) -> int:
    """Number of messages that determine a least squares model: one more than its parameters, bias included."""
    return parameters + 1


def local_steps(examples: int, batch_size: int, epochs: int) -> int:
    """Local steps of one round: E ceil(m / b)."""
    return epochs * -(-examples // batch_size)


def update_matrix(x: Tensor, *, learning_rate: float, steps: int) -> Tensor:
    """W [d, d] of a client with design matrix x [m, d] that takes `steps` full-batch steps."""
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    power: Tensor = torch.linalg.matrix_power(eye - 2 * learning_rate / len(x) * x.T @ x, steps)
    return eye - power


def update_eigenvalues(x: Tensor, *, learning_rate: float, steps: int) -> Tensor:
    """The eigenvalues 1 - (1 - 2 eta lambda / m)^steps of W, in the ascending order of those of H, shape [d]."""
    curvatures: Tensor = torch.linalg.eigvalsh(x.T @ x)
    return 1 - (1 - 2 * learning_rate / len(x) * curvatures) ** steps


def map_fixes_optimum(x: Tensor, *, learning_rate: float, steps: int, tolerance: float = 1e-9) -> bool:
    """Whether W is invertible, so that the client's optimum is the only model that its work leaves unchanged."""
    return bool((update_eigenvalues(x, learning_rate=learning_rate, steps=steps).abs() > tolerance).all())


def noise_variance(*, learning_rate: float, sigma: float, steps: int) -> float:
    """Upper bound on the variance of an entry of a reply, eta^2 sigma^2 steps, for eta up to m / (2 lambda_max(H))."""
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
    """Upper bound on the distance to the optimum, with probability at least 1 - delta (Driouich et al., Eq. 26).

    For fits of W in which each row uses messages of its own. `sigma` is the noise of a gradient entry,
    `least_eigenvalue` the smallest eigenvalue of Theta_in' Theta_in / n, `least_update` that of W, `optimum_norm` the
    norm of theta*. It holds once there are enough messages to keep the fitted W invertible (`forward_bound_holds`).
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
    """Whether there are enough messages for Eq. 26: the error of W is at most half its smallest eigenvalue."""
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
    """Order of the error of Alg. 2, with probability 1 - delta (Diana et al. 2025, Theorem 1 without its constant).

    `least_eigenvalue` is that of Theta_out' Theta_out / n, not Theta_in as in Driouich et al.
    """
    _check_bound(parameters, messages, least_eigenvalue, delta)
    inner = parameters * steps * (parameters + 1 + math.log(2 * parameters / delta))
    return learning_rate * sigma * parameters * math.sqrt(inner / (messages * least_eigenvalue))


def _check_bound(parameters: int, messages: int, least_eigenvalue: float, delta: float) -> None:
    """Refuse too few messages, an eigenvalue of zero, or a probability out of range."""
    if messages <= parameters:
        expected = f"more than {parameters} messages for {parameters} parameters"
        raise BadInput("messages", expected=expected, got=messages, remedy="Fewer cannot determine the model.")
    if not least_eigenvalue > 0:
        expected, remedy = "an eigenvalue above 0", "The messages must differ in every direction."
        raise BadInput("least_eigenvalue", expected=expected, got=least_eigenvalue, remedy=remedy)
    if not 0 < delta < 1:
        raise BadInput("delta", expected="a probability above 0 and below 1", got=delta, remedy="Try 0.05.")


# A client whose model takes d messages to determine (Driouich et al., Prop. 2; Diana et al. 2025, Prop. 3)
#
# From theta(0) = 0, with one full-batch step per round, the client's curvature passes each round's change on to one
# more parameter, and the other clients (X = I, y = 0) only shrink it; so the curvature of the last parameter stays
# unseen for d - 1 rounds.
#
# Corrections: the matrix of footnote 9 of Driouich et al. is the Cholesky factor L with H = L L', so the design matrix
# is its transpose; after round t the client's model has t + 1 entries that are not zero and the server's, before it, t
# (Eq. 24 is off by one).


def hard_curvature(parameters: int, *, like: Tensor) -> Tensor:
    """H [d, d]: 1 on the diagonal, -1/2 beside it."""
    if parameters < 1:
        raise BadInput("parameters", expected="at least 1", got=parameters, remedy="Try 5.")
    ones = torch.ones(parameters, dtype=like.dtype, device=like.device)
    return torch.diag(ones) - (torch.diag(ones[1:], 1) + torch.diag(ones[1:], -1)) / 2


def hard_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Records x [d, d], y [d] with x'x = H and x'y = (1/2, 0, ..., 0)."""
    factor = torch.linalg.cholesky(hard_curvature(parameters, like=like))
    product = torch.zeros(parameters, 1, dtype=like.dtype, device=like.device)  # x'y
    product[0] = 0.5
    return factor.T, torch.linalg.solve_triangular(factor, product, upper=False)[:, 0]


def twin_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Records [d, d], [d] whose messages equal the hard client's in the first d - 1 rounds: H without its last row."""
    x, y = hard_client(parameters - 1, like=like)
    wide = torch.zeros(parameters, parameters, dtype=like.dtype, device=like.device)
    wide[:-1, :-1] = x
    return wide, torch.cat([y, torch.zeros_like(y[:1])])


def idle_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Records [d, d], [d] of any other client: x = I, y = 0."""
    eye = torch.eye(parameters, dtype=like.dtype, device=like.device)
    return eye, torch.zeros_like(eye[0])


def hard_optimum(parameters: int, *, like: Tensor) -> Tensor:
    """The hard client's own optimum 1 - i / (d + 1), shape [d]."""
    steps = torch.arange(1, parameters + 1, dtype=like.dtype, device=like.device)
    return 1 - steps / (parameters + 1)


# The mean of several clients against one client that holds all their records (curious client, appendix A, Lemma 1)
#
# Clients k with weights w_k (N_k / N) take tau full-batch steps of rate eta from W; g_k and J_k are gradient and
# Hessian of client k's mean loss at W, g and J their weighted means. delta(tau) = W_fed - W_single is the mean of the
# clients' models minus the model of the one client:
#     - tau = 1, a single client, or clients with equal records: delta = 0.
#     - delta(2) = eta^2 sum_k w_k (J_k - J)(g_k - g), exactly where losses are quadratic.
#     - In general delta(tau) = tau (tau - 1) / 2 of that, up to terms in eta^3.
#     - Records drawn from one distribution: E delta(tau) = tau (tau - 1) / 2 eta^2 (K - 1) / N Cov(J, g) in leading
#       order. This is the mean vector; E |delta| is larger than |E delta|.
#
# Corrections: Eq. 39 drops eta^2; Eq. 27 has N_k^2 where N^2 is meant; with the numbers in the text (mu_J = 1000) the
# term in eta^2 is 0.54 times the one in eta^3, not 33.1 times: that follows from mu_J = 1 and from comparing delta(2)
# instead of three times it. So the leading term is not always the largest, see `terms_at_three_steps`. All of it
# assumes smooth losses: ReLU and max pooling have kinks that no Hessian sees, and diverging clients cross them. Then
# delta is larger than the leading term and falls more slowly than eta^2.

Loss = Callable[[Params], Tensor]  # a client's mean loss over its records, a scalar


def descended(start: Params, loss: Loss, rate: float, steps: int) -> dict[str, Tensor]:
    """Parameters after `steps` full-batch steps."""
    params = dict(start)
    for _ in range(steps):
        params = add(params, gradient(loss, params), -rate)
    return params


def divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """delta(steps) itself: every client descends, and so does the one client whose loss is their weighted mean."""
    _check(losses, weights, steps)
    together = weighted_mean([descended(start, loss, rate, steps) for loss in losses], weights)
    return subtract(together, descended(start, mean_loss(losses, weights), rate, steps))


def quadratic_divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """delta(steps) with every loss replaced by its second-order expansion at `start`; exact for quadratic losses."""
    _check(losses, weights, steps)
    moves = [_quadratic_move(start, loss, rate, steps) for loss in losses]
    return subtract(weighted_mean(moves, weights), _quadratic_move(start, mean_loss(losses, weights), rate, steps))


def leading_divergence(
    start: Params, losses: Sequence[Loss], weights: Sequence[float], *, rate: float, steps: int
) -> dict[str, Tensor]:
    """The leading term of delta; J drops out of it, as the deviations g_k - g sum to zero."""
    _check(losses, weights, steps)
    slopes = [gradient(loss, start) for loss in losses]
    mean = weighted_mean(slopes, weights)
    products = [hessian_product(loss, start, subtract(slope, mean)) for loss, slope in zip(losses, slopes, strict=True)]
    return scaled(weighted_mean(products, weights), rate**2 * steps * (steps - 1) / 2)


def expected_divergence(covariance: Tensor, *, rate: float, steps: int, clients: int, examples: int) -> Tensor:
    """E delta in leading order for records of one distribution, any shape.

    `covariance` is Cov(J, g) = E[J g] - E[J] E[g] of one record, `examples` the records of all clients together.
    """
    return covariance * (rate**2 * steps * (steps - 1) / 2 * (clients - 1) / examples)


@dataclass(frozen=True, kw_only=True)
class RecordMoments:
    """Scalars in place of the moments of gradient g and Hessian J of one record, as the paper compares them."""

    slope: float  # mean of g
    curve: float  # mean of J
    curve_slope: float  # Cov(J, g)
    curves: float  # Cov(J, J)
    squared_slope: float  # Cov(J^2, g)


def terms_at_three_steps(moments: RecordMoments, *, rate: float, clients: int, examples: int) -> tuple[float, float]:
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
    """The gradient of a loss at `at`."""
    free = {name: value.detach().requires_grad_() for name, value in at.items()}
    with torch.enable_grad():
        slopes = torch.autograd.grad(loss(free), list(free.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(free, slopes, strict=True))


def hessian_product(loss: Loss, at: Params, along: Params) -> dict[str, Tensor]:
    """The Hessian of a loss at `at`, times the vector `along`."""
    free = {name: value.detach().requires_grad_() for name, value in at.items()}
    values = list(free.values())
    with torch.enable_grad():
        slopes = torch.autograd.grad(loss(free), values, create_graph=True, allow_unused=True, materialize_grads=True)
        inner = torch.stack([(slope * along[name]).sum() for name, slope in zip(free, slopes, strict=True)])
        products = torch.autograd.grad(inner.sum(), values, allow_unused=True, materialize_grads=True)
    return dict(zip(free, products, strict=True))


def mean_loss(losses: Sequence[Loss], weights: Sequence[float]) -> Loss:
    """The loss of one client that holds all records: the weighted mean of the clients' losses."""
    total = sum(weights)
    shares = [weight / total for weight in weights]

    def mean(params: Params) -> Tensor:
        return torch.stack([share * loss(params) for share, loss in zip(shares, losses, strict=True)]).sum()

    return mean


def _quadratic_move(start: Params, loss: Loss, rate: float, steps: int) -> dict[str, Tensor]:
    """The move of a quadratic loss: - eta sum over u < steps of (I - eta J)^u g."""
    slope = gradient(loss, start)
    moved = scaled(slope, -rate)
    for _ in range(steps - 1):
        slope = add(slope, hessian_product(loss, start, slope), -rate)
        moved = add(moved, slope, -rate)
    return moved


def _check(losses: Sequence[Loss], weights: Sequence[float], steps: int) -> None:
    """Refuse zero steps, or weights that do not belong to the losses."""
    check_whole("steps", steps, least=1, usual=3)
    if not losses or len(losses) != len(weights) or min(weights) <= 0:
        raise BadInput(
            "weights",
            expected="one weight above 0 for every client",
            got=f"{len(weights)} weights of {len(losses)} clients",
            remedy="Use the number of records of each client.",
        )
