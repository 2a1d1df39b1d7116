"""agic: one step for a whole round, a weighted cosine by layers, several rounds at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.agic import Agic
from fedxray.attacks.inversion.awa import Awa
from fedxray.attacks.inversion.dlg import Dlg
from fedxray.attacks.inversion.problem import replayed
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.optim import Adam, SignedAdam
from fedxray.params import add
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.inversion.test_awa import CLASSES, images, net
from tests.attacks.views import view_of_update

ONE_STEP = Recipe(epochs=1, batch_size="all", learning_rate=0.01)
MANY = Recipe(epochs=3, batch_size=2, learning_rate=1e-3)


def seen(recipe: Recipe = ONE_STEP, count: int = 2, rounds: int = 1) -> tuple[View, Tensor, Tensor]:
    x, y = images(count), torch.arange(count) % CLASSES
    schedule = draw_schedule(count, recipe, torch.Generator().manual_seed(0))
    update = plain_update(net(), x, y, recipe, schedule)
    more: dict[str, Any] = {"shape": (1, 4, 4), "classes": CLASSES, "examples": count, "kind": "weights"}
    return view_of_update(net(), update, recipe=recipe, labels=y, rounds=rounds, **more), x, y


def run(view: View, **settings: Any) -> Evidence:
    return Agic(**settings).run(view, generator=fork(1, "test"))


def test_an_image_comes_back() -> None:
    view, x, _ = seen(count=1)
    evidence = run(view, steps=250, total_variation=0.0)
    assert evidence.status == "ok" and evidence.facts["rounds"] == 1
    assert float(((evidence.tensors["inputs"] - x) ** 2).mean()) < 5e-3


def test_a_round_of_small_steps_is_nearly_one_large_step() -> None:
    gaps = []
    for rate in (1e-3, 5e-4):
        view, x, y = seen(replace(MANY, learning_rate=rate), count=4)
        client, aim = replayed(view, view.observations[0], 4, "batch", merged=True)
        update = client.update(x, y)
        assert client.sizes == (4,) and client.recipe.learning_rate == pytest.approx(6 * rate)
        apart = sum(float(((update[name] - aim[name]).detach() ** 2).sum()) for name in aim) ** 0.5
        gaps.append(apart / sum(float((value**2).sum()) for value in aim.values()) ** 0.5)
    assert gaps[0] < 0.05 and gaps[0] / gaps[1] == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("match", ["cosine", "l2"])
def test_the_distance_by_hand(match: Any) -> None:
    view, _, y = seen()
    attack = Agic(match=match, total_variation=0.0)
    guess, model, sent = images(2, 4), net(), view.observations[0].update
    nn.functional.cross_entropy(model(guess), y).backward()
    expected = 0.0
    groups = [["0.weight"], ["1.weight", "1.bias"], ["3.weight"], ["4.weight", "4.bias"], ["7.weight", "7.bias"]]
    for weight, names in zip([1.0, 1.0, 2.0, 1.0, 1.0], groups, strict=True):  # two convolutions, one linear layer
        mine = torch.cat([-model.get_parameter(name).grad.reshape(-1) for name in names])  # type: ignore[union-attr]
        theirs = torch.cat([sent[name].reshape(-1) for name in names]) / ONE_STEP.learning_rate
        apart = 1 - nn.functional.cosine_similarity(mine, theirs, dim=0) if match == "cosine" else (
            ((mine - theirs) ** 2).sum()
        )  # fmt: skip
        expected += weight * float(apart)
    assert attack._round_loss(view, view.observations[0], y)(guess).item() == pytest.approx(expected, rel=1e-3)


def test_squared_differences_are_in_squares_of_the_unit() -> None:
    view, _, y = seen()
    guess = images(2, 4)
    in_rates, sent = (
        Agic(match="l2", unit=unit)._round_loss(view, view.observations[0], y)(guess).item()
        for unit in ("rate", "sent")
    )
    assert sent == pytest.approx(in_rates * ONE_STEP.learning_rate**2, rel=1e-4)


def test_rounds_are_added_up_where_all_are_taken() -> None:
    view, _, _ = seen(rounds=2)
    first, second = view.observations
    moved = replace(view, observations=(first, replace(second, start=add(first.start, first.update))))
    one, all_of_them = run(moved, steps=1), run(moved, steps=1, at="all")
    other = run(replace(moved, observations=moved.observations[1:]), steps=1)
    assert all_of_them.facts["rounds"] == 2 and run(moved, steps=1, at="last").curve == other.curve
    prior = 1e-4 * 3  # total variation is counted once, so a little less than the sum
    assert all_of_them.curve[0] == pytest.approx(one.curve[0] + other.curve[0], abs=prior)


def test_the_loss_that_is_told_is_that_of_the_best_iterate() -> None:
    view, _, _ = seen()
    evidence = run(view, steps=9, optimiser="adam", learning_rate=3.0)
    assert evidence.facts["own_loss"] == [min(evidence.curve)] and evidence.curve[-1] > min(evidence.curve)


def test_total_variation_counts_as_told() -> None:
    view, _, _ = seen()
    plain, some, more = (run(view, steps=1, total_variation=weight).curve[0] for weight in (0.0, 0.5, 1.0))
    assert some > plain + 0.1 and more - plain == pytest.approx(2 * (some - plain), rel=1e-3)


def test_optimisers_and_refusals() -> None:
    assert isinstance(Agic().method(), SignedAdam) and Agic(optimiser="adam").method() == Adam(steps=1000, lr=0.1)
    for wrong in ({"match": "l1"}, {"at": "middle"}, {"optimiser": "sgd"}, {"total_variation": -1.0}, {"steps": 0}):
        with pytest.raises(BadInput):
            Agic(**wrong)  # type: ignore[arg-type]


def test_awa_agic_and_dlg_start_from_the_same_dummies_and_their_restarts_too() -> None:
    view, _, _ = seen()
    still: dict[str, Any] = {"steps": 1, "learning_rate": 1e-12, "start": "uniform", "box": True}
    for restarts in (1, 3):
        found = [
            attack.run(view, generator=fork(1, "test"))
            for attack in (
                Awa(**still, restarts=restarts),
                Awa(**still, preset="none", unit="sent", restarts=restarts),
                Agic(**still, optimiser="adam", restarts=restarts),
                Dlg(**still, reading="song", restarts=restarts),
            )
        ]
        assert all(len(one.facts["own_loss"]) == restarts for one in found)
        assert found[0].facts["own_loss"] == pytest.approx(
            [one * 1e4 for one in found[1].facts["own_loss"]], rel=1e-3
        )  # in squares of the learning rate
        assert found[3].facts["own_loss"] == pytest.approx(found[1].facts["own_loss"], rel=1e-3)
        for one in found[1:] if restarts == 1 else ():
            torch.testing.assert_close(one.tensors["inputs"], found[0].tensors["inputs"], rtol=0, atol=1e-6)
    other = Agic(**still).run(view, generator=fork(2, "test"))
    assert not torch.allclose(other.tensors["inputs"], found[2].tensors["inputs"], atol=0.1)
