"""surrogate: the gradient on the line by hand, its ends, and images of a long round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.dlf import FedsgdInversion, simulation, what_is_known
from fedxray.attacks.inversion.surrogate import Surrogate
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.seeds import fork
from tests.attacks.inversion.dlf_views import client_view, context
from tests.attacks.inversion.test_dlf import error, leaky_view

ROUND = Recipe(epochs=3, batch_size=2, learning_rate=0.3)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def attacked(attack: Any, view: View) -> Evidence:
    evidence: Evidence = attack.run(view, generator=fork(1, "test"))
    return evidence


def gradient_by_hand(view: View, x: Tensor, y: Tensor, position: float) -> dict[str, Tensor]:
    seen = view.observations[0]
    params = {name: (value + position * seen.update[name]).requires_grad_() for name, value in seen.start.items()}
    loss = functional.cross_entropy(functional_call(view.model, params, (x,)), y)
    return dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))


@pytest.mark.parametrize("position", [0.0, 0.4, 1.0])
def test_the_loss_is_that_of_one_gradient_on_the_line(position: float) -> None:
    view, x, _, _ = client_view(ROUND, dtype=torch.float64, labels=LABELS)
    attack = Surrogate(position=position, match="l2", match_weight=(1.0, 1.0), total_variation=0.0, clip=0.0)
    known = what_is_known(view, attack, context())
    simulated = simulation(view, attack, known, attack.played(known.recipe, 6), by_epoch=False)
    loss = attack.loss(view, context(), simulated)
    point = {"inputs": x[None], "position": torch.zeros((), dtype=torch.float64)}
    gradient, seen = gradient_by_hand(view, x, known.labels, position), view.observations[0]
    steps = 9  # 3 epochs of 3 batches
    gaps = [(-steps * value - seen.update[name] / 0.3).square().sum() for name, value in gradient.items()]
    assert float(loss.value(point, 0).detach()) == pytest.approx(float(sum(gaps)) / 3, rel=1e-9)


def test_at_the_start_of_the_line_it_is_fedsgd_inversion() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    kept = attacked(Surrogate(steps=5, position=0.0, position_rate=0.0), view)
    assert torch.equal(kept.tensors["inputs"], attacked(FedsgdInversion(steps=5), view).tensors["inputs"])
    assert kept.facts["position"] == 0.0


def test_a_single_gradient_has_no_line() -> None:
    view, *_ = client_view(Recipe(algorithm="fedsgd"), labels=LABELS)
    found = attacked(Surrogate(steps=5), view)
    assert torch.equal(found.tensors["inputs"], attacked(FedsgdInversion(steps=5), view).tensors["inputs"])
    assert "position" not in found.facts


def test_the_position_is_sought_and_stays_on_the_line() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    assert attacked(Surrogate(steps=5, position_rate=0.0), view).facts["position"] == 0.5
    moved = attacked(Surrogate(steps=5), view).facts["position"]
    assert 0 < abs(moved - 0.5) < 0.06
    far = [attacked(Surrogate(steps=30, position=end, position_rate=1.0), view).facts["position"] for end in (0.0, 1.0)]
    assert all(0 <= position <= 1 for position in far)


def test_between_the_models_more_of_a_long_round_comes_back_than_at_its_start() -> None:
    view, x = leaky_view(Recipe(epochs=20, batch_size=2, learning_rate=0.1, shuffle="never"))
    settings: dict[str, Any] = {"steps": 150, "learning_rate": 0.1}
    errors = [error(attacked(attack(**settings), view), x) for attack in (Surrogate, FedsgdInversion)]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("wrong", [{"position": 1.5}, {"position": -0.1}, {"position_rate": -1.0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="position"):
        Surrogate(**wrong)


def test_an_update_that_is_not_finite_is_an_outcome() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    seen = view.observations[0]
    broken = {name: value * float("nan") for name, value in seen.update.items()}
    assert (
        attacked(Surrogate(steps=3), replace(view, observations=(replace(seen, update=broken),))).status == "diverged"
    )
