from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.optim import (
    Adam,
    Constant,
    Cosine,
    Exponential,
    Lbfgs,
    Method,
    RiseAndFall,
    Sgd,
    SignedAdam,
    Stairs,
    WarmUp,
    _inverse_hessian_times,
)


def bowl(point: dict[str, Tensor]) -> Tensor:
    """A smooth, badly scaled function of two tensors with its minimum away from zero."""
    a, b = point["a"], point["b"]
    weights = torch.arange(1, a.numel() + 1, dtype=a.dtype).reshape(a.shape)
    return (weights * (a - 1) ** 2).sum() + torch.cosh(b - 0.5).sum() + (a.sum() * b.sum()) ** 2 / 50


def start(dtype: torch.dtype) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    return {
        "a": torch.randn(2, 3, generator=draw, dtype=dtype),
        "b": torch.randn(4, generator=draw, dtype=dtype),
    }


def walk(method: Method, point: dict[str, Tensor], signed: bool = False) -> dict[str, Tensor]:
    memory = method.fresh(point)
    for step in range(method.steps):
        leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
        found = torch.autograd.grad(bowl(leaves), list(leaves.values()))
        point, memory = method.move(point, dict(zip(leaves, found, strict=True)), memory, step)
    return point


def walk_with_torch(
    optimiser: torch.optim.Optimizer, leaves: dict[str, Tensor], steps: int, signed: bool = False
) -> dict[str, Tensor]:
    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = bowl(leaves)
        loss.backward()
        if signed:
            for leaf in leaves.values():
                leaf.grad = leaf.grad.sign()
        return loss

    for _ in range(steps):
        optimiser.step(closure)
    return {name: leaf.detach() for name, leaf in leaves.items()}


