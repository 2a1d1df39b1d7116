"""The algebra of named parameters, against plain vectors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from fedxray import params
from fedxray.errors import BadInput
from fedxray.seeds import fork


def some(seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    source = fork(seed, "some")
    shapes = {"first.weight": (3, 4), "first.bias": (3,), "scale": ()}
    return {name: torch.randn(shape, generator=source, dtype=dtype) for name, shape in shapes.items()}


def vector(value: dict[str, Tensor]) -> Tensor:
    return torch.cat([one.flatten() for one in value.values()])


SEEDS = st.integers(0, 50)


@given(left=SEEDS, right=SEEDS, scale=st.floats(-3, 3))
def test_algebra_is_that_of_vectors(left: int, right: int, scale: float) -> None:
    a, b = some(left), some(right)
    u, v = vector(a), vector(b)
    assert torch.equal(vector(params.add(a, b, scale)), u + scale * v)
    assert torch.equal(vector(params.subtract(a, b)), u - v)
    assert torch.equal(vector(params.scaled(a, scale)), scale * u)
    torch.testing.assert_close(params.dot(a, b), u @ v)
    torch.testing.assert_close(params.norm(a), u.norm())
    assert torch.equal(params.flatten(a), u)
    assert params.element_count(a) == u.numel()


def test_nothing_is_changed_in_place() -> None:
    a, b = some(0), some(1)
    before = vector(a).clone(), vector(b).clone()
    params.add(a, b), params.subtract(a, b), params.scaled(a, 2.0), params.weighted_mean([a, b], [1, 2])
    params.stack([a, b]), params.flatten(a), params.each(torch.neg, a)
    assert torch.equal(vector(a), before[0]) and torch.equal(vector(b), before[1])


@given(seed=SEEDS)
def test_flatten_and_back(seed: int) -> None:
    value = some(seed)
    back = params.unflatten(params.flatten(value), value)
    assert list(back) == list(value)
    assert all(torch.equal(back[name], one) and back[name].shape == one.shape for name, one in value.items())


def test_stack_and_back() -> None:
    items = [some(seed) for seed in range(3)]
    stacked = params.stack(items)
    assert stacked["first.weight"].shape == (3, 3, 4) and stacked["scale"].shape == (3,)
    for before, after in zip(items, params.unstack(stacked), strict=True):
        assert all(torch.equal(after[name], value) for name, value in before.items())


@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_weighted_mean_equals_a_loop(weights: list[float]) -> None:
    items = [some(seed) for seed in range(len(weights))]
    mean = sum(weight * vector(item) for weight, item in zip(weights, items, strict=True)) / sum(weights)
    torch.testing.assert_close(vector(params.weighted_mean(items, weights)), mean)


@given(count=st.integers(0, 2**40), weights=st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_a_counter_that_all_agree_on_stays(count: int, weights: list[int]) -> None:
    """A mean in short floats would lose one batch now and then."""
    mean = params.weighted_mean([{"count": torch.tensor(count)}] * len(weights), weights)
    assert mean["count"].dtype == torch.int64 and int(mean["count"]) == count


def test_counters_are_averaged_to_the_nearest() -> None:
    items = [{"count": torch.tensor(value)} for value in (2, 3)]
    assert int(params.weighted_mean(items, [1, 2])["count"]) == 3
    assert int(params.weighted_mean(items, [2, 1])["count"]) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_mean_keeps_the_type(dtype: torch.dtype) -> None:
    mean = params.weighted_mean([some(0, torch.float64), some(1)], [1, 3])
    short = params.weighted_mean([params.each(lambda v: v.to(dtype), some(s)) for s in (0, 1)], [1, 3])
    for name, value in short.items():
        assert value.dtype == dtype
        torch.testing.assert_close(value.double(), mean[name], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("weights", [[], [0.0], [0, 0]])
def test_weights_that_make_no_mean(weights: list[float]) -> None:
    with pytest.raises(BadInput, match="positive weight"):
        params.weighted_mean([some(0)] * len(weights), weights)


def test_trainable_parameters_and_buffers_are_copies() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].bias.requires_grad_(False)
    found, buffers = params.parameters_of(model), params.buffers_of(model)
    assert list(found) == ["0.weight", "1.weight", "1.bias"]
    assert list(buffers) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert not any(value.requires_grad for value in found.values())
    found["0.weight"] += 1
    buffers["1.running_mean"] += 1
    assert not torch.equal(found["0.weight"], model[0].weight) and float(model[1].running_mean.abs().sum()) == 0


def test_shapes_and_finiteness() -> None:
    a = some(0)
    assert params.same_shapes(a, some(1)) and params.is_finite(a)
    assert not params.same_shapes(a, {**a, "more": torch.zeros(1)})
    assert not params.same_shapes(a, {**a, "scale": torch.zeros(1)})
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert not params.is_finite({**a, "scale": torch.tensor(bad)})
    assert params.is_finite({"count": torch.tensor(3)})
