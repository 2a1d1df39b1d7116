"""Layers with the largest relative errors of mean and variance, and errors relative to nothing."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from fedxray.attacks.inversion.layer_weights import (
    Layer,
    aim_moments,
    furthest,
    largest,
    layers_of,
    moments,
    relative_errors,
)
from fedxray.params import parameters_of
from tests.attacks.inversion.clients import examples, small_net

LAYERS = tuple(Layer(module=name, kind="conv", tensors=(f"{name}.weight", f"{name}.bias")) for name in "abcde")


def update(seed: int = 0) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return {name: torch.randn(5, generator=source) + 0.5 for one in LAYERS for name in one.tensors}


def by_hand(guess: dict[str, Tensor], seen: dict[str, Tensor], mean: int, variance: int) -> set[int]:
    errors: list[tuple[float, float]] = []
    for one in LAYERS:
        mine, theirs = ([float(v) for name in one.tensors for v in params[name]] for params in (guess, seen))
        errors.append((
            abs(statistics.fmean(mine) - statistics.fmean(theirs)) / abs(statistics.fmean(theirs)),
            abs(statistics.pvariance(mine) - statistics.pvariance(theirs)) / statistics.pvariance(theirs),
        ))  # fmt: skip
    order = [sorted(range(len(LAYERS)), key=lambda place, w=which: -errors[place][w]) for which in (0, 1)]
    return set(order[0][:mean]) & set(order[1][:variance])


@pytest.mark.parametrize("seed", range(6))
def test_the_layers_by_hand(seed: int) -> None:
    guess, seen = update(seed), update(seed + 50)
    aim = aim_moments(seen, seen, LAYERS)
    assert not aim.no_mean.any() and not aim.no_variance.any()
    found = furthest(guess, aim, LAYERS, mean_share=0.6, variance_share=0.5)
    assert found == by_hand(guess, seen, 3, 3)  # 5 * 0.6, and 5 * 0.5 rounded up


@given(st.integers(1, 60), st.floats(0, 1))
def test_as_many_are_taken_as_the_share_rounded_up(count: int, share: float) -> None:
    errors = torch.randn(count, generator=torch.Generator().manual_seed(count))
    found = largest(errors, share)
    assert len(found) == math.ceil(round(share * count, 9))
    if found and len(found) < count:
        left = [place for place in range(count) if place not in found]
        assert errors[list(found)].min() >= errors[left].max()


def test_an_error_that_is_no_number_is_the_largest_and_of_equal_ones_the_first_is() -> None:
    assert largest(torch.tensor([2.0, math.nan, 9.0, 1.0]), 0.25) == {1}
    assert largest(torch.ones(40), 0.1) == set(range(4))


def test_the_set_sizes_of_the_paper() -> None:
    errors = torch.arange(41.0)
    assert [len(largest(errors, share)) for share in (0.24, 0.11, 0.31, 0.40)] == [10, 5, 13, 17]
    assert [len(largest(errors, share)) for share in (0.07, 0.13, 0.01, 0.33)] == [3, 6, 1, 14]
    assert largest(errors, 0.0) == frozenset()


def test_without_a_share_nothing_is_looked_at() -> None:
    aim = aim_moments(update(1), update(1), LAYERS)
    for mean, variance in ((0.0, 1.0), (1.0, 0.0)):
        assert furthest(update(), aim, LAYERS, mean_share=mean, variance_share=variance) == frozenset()
    assert furthest(update(), aim, LAYERS, mean_share=1.0, variance_share=1.0) == frozenset(range(5))


def head_update(rate: float = 1e-3) -> tuple[nn.Module, dict[str, Tensor], tuple[Layer, ...]]:
    model, (x, y) = small_net(), examples(6)
    before = parameters_of(model)
    nn.functional.cross_entropy(model(x), y).backward()
    after = {name: value.detach() - rate * value.grad for name, value in model.named_parameters()}  # type: ignore[operator]
    sent = {name: after[name] - before[name] for name in before}
    return model, sent, layers_of(model, sent)


def test_the_update_of_a_softmax_head_adds_up_to_zero() -> None:
    _, sent, layers = head_update()
    head = torch.cat([sent[name].reshape(-1) for name in layers[-1].tensors])
    assert abs(float(head.double().sum())) < 1e-3 * float(head.abs().mean())  # of 147 entries


def test_a_mean_that_is_rounding_is_told_from_one_that_is_small() -> None:
    model, sent, layers = head_update()
    aim = aim_moments(sent, parameters_of(model), layers)
    assert aim.no_mean.tolist() == [False, True] and not aim.no_variance.any()
    shifted = {name: value + 1e-3 * value.abs().mean() for name, value in sent.items()}
    assert not aim_moments(shifted, parameters_of(model), layers).no_mean.any()


def test_an_error_relative_to_nothing_counts_as_asked() -> None:
    model, sent, layers = head_update()
    aim = aim_moments(sent, parameters_of(model), layers)
    guess = {name: value * 1.5 for name, value in sent.items()}
    share = {"mean_share": 0.5, "variance_share": 1.0}
    assert furthest(guess, aim, layers, undefined="first", **share) == {1}
    assert furthest(guess, aim, layers, undefined="last", **share) == {0}


def test_entries_that_differ_by_rounding_alone_have_no_variance() -> None:
    seen = update() | {"c.weight": torch.full((5,), 0.3), "c.bias": torch.full((5,), 0.3 + 3e-8)}
    assert float(moments(seen, LAYERS)[1][2]) > 0
    assert aim_moments(seen, seen, LAYERS).no_variance.tolist() == [place == 2 for place in range(5)]


def test_layers_without_any_change_never_make_a_number_that_is_none() -> None:
    dead = {name: torch.zeros_like(value) for name, value in update().items()}
    aim = aim_moments(dead, update(), LAYERS)
    assert aim.no_mean.all() and aim.no_variance.all()
    found = moments(update(), LAYERS)
    for undefined, value in (("last", -1.0), ("first", math.inf)):
        errors = relative_errors(found[0], aim.mean, aim.no_mean, undefined)  # type: ignore[arg-type]
        assert errors.tolist() == [value] * 5


def test_a_layer_of_one_entry_has_no_variance() -> None:
    layers = (Layer(module="z", kind="norm", tensors=("z.weight",)), *LAYERS)
    seen = {"z.weight": torch.tensor([0.3]), **update()}
    aim = aim_moments(seen, seen, layers)
    assert aim.no_variance.tolist() == [True] + [False] * 5 and not aim.no_mean.any()