def leaves_of(point: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone().requires_grad_() for name, value in point.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [False, True])
def test_adam_is_torchs_adam_to_the_bit(dtype: torch.dtype, signed: bool) -> None:
    leaves = leaves_of(start(dtype))
    method = SignedAdam(steps=40, lr=0.1) if signed else Adam(steps=40, lr=0.1)
    expected = walk_with_torch(torch.optim.Adam(leaves.values(), lr=0.1, foreach=False), leaves, 40, signed)
    found = walk(method, start(dtype))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert all(found[name].dtype == dtype for name in expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd(momentum: float) -> None:
    leaves = leaves_of(start(torch.float64))
    expected = walk_with_torch(torch.optim.SGD(leaves.values(), lr=0.01, momentum=momentum), leaves, 30)
    found = walk(Sgd(steps=30, lr=0.01, momentum=momentum), start(torch.float64))
    assert all(torch.allclose(found[name], expected[name], rtol=1e-12, atol=0) for name in expected)


@pytest.mark.parametrize("history", [3, 100])
def test_lbfgs_takes_the_steps_of_torchs_lbfgs(history: int) -> None:
    leaves = leaves_of(start(torch.float64))
    theirs = torch.optim.LBFGS(
        leaves.values(), lr=0.8, max_iter=1, history_size=history, tolerance_grad=0, tolerance_change=1e-9
    )
    expected = walk_with_torch(theirs, leaves, 12)
    found = walk(Lbfgs(steps=12, lr=0.8, history=history), start(torch.float64))
    assert all(torch.allclose(found[name], expected[name], rtol=1e-9, atol=1e-9) for name in expected)


def test_lbfgs_hands_its_pairs_on_without_copies_and_drops_the_oldest() -> None:
    method, point = Lbfgs(steps=9, lr=0.5, history=3), start(torch.float64)
    memory, past = method.fresh(point), []
    for step in range(6):
        leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
        found = torch.autograd.grad(bowl(leaves), list(leaves.values()))
        point, memory = method.move(point, dict(zip(leaves, found, strict=True)), memory, step)
        past.append(memory)
    names = [{name for name in one if "/" in name} for one in past]
    assert [len(one) for one in names] == [0, 2, 4, 6, 6, 6]
    before, after = past[-2:]
    for what in ("move", "change"):
        assert after[f"{what}/0"] is before[f"{what}/1"] and after[f"{what}/1"] is before[f"{what}/2"]
    torch.testing.assert_close(after["move/2"], (after["point"] - before["point"])[0])
    torch.testing.assert_close(after["change/2"], (after["gradient"] - before["gradient"])[0])


def test_lbfgs_against_the_formula_with_whole_matrices() -> None:
    draw = torch.Generator().manual_seed(0)
    moves = torch.randn(4, 6, generator=draw, dtype=torch.float64)
    spread = torch.randn(6, 6, generator=draw, dtype=torch.float64)
    changes = moves @ (spread @ spread.T + torch.eye(6, dtype=torch.float64))
    slope = torch.randn(6, generator=draw, dtype=torch.float64)
    identity = torch.eye(6, dtype=torch.float64)
    inverse = identity * (moves[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for s, y in zip(moves, changes, strict=True):
        rho = 1 / (s @ y)
        inverse = (identity - rho * s.outer(y)) @ inverse @ (identity - rho * y.outer(s)) + rho * s.outer(s)
    found = _inverse_hessian_times(slope, list(zip(moves, changes, strict=True)))
    torch.testing.assert_close(found, inverse @ slope)
    assert torch.equal(_inverse_hessian_times(slope, []), slope)


def test_lbfgs_goes_no_farther_than_its_reach() -> None:
    before = start(torch.float64)
    slope = {name: 100 * value for name, value in before.items()}
    for reach in (0.01, float("inf")):
        method = Lbfgs(steps=9, reach=reach)
        memory = method.fresh(before) | {"point": torch.zeros(0, 10, dtype=torch.float64)}
        after, _ = method.move(before, slope, memory, 3)
        moved = {name: before[name] - value for name, value in after.items()}
        farthest = max(float(value.abs().max()) for value in moved.values())
        full = max(float(value.abs().max()) for value in slope.values())
        assert farthest == pytest.approx(min(reach, full))
        for name, value in moved.items():
            torch.testing.assert_close(value, slope[name] * (farthest / full))


def test_lbfgs_needs_far_fewer_steps_than_descent() -> None:
    there = walk(Lbfgs(steps=30), start(torch.float64))
    assert bowl(there) < bowl(walk(Sgd(steps=30, lr=0.05), start(torch.float64)))


def test_nothing_given_to_a_method_is_changed() -> None:
    for method in (
        Adam(steps=1, lr=0.1),
        SignedAdam(steps=1, lr=0.1),
        Sgd(steps=1, lr=0.1, momentum=0.5),
        Lbfgs(steps=1),
    ):
        point, gradient = start(torch.float32), start(torch.float32)
        memory = method.fresh(point)
        before = {name: value.clone() for name, value in memory.items()}
        method.move(point, gradient, memory, 0)
        assert all(torch.equal(point[name], value) for name, value in start(torch.float32).items())
        assert all(torch.equal(memory[name], value) for name, value in before.items())


def test_the_decays_by_hand() -> None:
    assert Constant().factor(7, 8) == 1.0
    stairs = [Stairs().factor(step, 8) for step in range(8)]
    assert stairs == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001])
    assert [Cosine().factor(step, 4) for step in (0, 2, 4)] == pytest.approx([1, 0.5, 0])
    assert Cosine(end=0.1).factor(4, 4) == pytest.approx(0.1)
    assert Exponential(by=0.995, every=10).factor(25, 400) == pytest.approx(0.995**2.5)
    assert [RiseAndFall().factor(step, 5) for step in range(5)] == [1, 2, 3, 2, 1]
    assert [RiseAndFall().factor(step, 4) for step in range(5)] == [1, 2, 2, 1, 0]
    warm = WarmUp(over=4, then=Cosine())
    assert [warm.factor(step, 100) for step in (0, 3)] == pytest.approx(
        [0.25, (1 + math.cos(0.03 * math.pi)) / 2]
    )


def test_a_decay_shrinks_the_step() -> None:
    point, gradient = {"a": torch.zeros(1)}, {"a": torch.ones(1)}
    method = Sgd(steps=8, lr=1.0, decay=Stairs())
    moved, _ = method.move(point, gradient, method.fresh(point), 3)
    assert float(moved["a"]) == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("steps", "lr"), [(0, 0.1), (-1, 0.1), (1.5, 0.1), (True, 0.1), (3, 0.0), (3, math.inf), (3, math.nan)]
)
def test_senseless_settings_are_refused(steps: int, lr: float) -> None:
    for method in (Adam, SignedAdam, Sgd, Lbfgs):
        with pytest.raises(BadInput, match=r"steps|lr"):
            method(steps=steps, lr=lr)
    with pytest.raises(BadInput, match="history"):
        Lbfgs(steps=3, history=0)
    with pytest.raises(BadInput, match="reach"):
        Lbfgs(steps=3, reach=0.0)
