"""awa: the weighted loss by hand, images that come back, and descents that end early or go on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.agic import Agic
from fedxray.attacks.inversion.awa import LEAST_WEIGHT, PRESETS, Awa, AwaWeights, Match, case_of
from fedxray.attacks.inversion.dlg import Dlg, matching_loss
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.optim import minimise
from fedxray.params import parameters_of
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.views import view_of_update

CLASSES = 4
RATE = 1e-2
CASES = {
    "case1": Recipe(epochs=1, batch_size="all", learning_rate=RATE),
    "case2": Recipe(epochs=3, batch_size="all", learning_rate=RATE),
    "case3": Recipe(epochs=1, batch_size=1, learning_rate=RATE),
    "case4": Recipe(epochs=2, batch_size=1, learning_rate=RATE),
}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.GroupNorm(1, 6), nn.Sigmoid(),
        nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.GroupNorm(1, 6), nn.Sigmoid(),
        nn.Flatten(), nn.Linear(96, CLASSES),
    )  # fmt: skip


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def seen(case: str = "case1", count: int = 2, **grants: Any) -> tuple[View, Tensor, Tensor]:
    x, y, recipe = images(count), torch.arange(count) % CLASSES, CASES[case]
    schedule = draw_schedule(count, recipe, torch.Generator().manual_seed(0))
    update = plain_update(net(), x, y, recipe, schedule)
    given = {"shape": (1, 4, 4), "classes": CLASSES, "examples": count, "kind": "weights", "labels": y, **grants}
    return view_of_update(net(), update, recipe=recipe, **given), x, y


def error(evidence: Evidence, x: Tensor) -> float:
    apart = ((evidence.tensors["inputs"][:, None] - x[None]) ** 2).flatten(2).mean(2)
    return float(apart.min(0).values.mean())


def run(view: View, **settings: Any) -> Evidence:
    return Awa(**settings).run(view, generator=fork(1, "test"))


def loss_of(view: View, y: Tensor, **settings: Any) -> Match:
    return Awa(**settings)._loss(view, view.observations[0], y)[0]


def test_an_image_comes_back_and_stays_in_the_box() -> None:
    view, x, _ = seen(count=1)
    evidence = run(view, steps=250)
    assert evidence.status == "ok" and evidence.facts["case"] == "case1" and evidence.facts["epoch"] is None
    assert error(evidence, x) < 1e-2 < error(evidence, images(1, 7))
    inputs = evidence.tensors["inputs"]
    assert float(inputs.min()) >= 0 and float(inputs.max()) <= 1


@pytest.mark.parametrize("case", CASES)
def test_every_case_gets_its_own_numbers_and_makes_way(case: str) -> None:
    view, _, _ = seen(case)
    evidence = run(view, steps=40)
    weights_used = evidence.facts["weights"]
    assert evidence.facts["case"] == case_of(CASES[case], 2) == case
    assert evidence.facts["taken"] == {"case": case, **({"epoch": 1} if case == "case4" else {}), **weights_used}
    assert AwaWeights(**weights_used) == PRESETS[case] and evidence.facts["epoch"] == (1 if case == "case4" else None)
    assert evidence.facts["own_loss"] == [min(evidence.curve)] and min(evidence.curve) < 0.5 * evidence.curve[0]


def test_the_loss_and_its_slope_by_hand() -> None:
    view, _, y = seen()
    match = loss_of(view, y, q_conv=5.0, q_norm=9.0, q_linear=3.0, preset="none")
    guess = images(2, 4).requires_grad_()
    model, sent = net(), view.observations[0].update
    grads = torch.autograd.grad(
        nn.functional.cross_entropy(model(guess), y), list(model.parameters()), create_graph=True
    )
    names = [name for name, _ in model.named_parameters()]
    weight = dict(zip(names, [1.0, 1.0, 1.0, 5.0, 9.0, 9.0, 3.0, 3.0], strict=True))
    apart = {name: ((-grad - sent[name] / RATE) ** 2).sum() for name, grad in zip(names, grads, strict=True)}
    expected = torch.autograd.grad(sum(weight[name] * apart[name] for name in names), guess)[0]
    value = match({"inputs": guess})
    assert value.item() == pytest.approx(sum(one.item() for one in apart.values()), rel=1e-4)
    torch.testing.assert_close(torch.autograd.grad(value, guess)[0], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("case", ["case1", "case2", "case3"])
def test_without_weights_it_is_the_loss_of_dlg(case: str) -> None:
    view, _, y = seen(case)
    for unit in ("sent", "rate"):
        match = loss_of(view, y, preset="none", unit=unit)
        plain = matching_loss(view, view.observations[0], 2, y, unit, "batch")  # type: ignore[arg-type]
        slopes = []
        for loss in (match, plain):
            guess = images(2, 4).requires_grad_()
            value = loss({"inputs": guess})
            slopes.append((value.item(), torch.autograd.grad(value, guess)[0]))
        assert slopes[0][0] == pytest.approx(slopes[1][0], rel=1e-4)
        torch.testing.assert_close(slopes[0][1], slopes[1][1], rtol=1e-3, atol=float(slopes[1][1].abs().max()) / 1e4)


def test_without_weights_its_way_is_that_of_dlg() -> None:
    view, _, _ = seen()
    ours = run(view, preset="none", steps=12)
    theirs = Dlg(reading="song", unit="rate", start="uniform", box=True, steps=12).run(view, generator=fork(1, "test"))
    assert ours.curve == pytest.approx(theirs.curve, rel=1e-3)
    torch.testing.assert_close(ours.tensors["inputs"], theirs.tensors["inputs"], atol=1e-2, rtol=0)


def test_enhanced_layers_get_their_own_weight_even_if_it_is_lower() -> None:
    view, _, y = seen()
    match = loss_of(view, y, q_conv=5.0, q_norm=9.0, q_linear=3.0, q_enhance=0.5, p_mean=1.0, p_var=1.0)
    update = match.work.client.update(images(2, 4), y)
    assert set(match.tensor_weights(update).values()) == {0.5}
    some = replace(match, weights=replace(match.weights, p_mean=0.5, p_var=0.5))
    chosen = some.enhanced(update)
    weights = some.tensor_weights(update)
    for place, layer in enumerate(some.layers):
        assert {weights[name] for name in layer.tensors} == {0.5 if place in chosen else some.ramp[place]}
    assert 0 < len(chosen) <= 3  # of five layers, and both lists


def test_enhancement_follows_the_guess() -> None:
    view, _, y = seen()
    match = loss_of(view, y)
    chosen = {match.enhanced(match.work.client.update(images(2, seed), y)) for seed in range(12)}
    assert len(chosen) > 1


@pytest.mark.parametrize("epoch", [1, 2])
def test_the_epoch_that_is_asked_for_is_replayed_from_its_own_start(epoch: int) -> None:
    view, _, y = seen("case4")
    (observation,) = view.observations
    work = loss_of(view, y, epoch=epoch).work
    assert work.epoch == epoch == run(view, epoch=epoch, steps=2).facts["epoch"]
    for name, start in observation.start.items():
        share = (epoch - 1) / 2
        torch.testing.assert_close(work.client.start[name], start + share * observation.update[name])
        torch.testing.assert_close(work.aim[name], observation.update[name] / 2)
    assert (run(view, epoch=epoch, steps=2).curve == run(view, steps=2).curve) == (epoch == 1)


@pytest.mark.parametrize("case", CASES)
def test_the_replayed_update_of_a_softmax_head_adds_up_to_zero(case: str) -> None:
    view, _, y = seen(case)
    update = loss_of(view, y).work.client.update(images(2, 4), y)
    for name in ("7.weight", "7.bias"):
        entries = update[name].detach()
        assert float(entries.sum(0).abs().max()) < 1e-4 * float(entries.abs().max()), name


def test_undefined_errors_are_ranked_as_asked() -> None:
    view, _, y = seen()
    shares = {"p_mean": 0.2, "p_var": 1.0}  # one of five layers by the mean: the head, if it comes first
    guess = loss_of(view, y).work.client.update(images(2, 4), y)
    head = {place for place, layer in enumerate(loss_of(view, y).layers) if layer.kind == "linear"}
    assert loss_of(view, y, undefined="first", **shares).enhanced(guess) == head
    assert loss_of(view, y, **shares).enhanced(guess).isdisjoint(head)


def test_the_truth_has_no_loss_and_no_slope() -> None:
    view, x, y = seen()
    guess = x.clone().requires_grad_()
    value = loss_of(view, y)({"inputs": guess})
    assert value.item() < 1e-6 and float(torch.autograd.grad(value, guess)[0].abs().max()) < 1e-2


def test_a_kept_descent_goes_on_to_the_bit() -> None:
    view, _, _ = seen()
    straight = run(view, steps=9)
    asked: list[int] = []

    def memo(attack: Attack, _: View, compute: Any) -> Evidence:
        if isinstance(attack, Awa):
            asked.append(attack.steps)
        return compute()  # type: ignore[no-any-return]

    staged = Awa(steps=9, kept_every=4).run(view, generator=fork(1, "test"), memo=memo)
    assert asked == [8, 4] and staged.curve == straight.curve
    assert torch.equal(staged.tensors["inputs"], straight.tensors["inputs"])
    assert int(staged.tensors["state/step"]) == 9
    places = [value.data_ptr() for value in staged.tensors.values()]
    assert len(set(places)) == len(places)  # what shares memory could not be stored


def test_a_hopeless_descent_is_given_up() -> None:
    view, _, _ = seen()
    whole = run(view, steps=8)
    ended = run(view, steps=8, give_up=(3, min(whole.curve[:4]) / 2))
    assert ended.status == "truncated" and ended.curve == whole.curve[:4]
    assert ended.facts["own_loss"] == [min(whole.curve[:4])]
    kept = run(view, steps=8, give_up=(3, min(whole.curve[:4])))
    assert kept.status == "ok" and kept.curve == whole.curve


@pytest.mark.parametrize("every", [2, 3, 4])
def test_a_descent_in_stages_is_given_up_at_the_same_step(every: int) -> None:
    view, _, _ = seen()
    whole = run(view, steps=8)
    ended = run(view, steps=8, kept_every=every, give_up=(4, min(whole.curve[:5]) / 2))
    assert ended.status == "truncated" and ended.curve == whole.curve[:5]
    kept = run(view, steps=8, kept_every=every, give_up=(4, min(whole.curve[:5])))
    assert kept.status == "ok" and kept.curve == whole.curve


def test_all_settings_start_from_the_same_inputs() -> None:
    view, _, _ = seen()
    first = {run(view, steps=1, **more).curve[0] for more in ({}, {"preset": "none"}, {"q_conv": 3.0})}
    assert len(first) == 1


def test_the_last_iterate_is_returned_unless_the_best_is_asked_for() -> None:
    view, _, _ = seen()
    last, best = (run(view, steps=30, learning_rate=0.5, **more) for more in ({}, {"keep": "best"}))
    assert last.curve == best.curve and last.curve[-1] > min(last.curve)
    assert last.facts["own_loss"] == [last.curve[-1]] and best.facts["own_loss"] == [min(best.curve)]


def test_total_variation_is_in_the_slope_and_not_in_the_value() -> None:
    view, _, y = seen()
    slopes, values, guess = [], [], images(2, 4).requires_grad_()
    for weight in (0.0, 0.5):
        value = loss_of(view, y, total_variation=weight)({"inputs": guess})
        slopes.append(torch.autograd.grad(value, guess)[0])
        values.append(value.item())
    down = guess[..., 1:, :] - guess[..., :-1, :]
    across = guess[..., :, 1:] - guess[..., :, :-1]
    penalty = torch.autograd.grad(0.5 * (down.abs().mean() + across.abs().mean()), guess)[0]
    assert values[0] == values[1]
    torch.testing.assert_close(slopes[1] - slopes[0], penalty, rtol=1e-3, atol=float(slopes[0].abs().max()) * 1e-5)


@pytest.mark.parametrize("attack", [Awa, Dlg, Agic])
def test_a_decaying_step_follows_half_a_cosine_to_nothing(attack: Any) -> None:
    method = attack(steps=8, learning_rate=0.1, decay="cosine").method()
    factors = [method.decay.factor(step, 8) for step in range(9)]
    assert factors == pytest.approx([0.5 + 0.5 * math.cos(math.pi * step / 8) for step in range(9)])
    assert attack(steps=8).method().decay != method.decay


def test_a_decaying_step_ends_closer_than_a_constant_one() -> None:
    """The last steps of a descent with a long constant step jump about."""
    view, _, _ = seen()
    settings: dict[str, Any] = {"steps": 60, "learning_rate": 0.3, "preset": "ramp"}
    constant, decaying = (run(view, **settings, decay=decay) for decay in ("none", "cosine"))
    assert decaying.curve[-1] < constant.curve[-1] and decaying.curve[-1] < 1.1 * min(decaying.curve)


def test_weights_do_not_depend_on_the_scale_of_what_is_sent_but_the_loss_does() -> None:
    view, _, y = seen()
    sent, rate = (loss_of(view, y, unit=unit)({"inputs": images(2, 4)}).item() for unit in ("sent", "rate"))
    assert rate == pytest.approx(sent / RATE**2, rel=1e-4)


def test_adams_epsilon_holds_back_what_is_matched_as_sent() -> None:
    """With the paper's learning rate the slope is so small that Adam's epsilon is no longer small beside it."""
    view, x, y = seen()
    tiny = replace(CASES["case1"], learning_rate=1e-5)
    update = plain_update(net(), x, y, tiny, draw_schedule(2, tiny, torch.Generator().manual_seed(0)))
    slow = replace(
        view, observations=(replace(view.observations[0], update=update),), grants=replace(view.grants, recipe=tiny)
    )
    moved = {}
    for unit in ("sent", "rate"):
        match = loss_of(slow, y, preset="none", unit=unit)
        end = minimise(match, {"inputs": images(2, 4)}, Awa(steps=1).method())
        moved[unit] = float((end.last["inputs"] - images(2, 4)).abs().mean())
    assert moved["rate"] == pytest.approx(0.1, rel=0.05) and moved["sent"] < 0.5 * moved["rate"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"preset": "case5"}, {"q_conv": -1.0}, {"q_enhance": float("inf")}, {"p_mean": 1.5}, {"p_var": -0.1},
        {"steps": 0}, {"epoch": 0}, {"unit": "metre"}, {"start": "zero"}, {"keep": "first"}, {"undefined": "no"},
        {"q_norm": "9"}, {"q_linear": 1e30}, {"preset": None}, {"give_up": (3, float("nan"))},
        {"decay": "linear"}, {"decay": "cosine", "kept_every": 3}, {"total_variation": -1.0}, {"kept_every": 0},
        {"give_up": (0, 1.0)}, {"restarts": 2, "kept_every": 3}, {"labels": LastReturned()},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Awa(**wrong)


@pytest.mark.parametrize("name", ["q_conv", "q_norm", "q_linear", "q_enhance"])
def test_weights_under_which_a_guess_might_stay_where_it_began_are_refused(name: str) -> None:
    for wrong in (0.0, 1e-7):
        with pytest.raises(BadInput, match="from 1e-06 to 1e"):
            Awa(**{name: wrong})


def test_the_least_weight_still_moves_the_guess() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES))
    y, recipe = torch.arange(2), CASES["case1"]
    update = plain_update(model, images(2), y, recipe, draw_schedule(2, recipe, torch.Generator()))
    view = view_of_update(
        model, update, recipe=recipe, shape=(1, 4, 4), classes=CLASSES, examples=2, kind="weights", labels=y
    )
    least = {"p_mean": 1.0, "p_var": 1.0, "q_enhance": LEAST_WEIGHT}
    for weights in (least, {"preset": "none", "q_linear": LEAST_WEIGHT}):
        curve = run(view, steps=30, **weights).curve
        assert min(curve) < 0.5 * curve[0]


def test_stages_are_not_asked_from_within_each_other_without_end() -> None:
    view, _, _ = seen()
    assert run(view, steps=60, kept_every=1).curve == run(view, steps=60).curve
    with pytest.raises(BadInput, match="at least 2 "):
        Awa(steps=61, kept_every=1)


def test_the_network_is_left_alone() -> None:
    view, _, _ = seen()
    before = parameters_of(view.model)
    run(view, steps=2)
    assert all(torch.equal(value, before[name]) for name, value in parameters_of(view.model).items())
