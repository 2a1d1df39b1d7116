"""dlf-redrawn: its loss by an ordinary training loop, its orders, the moving mean, and images of a shuffled round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.dlf import Dlf, Objective, simulation, what_is_known
from fedxray.attacks.inversion.redrawn import DlfRedrawn
from fedxray.attacks.inversion.surrogate import Surrogate
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.imaging import with_even_contrast
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.inversion.dlf_views import client_view, context, smooth_net
from tests.attacks.inversion.test_dlf import error, leaky_view

ROUND = Recipe(epochs=3, batch_size=4, learning_rate=0.3)  # of 6 examples: the second batch has 2
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def attacked(attack: Any, view: View) -> Evidence:
    evidence: Evidence = attack.run(view, generator=fork(1, "test"))
    return evidence


def loss_of(attack: DlfRedrawn, view: View) -> tuple[Objective, Tensor]:
    known = what_is_known(view, attack, context())
    simulated = simulation(view, attack, known, known.recipe, by_epoch=False)
    return attack.loss(view, context(), simulated), known.labels


def test_the_loss_is_that_of_a_training_loop_in_the_drawn_order() -> None:
    view, x, _, _ = client_view(ROUND, dtype=torch.float64, labels=LABELS)
    attack = DlfRedrawn(match="l2", match_weight=(1.0, 1.0), total_variation=0.0, clip=0.0)
    loss, labels = loss_of(attack, view)
    assert loss.orders is not None
    for step in (0, 7):
        order = loss.orders(step).reshape(3, 6)
        rows = [row for epoch in order.tolist() for row in (epoch[:4], [*epoch[4:], -1, -1])]
        update = plain_update(smooth_net(torch.float64), x, labels, ROUND, Schedule(torch.tensor(rows)))
        seen = view.observations[0].update
        gaps = sum(((update[name] - seen[name]) / 0.3).square().sum() for name in seen)
        # six local steps
        assert float(loss.value({"inputs": x[None]}, step).detach()) == pytest.approx(float(gaps) / 6, rel=1e-9)


def test_every_step_and_epoch_has_an_order_of_its_own_of_all_images() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    (loss, _), (again, _) = (loss_of(DlfRedrawn(), view) for _ in range(2))
    assert loss.orders is not None and again.orders is not None
    orders = torch.stack([loss.orders(step).reshape(3, 6) for step in range(4)])
    assert torch.equal(orders.sort(-1).values, torch.arange(6).expand(4, 3, 6))
    assert len({tuple(order) for order in orders.flatten(0, 1).tolist()}) == 12
    assert torch.equal(loss.orders(3), again.orders(3))


def test_it_starts_from_the_surrogate_and_returns_a_moving_mean() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    common: dict[str, Any] = {"steps": 2, "first_steps": 5}
    start = attacked(Surrogate(steps=5), view).tensors["inputs"]
    one, two = (attacked(DlfRedrawn(**common | {"steps": n}, averaging=1.0), view).tensors["inputs"] for n in (1, 2))
    assert 0 < float((one - start).abs().max()) <= 0.2 + 1e-6  # Adam's first step: half of 0.4
    half = attacked(DlfRedrawn(**common, averaging=0.5), view).tensors["inputs"]
    first = attacked(DlfRedrawn(**common | {"steps": 1}, averaging=0.5), view).tensors["inputs"]
    assert torch.allclose(first, (start + one) / 2, atol=1e-6)
    # both differ in the weights of the match over one and over two steps, which the first step of Adam does not see
    assert torch.allclose(half, (first + two) / 2, atol=1e-5)


def test_the_first_stage_has_its_settings() -> None:
    attack = DlfRedrawn(match="cosine", restarts=3, label_order="random", total_variation=0.5, first_steps=7)
    first = attack.first_stage()
    assert (first.match, first.restarts, first.label_order, first.total_variation) == ("cosine", 3, "random", 0.5)
    assert first.steps == 7


def test_of_a_shuffled_round_more_comes_back_than_with_one_fixed_order() -> None:
    view, x = leaky_view(Recipe(epochs=6, batch_size=1, learning_rate=0.1))
    redrawn = attacked(DlfRedrawn(steps=60, first_steps=150, learning_rate=0.05), view)
    fixed = attacked(Dlf(steps=210, learning_rate=0.1, together=0.0), view)
    assert redrawn.status == "ok" and redrawn.tensors["labels"].tolist() == [1, 3, 5]
    assert error(redrawn, x) < 0.8 * error(fixed, x)


def test_a_single_gradient_is_inverted_too() -> None:
    view, *_ = client_view(Recipe(algorithm="fedsgd"), labels=LABELS)
    assert attacked(DlfRedrawn(steps=3, first_steps=3), view).status == "ok"


@pytest.mark.parametrize("wrong", [{"averaging": 0.0}, {"averaging": 1.5}, {"first_steps": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        DlfRedrawn(**wrong)


def test_an_update_that_is_not_finite_is_an_outcome() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    seen = view.observations[0]
    broken = {name: value * float("nan") for name, value in seen.update.items()}
    evidence = attacked(DlfRedrawn(steps=3, first_steps=3), replace(view, observations=(replace(seen, update=broken),)))
    assert evidence.status == "diverged" and evidence.facts["first_stage"] == "diverged"


def test_even_contrast_changes_grey_images_alone_and_can_be_left_out() -> None:
    space = Space(kind="image", shape=(1, 10, 10), target="classification")
    drawn = torch.ones(1, 2, 1, 10, 10)
    drawn[0, :, 0, 5] = 0.5
    colour = drawn.expand(1, 2, 3, 10, 10)
    for attack in (DlfRedrawn, Dlf):
        assert torch.equal(attack(even_contrast=False).one_set(drawn, space), drawn[0])
        assert torch.equal(attack().one_set(drawn, space), with_even_contrast(drawn[0]))
        assert torch.equal(attack().one_set(colour, space), colour[0])
