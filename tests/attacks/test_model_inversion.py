"""Model inversion against steps taken by hand, and on models whose surest image is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.attacks.model_inversion import ModelInversion
from fedxray.errors import BadInput, Refused
from fedxray.params import parameters_of
from fedxray.seeds import fork
from tests.attacks.views import view_of_update

SHAPE = (1, 4, 3)


def network(classes: int = 3, hidden: bool = True) -> nn.Module:
    if not hidden:
        return nn.Sequential(nn.Flatten(), nn.Linear(12, classes))
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, classes))


def inverted(attack: ModelInversion, model: nn.Module, classes: int = 3) -> Evidence:
    """The attack on a client that returned the model as it was."""
    nothing = {name: torch.zeros_like(value) for name, value in parameters_of(model).items()}
    view = view_of_update(model, nothing, shape=SHAPE, classes=classes, kind="weights")
    return attack.run(view, generator=fork(0))


def by_hand(attack: ModelInversion, model: nn.Module, label: int) -> Tensor:
    """One class alone, one step at a time; the cost falls throughout, so that the last image is the best."""
    x = torch.full((1, *SHAPE), attack.shade, requires_grad=True)
    for _ in range(attack.steps):
        sure = torch.softmax(model(x), -1)[0, label]
        doubt = 1 - sure if attack.cost == "probability" else -sure.log()
        steps = [x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]]
        rough = sum(step.abs().mean() for step in steps)
        (slope,) = torch.autograd.grad(doubt + attack.total_variation * rough, x)
        x = (x.detach() - attack.learning_rate * slope).clamp(0, 1).requires_grad_()
    return x.detach()[0]


@pytest.mark.parametrize(
    "attack",
    [
        ModelInversion(steps=5, cost="probability", shade=0.25),
        ModelInversion(steps=5, learning_rate=1.0),
        ModelInversion(steps=1, total_variation=0.3, shade=0.5),
    ],
)
def test_every_class_takes_its_own_steps(attack: ModelInversion) -> None:
    model = network()
    found = inverted(attack, model)
    assert found.kind == "class-images" and found.tensors["labels"].tolist() == [0, 1, 2]
    for label in range(3):
        torch.testing.assert_close(found.tensors["inputs"][label], by_hand(attack, model, label))
    assert len(found.curve) == attack.steps + 1 and list(found.curve) == sorted(found.curve, reverse=True)
    assert found.curve[-1] == pytest.approx(3 * found.facts["cost"], rel=1e-5)


def test_the_surest_image_of_a_linear_model_is_a_corner() -> None:
    """Of two classes: white where the one weighs more than the other, black elsewhere."""
    model = network(classes=2, hidden=False)
    weight = model[1].weight.detach()  # type: ignore[union-attr, operator]
    found = inverted(ModelInversion(steps=300, learning_rate=5.0), model, classes=2)
    corner = (weight[0] > weight[1]).float().reshape(SHAPE)
    torch.testing.assert_close(found.tensors["inputs"], torch.stack([corner, 1 - corner]))
    with torch.no_grad():
        sure = torch.softmax(model(found.tensors["inputs"]), -1).diagonal()
    assert found.facts["confidence"] == pytest.approx(float(sure.mean()), rel=1e-5)


def test_images_stay_valid_where_pixels_are_standardised() -> None:
    model = network()
    nothing = {name: torch.zeros_like(value) for name, value in parameters_of(model).items()}
    view = view_of_update(model, nothing, shape=SHAPE, classes=3, kind="weights")
    view = replace(view, space=replace(view.space, mean=(0.5,), std=(0.25,)))
    found = ModelInversion(steps=50, learning_rate=50.0).run(view, generator=fork(0)).tensors["inputs"]
    assert float(found.min()) >= -2 and float(found.max()) <= 2 and found.abs().max() == 2


def test_what_it_cannot_do_is_refused() -> None:
    model = nn.Linear(12, 3)
    view = view_of_update(model, parameters_of(model), shape=(12,), classes=3, kind="weights")
    with pytest.raises(Refused, match="image inputs"):
        ModelInversion().run(view, generator=fork(0))
    silent = view_of_update(network(), {}, shape=SHAPE, classes=3, rounds=0)
    with pytest.raises(Refused, match="global-model"):
        ModelInversion().run(silent, generator=fork(0))
    with pytest.raises(Refused, match="a global model"):
        ModelInversion(model=GlobalModel()).run(silent, generator=fork(0))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0),
        ("learning_rate", 0.0),
        ("cost", "doubt"),
        ("total_variation", -1.0),
        ("total_variation", math.inf),
        ("shade", 1.5),
    ],
)
def test_settings_that_cannot_be_meant(setting: str, value: object) -> None:
    with pytest.raises(BadInput):
        ModelInversion(**{setting: value})  # type: ignore[arg-type]


def test_of_several_rates_the_images_of_lowest_cost_are_kept() -> None:
    """The rate is chosen by the attack's own cost, and each search is that of its rate alone."""
    model = network()
    alone = {rate: inverted(ModelInversion(steps=20, learning_rate=rate), model) for rate in (1e-3, 0.1, 5.0)}
    tried = inverted(ModelInversion(steps=20, learning_rate=1e-3, rates=(0.1, 5.0)), model)
    best = min(alone, key=lambda rate: alone[rate].facts["cost"])
    assert tried.facts["lr"] == best != 1e-3
    assert torch.equal(tried.tensors["inputs"], alone[best].tensors["inputs"])
