"""A client's affine map against its real steps, Lemma 1 with its exceptions, and Eq. 26 against simulations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.seeds import fork
from fedxray.theory import (
    error_order,
    forward_bound_holds,
    forward_error_bound,
    local_steps,
    map_fixes_optimum,
    messages_needed,
    noise_variance,
    update_eigenvalues,
    update_matrix,
)

DOUBLE = torch.float64


def draw_client(examples: int = 40, parameters: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = fork(seed, "client")
    x = torch.randn(examples, parameters, generator=draw, dtype=DOUBLE)
    y = torch.randn(examples, generator=draw, dtype=DOUBLE)
    return x, y, torch.linalg.lstsq(x, y[:, None]).solution[:, 0]


def steps_of(x: Tensor, y: Tensor, theta: Tensor, rate: float, steps: int) -> Tensor:
    """Plain gradient steps on |x theta - y|^2 / m."""
    for _ in range(steps):
        theta = theta - rate * 2 / len(x) * x.T @ (x @ theta - y)
    return theta


@pytest.mark.parametrize("steps", [1, 3, 10])
@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_the_map_is_the_clients_work(steps: int, rate: float) -> None:
    x, y, optimum = draw_client()
    theta = torch.randn(4, generator=fork(1), dtype=DOUBLE)
    matrix = update_matrix(x, learning_rate=rate, steps=steps)
    left = theta - matrix @ (theta - optimum)
    assert torch.allclose(left, steps_of(x, y, theta, rate, steps), atol=1e-12)
    assert torch.allclose(
        torch.linalg.eigvalsh(matrix), update_eigenvalues(x, learning_rate=rate, steps=steps).sort().values, atol=1e-12
    )


def test_lemma_1_fails_where_a_step_turns_over_exactly() -> None:
    """With an eigenvalue of 2 eta H / m equal to 2 an even number of steps leaves that direction where it was."""
    x = torch.diag(torch.tensor([1.0, 0.5], dtype=DOUBLE)) * 2**0.5  # m = 2: 2 eta H / m has eigenvalues 2 eta, eta/2
    assert map_fixes_optimum(x, learning_rate=1.0, steps=3)
    assert not map_fixes_optimum(x, learning_rate=1.0, steps=2)
    assert not map_fixes_optimum(x, learning_rate=0.4, steps=0)
    assert map_fixes_optimum(x, learning_rate=0.99, steps=2)
    start = torch.tensor([5.0, 1.0], dtype=DOUBLE)
    assert steps_of(x, torch.zeros(2, dtype=DOUBLE), start, 1.0, 2)[0] == pytest.approx(5.0)


def test_counts() -> None:
    assert messages_needed(9) == 10
    assert local_steps(100, 32, 3) == 12
    assert noise_variance(learning_rate=0.1, sigma=2.0, steps=4) == pytest.approx(0.16)


def fitted(matrix: Tensor, optimum: Tensor, noise: float, messages: int, seed: int) -> tuple[float, float]:
    """The error of the W-form with every row on messages of its own, and the least eigenvalue of all designs."""
    d, draw = len(optimum), fork(seed, "messages", messages)
    each, rows, values, least = messages // len(optimum), [], [], float("inf")
    for row in range(d):
        starts = torch.randn(each, d, generator=draw, dtype=DOUBLE)
        design = torch.cat([starts, -torch.ones(each, 1, dtype=DOUBLE)], 1)
        reply = starts @ matrix[row] - (matrix @ optimum)[row]
        reply = reply + noise * torch.randn(each, generator=draw, dtype=DOUBLE)
        found = torch.linalg.lstsq(design, reply[:, None]).solution[:, 0]
        rows.append(found[:-1])
        values.append(found[-1])
        least = min(least, float(torch.linalg.eigvalsh(design.T @ design / each)[0]))
    guess = torch.linalg.solve(torch.stack(rows), torch.stack(values))
    return float((guess - optimum).norm()), least


def test_eq_26_holds_and_the_error_halves_with_four_times_the_messages() -> None:
    x, _, optimum = draw_client(seed=3)
    rate, sigma, steps = 0.05, 0.5, 8
    matrix = update_matrix(x, learning_rate=rate, steps=steps)
    smallest = float(update_eigenvalues(x, learning_rate=rate, steps=steps).min())
    noise = noise_variance(learning_rate=rate, sigma=sigma, steps=steps) ** 0.5
    means = []
    for messages in (2000, 8000):
        errors, held = [], 0
        for seed in range(30):
            error, least = fitted(matrix, optimum, noise, messages, seed)
            facts = {
                "learning_rate": rate, "sigma": sigma, "parameters": 4, "steps": steps, "messages": messages,
                "least_eigenvalue": least, "least_update": smallest, "delta": 0.05,
            }  # fmt: skip
            assert forward_bound_holds(**facts)
            held += error <= forward_error_bound(**facts, optimum_norm=float(optimum.norm()))
            errors.append(error)
        assert held == 30
        means.append(sum(errors) / 30)
    assert means[0] / means[1] == pytest.approx(2.0, rel=0.25)


def test_the_bounds_scale_as_the_papers_say() -> None:
    facts = {
        "learning_rate": 0.01, "sigma": 1.0, "parameters": 5, "steps": 4, "messages": 100,
        "least_eigenvalue": 0.5, "delta": 0.05,
    }  # fmt: skip
    base = error_order(**facts)
    assert error_order(**{**facts, "messages": 400}) == pytest.approx(base / 2)
    assert error_order(**{**facts, "learning_rate": 0.02}) == pytest.approx(2 * base)
    assert error_order(**{**facts, "steps": 16}) == pytest.approx(2 * base)
    more = {"least_update": 0.1, "optimum_norm": 3.0}
    forward = forward_error_bound(**facts, **more)
    assert forward_error_bound(**{**facts, "messages": 400}, **more) == pytest.approx(forward / 2)
    # by hand: 2 eta sigma d / l (|o| + 1) sqrt(steps (d + 1 + ln(2 d / delta)) / (n lambda))
    assert forward == pytest.approx(2 * 0.01 * 5 / 0.1 * 4 * (4 * (6 + 5.298317) / 50) ** 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"messages": 5}, "messages"), ({"least_eigenvalue": 0.0}, "eigenvalue"), ({"delta": 1.0}, "probability")],
)
def test_arguments_outside_the_bounds_are_refused(change: dict[str, float], word: str) -> None:
    facts = {
        "learning_rate": 0.01, "sigma": 1.0, "parameters": 5, "steps": 4, "messages": 100,
        "least_eigenvalue": 0.5, "delta": 0.05,
    }  # fmt: skip
    with pytest.raises(BadInput, match=word):
        error_order(**{**facts, **change})  # type: ignore[arg-type]
