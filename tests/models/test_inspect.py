"""Kinds of layers, the head, BatchNorm and dropout of any network."""

from __future__ import annotations

import pytest
from torch import nn

from fedxray.errors import BadInput
from fedxray.models import build
from fedxray.models.inspect import Head, batch_norm_layers, has_batch_norm, head, layer_kinds
from fedxray.seeds import fork
from tests.models.spaces import images, table


def test_layer_kinds_of_a_batch_norm_resnet() -> None:
    model = build("resnet18", images(10, 3, 8), generator=fork(0), norm="batch", width=2, stem="cifar", head_bias=True)
    kinds = list(layer_kinds(model).values())
    assert [kinds.count(kind) for kind in ("conv", "norm", "linear", "other")] == [20, 40, 2, 0]
    assert layer_kinds(model).keys() == dict(model.named_parameters()).keys()


def test_layer_kinds_of_odd_layers() -> None:
    model = nn.ModuleDict(
        {
            "group": nn.GroupNorm(1, 2),
            "layer": nn.LayerNorm(2),
            "instance": nn.InstanceNorm1d(2, affine=True),
            "turned": nn.ConvTranspose1d(1, 1, 1, bias=False),
            "words": nn.Embedding(2, 2),
            "free": nn.ParameterList([nn.Parameter(nn.Linear(1, 1).weight.detach())]),
        }
    )
    kinds = {name.partition(".")[0]: kind for name, kind in layer_kinds(model).items()}
    assert kinds == {
        "group": "norm",
        "layer": "norm",
        "instance": "norm",
        "turned": "conv",
        "words": "other",
        "free": "other",
    }


def test_layer_kinds_of_a_bare_layer() -> None:
    assert layer_kinds(nn.Linear(2, 1)) == {"weight": "linear", "bias": "linear"}


def test_head() -> None:
    assert head(build("mlp", table(3), generator=fork(0))) == Head(
        weight="head.weight", bias="head.bias", module="head"
    )
    assert head(build("lenet", images(3, 1, 8), generator=fork(0))).bias is None
    assert head(nn.Linear(2, 1)) == Head(weight="weight", bias="bias", module="")
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU()))
    assert head(model) == Head(weight="1.0.weight", bias=None, module="1.0")
    with pytest.raises(BadInput, match=r"nn\.Linear"):
        head(nn.Conv2d(1, 1, 1))


def test_batch_norm() -> None:
    model = build("mlp", table(3), generator=fork(0), hidden=[4, 5], norm="batch")
    assert list(batch_norm_layers(model)) == ["norm1", "norm2"]
    assert batch_norm_layers(model)["norm2"] is model.get_submodule("norm2")
    assert has_batch_norm(model)
    assert not has_batch_norm(nn.Sequential(nn.GroupNorm(1, 2), nn.InstanceNorm1d(2, affine=True)))
