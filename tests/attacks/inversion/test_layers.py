"""Layers by module and kind, and weights that rise within a kind."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from torch import nn

from fedxray.attacks.inversion.layer_weights import Layer, layers_of, ramp, ramps
from fedxray.models import build
from fedxray.seeds import fork
from tests.models.spaces import images


def resnet() -> nn.Module:
    settings = {"norm": "running", "width": 2, "stem": "cifar", "head_bias": True}
    return build("resnet18", images(10, 3, 8), generator=fork(0), **settings)


def test_a_resnet18_has_the_41_layers_of_the_paper_with_biases_beside_their_weights() -> None:
    model = resnet()
    layers = layers_of(model, dict(model.named_parameters()))
    kinds = [one.kind for one in layers]
    assert len(layers) == 41 and [kinds.count(kind) for kind in ("conv", "norm", "linear")] == [20, 20, 1]
    assert [name for one in layers for name in one.tensors] == [name for name, _ in model.named_parameters()]
    assert layers[-1] == Layer(module="head", kind="linear", tensors=("head.weight", "head.bias"))
    assert layers[1].kind == "norm" and layers[1].tensors == ("stem.1.weight", "stem.1.bias")
    assert len(layers_of(model, ["head.bias"])) == 1  # what is not sent is no layer


def test_the_ramps_of_a_resnet18() -> None:
    model = resnet()
    layers = layers_of(model, dict(model.named_parameters()))
    weights = ramps(layers, {"conv": 39.0, "norm": None, "linear": 7.0})
    by_kind = {kind: [w for w, one in zip(weights, layers, strict=True) if one.kind == kind]
               for kind in ("conv", "norm", "linear")}  # fmt: skip
    assert by_kind["conv"] == pytest.approx([1 + 2 * place for place in range(20)])
    assert by_kind["norm"] == pytest.approx(list(range(1, 21))) and by_kind["linear"] == [7.0]


@given(st.integers(2, 60), st.floats(0, 1000))
def test_a_ramp_starts_at_one_ends_at_the_last_and_is_straight(count: int, last: float) -> None:
    found = ramp(count, last)
    assert len(found) == count and found[0] == 1 and found[-1] == pytest.approx(last, abs=1e-9)
    steps = [after - before for before, after in pairwise(found)]
    assert steps == pytest.approx([(last - 1) / (count - 1)] * (count - 1), abs=1e-9)


@given(st.floats(0, 1000))
def test_a_single_layer_has_the_weight_of_the_last(last: float) -> None:
    assert ramp(1, last) == (last,)


def test_kinds_without_a_ramp_count_once() -> None:
    layers = [Layer(module=str(place), kind=kind, tensors=(f"{place}.weight",))
              for place, kind in enumerate(["other", "conv", "norm", "conv", "other"])]  # fmt: skip
    assert ramps(layers, {"conv": 5.0}) == (1.0, 1.0, 1.0, 5.0, 1.0)
    assert ramps(layers, {"conv": 1.0, "norm": 1.0}) == (1.0,) * 5
