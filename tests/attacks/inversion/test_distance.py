from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray.attacks.inversion.distance import (
    DISTANCES,
    MATCHES,
    cosine,
    cosine_by_layer,
    distance_named,
    distance_to,
    l1,
    squared_l2,
    squares,
    stacked_distance_to,
)
from fedxray.errors import BadInput

WEIGHTS = {"conv.weight": 1.0, "conv.bias": 0.5, "head.weight": 3.0}
SHAPES = {"conv.weight": (2, 3), "conv.bias": (2,), "head.weight": (4, 1)}


def drawn(seed: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=source, dtype=dtype) for name, shape in SHAPES.items()}


def entries(params: dict[str, Tensor], weights: dict[str, float]) -> list[tuple[float, float]]:
    """Every entry with its weight, as plain numbers."""
    return [(weights[name], entry) for name, value in params.items() for entry in value.flatten().tolist()]


def slow_cosine(left: list[tuple[float, float]], right: list[tuple[float, float]]) -> float:
    inner = sum(weight * a * b for (weight, a), (_, b) in zip(left, right, strict=True))
    ours, theirs = (sum(weight * a * a for weight, a in side) for side in (left, right))
    return 1 - inner / math.sqrt(ours * theirs)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_against_plain_loops(weights: dict[str, float] | None) -> None:
    left, right = drawn(1), drawn(2)
    full = weights or dict.fromkeys(SHAPES, 1.0)
    a, b = entries(left, full), entries(right, full)
    assert float(squared_l2(left, right, weights)) == pytest.approx(
        sum(weight * (x - y) ** 2 for (weight, x), (_, y) in zip(a, b, strict=True))
    )
    assert float(l1(left, right, weights)) == pytest.approx(
        sum(weight * abs(x - y) for (weight, x), (_, y) in zip(a, b, strict=True))
    )
    assert float(cosine(left, right, weights)) == pytest.approx(slow_cosine(a, b))
    alone = dict.fromkeys(SHAPES, 1.0)
    by_layer = sum(
        full[name] * slow_cosine(entries({name: left[name]}, alone), entries({name: right[name]}, alone))
        for name in SHAPES
    )
    assert float(cosine_by_layer(left, right, weights)) == pytest.approx(by_layer)


def test_cosine_is_taken_over_all_tensors_at_once() -> None:
    left = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0])}
    right = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([1.0])}
    assert float(cosine(left, right)) == pytest.approx(1 - 1 / math.sqrt(2))


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_cosine_ignores_the_scale_and_stays_between_zero_and_two(seed: int, scale: float) -> None:
    left, right = drawn(seed), drawn(seed + 1)
    stretched = {name: scale * value for name, value in left.items()}
    assert float(cosine(left, right)) == pytest.approx(float(cosine(stretched, right)), abs=1e-12)
    assert 0 <= float(cosine(left, right)) <= 2
    assert float(cosine(left, stretched)) == pytest.approx(0, abs=1e-12)
    assert float(cosine(left, {name: -value for name, value in left.items()})) == pytest.approx(2)


@pytest.mark.parametrize("name", DISTANCES)
def test_equal_updates_are_at_no_distance(name: str) -> None:
    left = drawn(4)
    assert float(DISTANCES[name](left, left)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_give_numbers_and_finite_gradients(name: str, dtype: torch.dtype) -> None:
    zero = {key: torch.zeros(shape, dtype=dtype) for key, shape in SHAPES.items()}
    for guess, seen in ((zero, drawn(1, dtype)), (drawn(1, dtype), zero), (zero, zero)):
        leaves = {key: value.clone().requires_grad_() for key, value in guess.items()}
        value = DISTANCES[name](leaves, seen)
        found = torch.autograd.grad(value, list(leaves.values()))
        assert value.dtype == dtype and bool(torch.isfinite(value))
        assert all(bool(torch.isfinite(one).all()) for one in found)
    assert float(cosine(zero, drawn(1, dtype))) == 1.0


def test_a_weight_of_zero_leaves_a_tensor_out() -> None:
    left, right = drawn(1), drawn(2)
    other = {**left, "conv.bias": left["conv.bias"] + 7}
    without = {**WEIGHTS, "conv.bias": 0.0}
    for distance in (squared_l2, l1, cosine, cosine_by_layer):
        assert float(distance(left, right, without)) == float(distance(other, right, without))


def test_squares_of_tensors_and_their_slopes_are_those_of_the_whole() -> None:
    left, right = drawn(1, torch.float64), drawn(2, torch.float64)
    leaves = {key: value.clone().requires_grad_() for key, value in left.items()}
    parts = squares(leaves, right)
    assert sum(one.item() for one in parts.values()) == pytest.approx(float(squared_l2(left, right)))
    found = torch.autograd.grad(3 * sum(parts.values()), list(leaves.values()))
    for slope, name in zip(found, leaves, strict=True):
        assert torch.allclose(slope, 6 * (left[name] - right[name]))
    vector = left["conv.weight"].reshape(-1).clone().requires_grad_()
    nothing = torch.zeros_like(vector)
    assert torch.autograd.gradgradcheck(lambda one: squares({"a": one}, {"a": nothing})["a"], vector)


def test_names_must_agree() -> None:
    left = drawn(1)
    with pytest.raises(BadInput, match="seen"):
        cosine(left, {"conv.weight": left["conv.weight"]})
    with pytest.raises(BadInput, match=r"none for conv\.bias"):
        squared_l2(left, drawn(2), {"conv.weight": 1.0, "head.weight": 1.0})


def plain_cosine(guess: dict[str, Tensor], seen: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    def inner(left: dict[str, Tensor], right: dict[str, Tensor]) -> Tensor:
        return torch.stack([weights[name] * (left[name] * right[name]).sum() for name in left]).sum()

    return 1 - inner(guess, seen) / (inner(guess, guess) * inner(seen, seen)).sqrt()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_gradient_of_the_cosine_is_that_of_the_plain_formula(weights: dict[str, float] | None) -> None:
    guess, seen = {key: value.requires_grad_() for key, value in drawn(1).items()}, drawn(2)
    plain = plain_cosine(guess, seen, weights or dict.fromkeys(SHAPES, 1.0))
    expected = torch.autograd.grad(3 * plain, list(guess.values()))
    found = torch.autograd.grad(3 * cosine(guess, seen, weights), list(guess.values()))
    assert all(torch.allclose(one, other, atol=1e-14) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("match", MATCHES)
def test_a_distance_to_an_update_is_the_distance_of_both_and_that_of_both_negated(match: str) -> None:
    guess, seen = drawn(1), drawn(2)
    value = distance_to(seen, match)(guess)
    assert torch.equal(value, distance_named(match, seen)(guess, seen))
    negated = [{key: -value for key, value in side.items()} for side in (seen, guess)]
    assert torch.equal(distance_to(negated[0], match)(negated[1]), value)


@pytest.mark.parametrize("match", DISTANCES)
def test_stacked_guesses_have_the_distances_of_each(match: str) -> None:
    guesses, seen = [drawn(seed) for seed in (1, 2, 3)], drawn(4)
    stacked = {name: torch.stack([guess[name] for guess in guesses]) for name in SHAPES}
    expected = torch.stack([distance_to(seen, match)(guess) for guess in guesses])
    assert torch.allclose(stacked_distance_to(seen, match)(stacked), expected)
    nothing = {name: torch.zeros_like(value).requires_grad_() for name, value in stacked.items()}
    slopes = torch.autograd.grad(stacked_distance_to(seen, match)(nothing).sum(), list(nothing.values()))
    assert all(bool(torch.isfinite(slope).all()) for slope in slopes)
