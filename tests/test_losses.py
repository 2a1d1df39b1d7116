"""What a guessed model says about records, whole and in pieces."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedxray.losses import cross_entropy, example_loss, losses, outputs, squared_error
from fedxray.params import buffers_of, parameters_of


def test_given_parameters_replace_those_of_the_model() -> None:
    model = nn.Linear(2, 1)
    params = {"weight": torch.tensor([[1.0, -1.0]]), "bias": torch.tensor([0.5])}
    before = model.weight.detach().clone()
    x = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    assert outputs(model, params, {}, x).tolist() == [[2.5], [-1.5]]
    assert losses(model, params, {}, x, torch.tensor([2.0, 0.5]), squared_error).tolist() == [0.25, 4.0]
    assert torch.equal(model.weight, before)


def test_dropout_is_off_and_statistics_are_those_given() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Dropout(0.9))
    buffers = {**buffers_of(model), "0.running_mean": torch.tensor([3.0]), "0.running_var": torch.tensor([4.0])}
    x = torch.tensor([[3.0], [7.0]])
    found = outputs(model, {}, buffers, x)
    assert torch.allclose(found, torch.tensor([[0.0], [2.0]]), atol=1e-4)
    assert model.training and model[0].running_mean.tolist() == [0.0]  # type: ignore[operator]


@pytest.mark.parametrize("entries", [1, 7, 10**9])
def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    model, x = nn.Linear(3, 2), torch.randn(11, 3)
    with torch.no_grad():
        whole = model(x)
    monkeypatch.setattr("fedxray.losses.ENTRIES_AT_ONCE", entries)
    found = outputs(model, parameters_of(model), {}, x)
    assert torch.allclose(found, whole) and not found.requires_grad


def test_the_loss_by_target_is_that_of_classes_probabilities_or_numbers() -> None:
    output, classes = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    shares = torch.softmax(torch.randn(5, 3), 1)
    auto = example_loss("auto")
    assert torch.equal(auto(output, classes), cross_entropy(output, classes))
    assert torch.equal(auto(output, shares), cross_entropy(output, shares))
    assert torch.equal(auto(output[:, :1], shares[:, 0]), squared_error(output[:, :1], shares[:, 0]))
