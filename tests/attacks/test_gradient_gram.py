"""Inner products of gradients by layers and by blocks, against gradients that are formed one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedxray.attacks import record_gradients
from fedxray.attacks.record_gradients import gradients_at
from fedxray.losses import example_loss
from fedxray.params import Params, each, flatten, parameters_of
from fedxray.seeds import fork, normal_like
from tests.attacks.test_gradient_products import WIDTH, networks


def one_by_one(model: nn.Module, loss: str, params: Params, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of each record by plain differentiation [records, parameters]."""
    rows = []
    for place in range(len(x)):
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        output = torch.func.functional_call(model, leaves, (x[place : place + 1],))
        value = example_loss(loss)(output, y[place : place + 1]).sum()
        rows.append(torch.cat([slope.flatten() for slope in torch.autograd.grad(value, list(leaves.values()))]))
    return torch.stack(rows)


@pytest.mark.parametrize("held", [0, 10_000])
@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("name", list(networks(1)))
def test_products_equal_those_of_gradients_formed_one_by_one(
    name: str, classes: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, draw = networks(classes or 1)[name].double(), fork(0, "models")
    monkeypatch.setattr(record_gradients, "ENTRIES_OF_BLOCK", 150)  # several blocks
    monkeypatch.setattr(record_gradients, "ENTRIES_HELD", held)  # 0: convolutions in blocks
    monkeypatch.setattr(record_gradients, "RECORDS_AT_ONCE", 4)
    x = normal_like(torch.empty(6, WIDTH, dtype=torch.float64), draw)
    y = torch.arange(6) % classes if classes else x[:, 0]
    loss = "cross-entropy" if classes else "mse"
    left, right, direction = (each(lambda value: normal_like(value, draw), parameters_of(model)) for _ in range(3))
    at = gradients_at(model, loss, x, y)
    slow = [one_by_one(model, loss, params, x, y) for params in (left, right)]
    assert torch.allclose(at(left, {}).inner(at(right, {})), slow[0] @ slow[1].T, rtol=1e-9)
    assert torch.allclose(at(left, {}).inner(at(left, {})), slow[0] @ slow[0].T, rtol=1e-9)
    assert torch.allclose(at(right, {}).along(direction), slow[1] @ flatten(direction), rtol=1e-9)


def test_products_of_convolutions_equal_those_of_gradients_formed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    ).double().eval()  # fmt: skip
    monkeypatch.setattr(record_gradients, "RECORDS_AT_ONCE", 4)
    monkeypatch.setattr(record_gradients, "example_gradients", None)  # no whole gradient is formed
    x, y = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.arange(6) % 3
    params, direction = parameters_of(model), each(torch.randn_like, parameters_of(model))
    found, slow = (
        gradients_at(model, "cross-entropy", x, y)(params, {}),
        one_by_one(model, "cross-entropy", params, x, y),
    )
    assert torch.allclose(found.inner(found), slow @ slow.T, rtol=1e-9)
    assert torch.allclose(found.along(direction), slow @ flatten(direction), rtol=1e-9)
