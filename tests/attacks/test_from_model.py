"""Attribute inference from a model, on models and records that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks.attributes.from_model import AttributeFromModel, with_value
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.data.dataset import Column
from fedxray.errors import BadInput, Refused
from fedxray.seeds import fork
from tests.attacks.by_hand import column, linear, table, view_with

# Three records [p, s] with s blanked, and their targets.
PUBLIC = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
TARGETS = torch.tensor([2.9, 4.2, 6.6])


def run(view: View, **settings: object) -> Evidence:
    return AttributeFromModel(**settings).run(view, generator=fork(0))  # type: ignore[arg-type]


def asked(x: Tensor, y: Tensor) -> PublicAttributes:
    return PublicAttributes(x=x, y=y)


@pytest.mark.parametrize(
    ("theta_s", "wanted"),
    [
        # residuals y - P theta_p with theta_p = 2 are 0.9, 0.2, 0.6
        (1.0, [1.0, 0.0, 1.0]),  # over 1: 0.9, 0.2, 0.6, of which the first and last are above one half
        (-1.0, [0.0, 0.0, 0.0]),  # over -1: all below zero
        (0.5, [1.0, 0.0, 1.0]),  # over 0.5: 1.8, 0.4, 1.2
        (-0.3, [0.0, 0.0, 0.0]),  # over -0.3: all below zero
        (3.0, [0.0, 0.0, 0.0]),  # over 3: 0.3, 0.07, 0.2
    ],
)
def test_three_rows_of_a_linear_model(theta_s: float, wanted: list[float]) -> None:
    """The value with the smaller loss is the solution (y - P theta_p) / theta_s, rounded at one half."""
    view = view_with(linear([[2.0, theta_s]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))
    found = run(view)
    assert found.tensors["codes"][:, 0].tolist() == wanted and found.status == "ok"
    solved = (TARGETS - 2.0 * PUBLIC[:, 0]) / theta_s
    assert found.tensors["codes"][:, 0].tolist() == (solved > 0.5).float().tolist()
    margins = [abs((rest - theta_s) ** 2 - rest**2) for rest in (0.9, 0.2, 0.6)]
    assert found.tensors["margins"].tolist() == pytest.approx(margins, rel=1e-4)


def test_a_negative_weight_can_say_one() -> None:
    targets = 2.0 * PUBLIC[:, 0] + torch.tensor([-0.9, -0.2, 0.4])
    view = view_with(linear([[2.0, -1.0]]), table(2, column()), public_attributes=asked(PUBLIC, targets))
    assert run(view).tensors["codes"][:, 0].tolist() == [1.0, 0.0, 0.0]


@given(
    seed=st.integers(0, 10_000), theta_s=st.floats(-4, 4).filter(lambda value: abs(value) > 0.05), low=st.floats(-2, 2)
)
def test_loss_comparison_is_the_two_step_rule_for_any_codes(seed: int, theta_s: float, low: float) -> None:
    high = low + 1.5
    draw = fork(seed, "two steps")
    x, y = (
        torch.randn(20, 2, generator=draw, dtype=torch.float64),
        torch.randn(20, generator=draw, dtype=torch.float64),
    )
    x[:, 1] = 0
    model = linear([[0.7, theta_s]], [0.3]).double()
    view = view_with(model, table(2, column((low, high))), public_attributes=asked(x, y))
    weight, bias = model.weight.detach()[0], model.bias.detach()
    solved = (y - x[:, 0] * weight[0] - bias) / weight[1]
    clear = (solved - (low + high) / 2).abs() > 1e-6
    wanted = torch.tensor([low, high], dtype=x.dtype)[(solved > (low + high) / 2).long()]
    assert torch.equal(run(view).tensors["codes"][clear, 0], wanted[clear])


def test_ties_go_to_the_first_value() -> None:
    view = view_with(linear([[2.0, 0.0]]), table(2, column((5.0, 3.0))), public_attributes=asked(PUBLIC, TARGETS))
    found = run(view)
    assert found.tensors["codes"][:, 0].tolist() == [5.0] * 3 and found.tensors["margins"].tolist() == [0.0] * 3


@given(st.integers(0, 10_000))
def test_a_linear_model_of_two_classes_tells_nothing_but_the_label(seed: int) -> None:
    """The negative control: moving s moves the log-odds of every record alike, so its label alone decides."""
    draw = fork(seed, "negative control")
    x, y = torch.randn(40, 4, generator=draw), torch.randint(2, (40,), generator=draw)
    x[:, 1] = 0
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, 4, generator=draw))
    space = table(4, column(), classes=2)
    view = view_with(model, space, loss="cross-entropy", public_attributes=asked(x, y))
    weight = model.weight.detach()
    pushes_to_one = bool(weight[1, 1] > weight[0, 1])
    sure = run(view).tensors["margins"] > 1e-5  # at saturated logits both losses are rounded to the same
    codes = run(view).tensors["codes"][:, 0]
    assert codes[sure].tolist() == (y == int(pushes_to_one)).float()[sure].tolist()
    squared = run(view, criterion="squared")
    sure = squared.tensors["margins"] > 1e-5
    assert torch.equal(squared.tensors["codes"][sure, 0], codes[sure])


def test_several_positions_and_several_values() -> None:
    """One-hot without the first category: three values in two positions."""
    region = Column(
        name="s",
        kind="categorical",
        positions=(0, 2),
        categories=("a", "b", "c"),
        codes=((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)),
    )
    model = linear([[10.0, 1.0, 20.0]])
    x, y = torch.tensor([[0.0, 1.0, 0.0]] * 3), torch.tensor([1.2, 19.0, 12.0])
    view = view_with(model, table(3, region), public_attributes=asked(x, y))
    assert run(view).tensors["codes"].tolist() == [[0, 0], [0, 1], [1, 0]]
    assert run(view).facts == {"values": 3}


def test_a_continuous_column_is_tried_on_a_grid() -> None:
    age = Column(name="s", kind="continuous", positions=(1,), low=-1.0, high=1.0)
    view = view_with(
        linear([[0.0, 2.0]]), table(2, age), public_attributes=asked(PUBLIC, torch.tensor([1.0, -2.3, 0.4]))
    )
    assert run(view, grid=5).tensors["codes"][:, 0].tolist() == [0.5, -1.0, 0.0]
    fine = run(view, grid=201).tensors["codes"][:, 0].tolist()
    assert fine == pytest.approx([0.5, -1.0, 0.2], abs=1e-6)


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_broken_model_gives_no_guess(weight: float) -> None:
    """A fit that is not finite must not be read as the first value, which may well be the right one."""
    view = view_with(linear([[weight, 1.0]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))
    assert run(view).tensors["codes"].isnan().all()


def test_one_broken_record_leaves_the_others() -> None:
    x = PUBLIC.clone()
    x[1, 0] = float("inf")
    view = view_with(linear([[2.0, 1.0]]), table(2, column()), public_attributes=asked(x, TARGETS))
    codes = run(view).tensors["codes"][:, 0]
    assert codes[[0, 2]].tolist() == [1.0, 1.0] and codes[1].isnan()


def test_the_model_is_a_setting() -> None:
    """With the global model, which started from zeros, nothing can be inferred; ties go to the first value."""
    view = view_with(linear([[2.0, 1.0]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))
    assert run(view, model=GlobalModel()).tensors["codes"][:, 0].tolist() == [0.0] * 3
    assert run(view).tensors["codes"][:, 0].tolist() == [1.0, 0.0, 1.0]


def test_what_it_needs_is_named() -> None:
    view = view_with(linear([[2.0, 1.0]]), table(2, column()))
    with pytest.raises(Refused, match="public-attributes"):
        run(view)
    granted = view_with(linear([[2.0, 1.0]]), table(2), public_attributes=asked(PUBLIC, TARGETS))
    with pytest.raises(Refused, match="sensitive column"):
        run(granted)
    whole = view_with(linear([[2.0, 1.0]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))
    summed = tuple(replace(one, contributors=None) for one in whole.observations)
    with pytest.raises(Refused, match=r'client alone.*, or model = "global-model" in this \[\[attack\]\]'):
        run(replace(whole, observations=summed, target=None))


def test_an_inner_answer_in_doubt_puts_the_whole_in_doubt() -> None:
    """Evidence that rests on a model that diverged is not fine."""
    view = view_with(linear([[2.0, 1.0]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))

    def doubtful(attack: Attack, asked: View, answer: object) -> Evidence:
        found: Evidence = answer()  # type: ignore[operator]
        return replace(found, status="diverged", reason="it blew up")

    found = AttributeFromModel().run(view, generator=fork(0), memo=doubtful)
    assert found.status == "diverged" and "it blew up" in found.reason
    assert found.tensors["codes"][:, 0].tolist() == [1.0, 0.0, 1.0]


def test_the_last_round_counts() -> None:
    view = view_with(linear([[2.0, 1.0]]), table(2, column()), public_attributes=asked(PUBLIC, TARGETS))
    first = view.observations[0]
    later = Observation(
        round=7,
        start=first.update,
        update={"weight": torch.tensor([[0.0, -2.0]])},
        kind="weights",
        contributors=(0,),
        examples=None,
    )
    assert run(replace(view, observations=(later, first))).tensors["codes"][:, 0].tolist() == [0.0] * 3


def test_writing_a_value_changes_nothing_else() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    filled = with_value(x, (1, 3), torch.tensor([-1.0, -2.0]))
    assert filled.tolist() == [[0, -1, 2, -2], [4, -1, 6, -2], [8, -1, 10, -2]]
    assert torch.equal(x, torch.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize(
    "settings", [{"grid": 1}, {"grid": -5}, {"grid": 10**7}, {"grid": True}, {"criterion": "best"}]
)
def test_refuses_impossible_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(settings))):
        AttributeFromModel(**settings)
