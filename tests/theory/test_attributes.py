"""The accuracy bound against attacks on random models, and when it is tight."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from fedxray.adversary.view import Grants, Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.data.dataset import Column, Space
from fedxray.errors import BadInput
from fedxray.seeds import fork
from fedxray.theory import accuracy_bound, nearer_value

DOUBLE = torch.float64
VALUES = st.tuples(st.floats(-3, 3), st.floats(0.1, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def guessed_by_loss(rest: torch.Tensor, weight: float, low: float, high: float) -> torch.Tensor:
    """The slow independent version: the value with the smaller squared error, record by record."""
    found = []
    for value in rest.tolist():
        at_low, at_high = (value - weight * low) ** 2, (value - weight * high) ** 2
        found.append(low if at_low < at_high else high)
    return torch.tensor(found, dtype=rest.dtype)


@given(
    seed=st.integers(0, 10_000),
    weight=st.floats(-4, 4).filter(lambda value: abs(value) > 0.05),
    values=VALUES,
    spread=st.floats(0.01, 3),
)
def test_no_model_does_worse_than_the_bound(
    seed: int, weight: float, values: tuple[float, float], spread: float
) -> None:
    low, high = values
    draw = fork(seed, "bound")
    s = torch.tensor([low, high], dtype=DOUBLE)[torch.randint(2, (60,), generator=draw)]
    residual = spread * torch.randn(60, generator=draw, dtype=DOUBLE)
    rest = weight * s + residual  # the target minus what the public columns predict
    accuracy = float((guessed_by_loss(rest, weight, low, high) == s).double().mean())
    error = float(residual.square().mean())
    assert accuracy >= accuracy_bound(error, weight, low=low, high=high) - 1e-12


@given(seed=st.integers(0, 10_000), weight=st.floats(-4, 4).filter(lambda value: abs(value) > 0.05), values=VALUES)
def test_solving_then_rounding_is_comparing_losses(seed: int, weight: float, values: tuple[float, float]) -> None:
    low, high = values
    rest = 3 * torch.randn(50, generator=fork(seed, "rule"), dtype=DOUBLE)
    middle = (rest - weight * (low + high) / 2).abs() > 1e-9  # ties may go either way
    by_rule, by_loss = (nearer_value(rest, weight, low=low, high=high), guessed_by_loss(rest, weight, low, high))
    assert torch.equal(by_rule[middle], by_loss[middle])


def test_it_is_tight() -> None:
    """Residuals just below half the effect: nothing is wrong though the bound promises nothing; just above: a share."""
    s = torch.tensor([0.0, 1.0] * 10, dtype=DOUBLE)
    below = 2.0 * s + 0.999 * torch.where(s == 0, 1.0, -1.0)
    assert torch.equal(nearer_value(below, 2.0), s)
    above = 2.0 * s + torch.where(torch.arange(20) < 5, 1.0001 * torch.where(s == 0, 1.0, -1.0), 0.0)
    wrong = float((nearer_value(above, 2.0) != s).double().mean())
    assert wrong == 0.25
    error = float((above - 2.0 * s).square().mean())
    assert 0.7499 < accuracy_bound(error, 2.0) < 0.75


def test_by_hand() -> None:
    assert accuracy_bound(0.05, 2.0) == pytest.approx(0.95)
    assert accuracy_bound(0.05, 1.0, low=-1.0, high=1.0) == pytest.approx(0.95)
    assert accuracy_bound(0.05, -2.0) == accuracy_bound(0.05, 2.0)
    assert accuracy_bound(10.0, 1.0) == 0.0
    assert accuracy_bound(0.0, 0.0) == 0.0
    with pytest.raises(BadInput, match="mean squared error"):
        accuracy_bound(-1.0, 1.0)


def test_of_a_linear_classifier_the_guess_is_a_function_of_the_label() -> None:
    """Diana et al. 2025, section 6, a negative control: nothing else about the record enters."""
    draw = fork(4, "classifier")
    column = Column(name="s", kind="categorical", positions=(3,), categories=("no", "yes"), codes=((0.0,), (1.0,)))
    space = Space(
        kind="table", shape=(4,), target="classification", classes=("a", "b"), columns=(column,), sensitive="s"
    )
    model = nn.Linear(4, 2, dtype=DOUBLE)  # in float32 a sure label has a loss of zero both ways
    params = {name: torch.randn(value.shape, generator=draw, dtype=DOUBLE) for name, value in model.named_parameters()}
    x, y = torch.randn(80, 4, generator=draw, dtype=DOUBLE), torch.randint(2, (80,), generator=draw)
    records = PublicAttributes(x=x, y=y)
    seen = Observation(round=0, start=params, update=params, kind="weights", contributors=(0,), examples=None)
    view = View(
        role="server", target=0, observations=(seen,), globals=(), model=model, space=space, loss="cross-entropy",
        grants=Grants(names=("public-attributes",), public_attributes=records),
    )  # fmt: skip
    guess = AttributeFromModel().run(view, generator=fork(0)).tensors["codes"][:, 0]
    pull = 2 * (params["weight"][1, 3] - params["weight"][0, 3])  # start + update
    wanted = (y == 1) == bool(pull > 0)
    assert torch.equal(guess == 1.0, wanted)
