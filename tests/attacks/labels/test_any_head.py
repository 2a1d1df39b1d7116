"""What every attack on labels keeps to, whatever the head, the update and the seat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from fedxray.attacks.base import Attack
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.labels.geng import LabelsGengEnd, LabelsGengStart
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.labels.ilrg import LabelsIlrg
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.seeds import fork
from tests.attacks.labels.heads import INPUTS, as_sum, net, told_view
from tests.attacks.views import view_of_update

FEW = 20  # dummies
ATTACKS: list[Attack] = [
    LabelsDlf(samples=FEW),
    LabelsDlf(samples=FEW, source="bias"),
    LabelsGengStart(samples=FEW),
    LabelsGengEnd(samples=FEW),
    LabelsGengEnd(samples=FEW, exactly=True),
    LabelsIlrg(),
    LabelsIdlg(),
]
ROWS_ALONE: list[Attack] = [*ATTACKS[:1], *ATTACKS[2:5]]

heads = st.fixed_dictionaries({
    "seed": st.integers(0, 10**6),
    "classes": st.integers(2, 12),
    "activation": st.sampled_from([nn.ReLU, nn.Sigmoid, nn.Tanh]),
})  # fmt: skip
recipes = st.one_of(
    st.builds(Recipe, algorithm=st.just("fedsgd")),
    st.builds(
        Recipe,
        epochs=st.integers(1, 3),
        batch_size=st.sampled_from([1, 3, 4, "all"]),
        learning_rate=st.sampled_from([1e-3, 0.1, 3.0]),
        momentum=st.sampled_from([0.0, 0.6]),
        server_learning_rate=st.sampled_from([0.5, 1.0]),
    ),
)


def checked(attack: Attack, view: Any, classes: int, examples: int) -> None:
    evidence = attack.run(view, generator=fork(1, "any head"))
    counts = evidence.tensors["counts"]
    assert counts.shape == (classes,) and counts.dtype == torch.int64
    assert int(counts.min()) >= 0 and int(counts.sum()) == examples
    assert (evidence.status == "ok") == (evidence.reason == "")


@given(head=heads, recipe=recipes, examples=st.integers(1, 9), bias=st.booleans())
@settings(max_examples=12, deadline=None)
def test_counts_sum_to_the_examples(head: dict[str, Any], recipe: Recipe, examples: int, bias: bool) -> None:
    y = torch.randint(head["classes"], (examples,), generator=torch.Generator().manual_seed(head["seed"]))
    view = told_view(net(**head, bias=bias), y, recipe)
    for attack in ATTACKS if bias else [*ROWS_ALONE, LabelsIdlg()]:
        checked(attack, view, head["classes"], examples)
        checked(attack, as_sum(view, 3, recipe, contributors=(0, 1, 2)), head["classes"], 3 * examples)


@given(head=heads, size=st.sampled_from([0.0, 1e-30, 1.0, 1e30]), examples=st.integers(0, 40))
@settings(max_examples=12, deadline=None)
def test_updates_of_noise_give_counts_too(head: dict[str, Any], size: float, examples: int) -> None:
    model, draw = net(**head), torch.Generator().manual_seed(head["seed"])
    noise = {name: size * torch.randn(value.shape, generator=draw) for name, value in model.named_parameters()}
    for kind in ("gradient", "weights"):
        view = view_of_update(
            model, noise, shape=(INPUTS,), classes=head["classes"], examples=max(1, examples), kind=kind,
            recipe=Recipe(batch_size=5),
        )  # fmt: skip
        for attack in ATTACKS:
            checked(attack, view, head["classes"], max(1, examples))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_inversion_can_start_from_it(attack: Attack) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 4))
    recipe, y = Recipe(batch_size="all", learning_rate=0.1), torch.tensor([0, 2, 2])
    update = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    loss = nn.functional.cross_entropy(model(torch.randn(3, 1, 4, 4)), y)
    for name, slope in zip(update, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        update[name] = -0.1 * slope
    view = view_of_update(model, update, shape=(1, 4, 4), classes=4, recipe=recipe, examples=3, kind="weights")
    alone = attack.run(view, generator=fork(2, "start"))
    evidence = InvertingGradients(steps=2, labels=attack).run(view, generator=fork(2, "start"))
    assert evidence.facts["labels"] == attack.name
    assert torch.bincount(evidence.tensors["labels"], minlength=4).tolist() == alone.tensors["counts"].tolist()
    granted = replace(view, grants=replace(view.grants, names=("labels", "recipe"), labels=y))
    assert (
        InvertingGradients(steps=2, labels=attack).run(granted, generator=fork(2, "start")).facts["labels"] == "granted"
    )


def test_a_bias_that_is_not_trained_is_none() -> None:
    model, y = net(0), torch.tensor([0, 1, 1, 6])
    update = dict(told_view(model, y, Recipe(algorithm="fedsgd")).observations[0].update)
    del update["2.bias"]
    view = view_of_update(model, update, shape=(INPUTS,), classes=7, examples=4)
    for attack in [*ROWS_ALONE, LabelsIdlg()]:
        checked(attack, view, 7, 4)
    for attack in (LabelsIlrg(), LabelsDlf(source="bias"), LabelsIdlg(source="bias")):
        with pytest.raises(Refused, match="bias"):
            attack.run(view, generator=fork(1, "no bias"))
