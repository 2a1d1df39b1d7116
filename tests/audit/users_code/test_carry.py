"""Views on their way to another process and back: the network keeps its weights, types, modes and frozen parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedxray.adversary.view import View
from fedxray.audit.own_code.carry import Packed, Parts, Unpacked
from fedxray.audit.plan.schema import AttackPart, DefencePart, ModelPart
from fedxray.params import Params, each, parameters_of
from tests.attacks.views import view_of_update


def made() -> nn.Sequential:
    """The network of the plan as its factory returns it: all of it trained, in train mode."""
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2))


def sent(dtype: torch.dtype) -> nn.Sequential:
    """A network with one frozen parameter, mixed modes and statistics of its own."""
    model = made().to(dtype)
    model(torch.arange(12.0, dtype=dtype).reshape(3, 4))  # moves the running statistics
    model.eval()
    model[1].train()
    model.get_parameter("0.bias").requires_grad_(False)
    return model


def there_and_back(view: View, folder: Path, channel: Any = None) -> View:
    packed = Packed()
    plain = json.loads(json.dumps(packed.view(view)))

    def fetch(number: int) -> Params:
        return dict(packed.late[number])

    parts = Parts(
        attack=AttackPart(name="last-returned"),
        model=ModelPart(factory="tests.audit.users_code.test_carry:made"),
        defence=DefencePart(name="none"),
        folder=folder,
    )
    tensors = {name: value.detach().clone() for name, value in packed.tensors.items()}
    return Unpacked(tensors, fetch, parts).view(plain, channel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_network_is_the_same_on_the_other_side(dtype: torch.dtype, tmp_path: Path) -> None:
    model = sent(dtype)
    update = each(torch.ones_like, parameters_of(model))
    view = view_of_update(model, update, shape=(4,), classes=2, examples=3)
    back = there_and_back(view, tmp_path)
    assert back.model is not model
    assert [module.training for module in back.model.modules()] == [False, False, True, False, False]
    trained = {name: value.requires_grad for name, value in back.model.named_parameters()}
    assert trained == {name: name != "0.bias" for name, _ in model.named_parameters()}
    state, wanted = back.model.state_dict(), model.state_dict()
    assert list(state) == list(wanted)
    for name, value in wanted.items():
        assert state[name].dtype == value.dtype and torch.equal(state[name], value), name
    assert int(state["1.num_batches_tracked"]) == 1
    assert isinstance(back.model.get_parameter("0.weight"), nn.Parameter)


def test_the_rest_of_the_view_is_the_same(tmp_path: Path) -> None:
    model = sent(torch.float32)
    update = each(torch.ones_like, parameters_of(model))
    view = view_of_update(model, update, shape=(4,), classes=2, examples=3, rounds=2)
    back = there_and_back(view, tmp_path, channel="not used")
    assert back.channel is None  # the view had none
    assert (back.role, back.target, back.space, back.loss) == (view.role, view.target, view.space, view.loss)
    assert back.grants == view.grants
    for ours, theirs in zip(back.observations, view.observations, strict=True):
        assert repr(ours) == repr(theirs)
        for one, other in ((ours.update, theirs.update), (ours.buffers, theirs.buffers)):
            assert list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)
