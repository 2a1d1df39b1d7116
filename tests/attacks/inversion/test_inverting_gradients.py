from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import compute
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.distance import distance_to
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.inversion.problem import drawn_inputs, recipe_of, replayed
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.federation.round_loop import apply_update
from fedxray.progress import Step
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.views import view_of_update

CLASSES = 5


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, CLASSES))


def images(count: int, seed: int = 0) -> Tensor:
    """Smooth pictures in 0..1, shape [count, 1, 4, 4]."""
    drawn = torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(drawn, size=(4, 4), mode="bilinear")


def view_of(
    x: Tensor,
    y: Tensor,
    recipe: Recipe | None = None,
    order: Schedule | None = None,
    with_recipe: bool = True,
    **more: Any,
) -> View:
    model, used = net(), recipe or Recipe(algorithm="fedsgd")
    schedule = order or draw_schedule(len(x), used, torch.Generator().manual_seed(0))
    update = plain_update(model, x, y, used, schedule)
    given = {"examples": len(x), "kind": used.kind, **more}
    return view_of_update(
        model, update, shape=(1, 4, 4), classes=CLASSES, recipe=used if with_recipe else None, **given
    )


def attacked(view: View, seed: int = 1, **settings: Any) -> Evidence:
    return InvertingGradients(**settings).run(view, generator=fork(seed, "test"))


def error(evidence: Evidence, x: Tensor) -> float:
    """Mean square distance of every original to the nearest guess."""
    apart = ((evidence.tensors["inputs"][:, None] - x[None]) ** 2).flatten(2).mean(2)
    return float(apart.min(0).values.mean())


def test_a_single_image_comes_back() -> None:
    x, y = images(1), torch.tensor([3])
    evidence = attacked(view_of(x, y), steps=250)
    assert evidence.kind == "images" and evidence.status == "ok"
    assert evidence.tensors["inputs"].shape == (1, 1, 4, 4)
    assert evidence.tensors["labels"].tolist() == [3]
    assert error(evidence, x) < 1e-3 < error(evidence, images(1, 7))
    assert evidence.facts["labels"] == "labels-idlg" and evidence.facts["round"] == 0


def test_labels_that_were_not_granted_are_cut_into_batches_in_a_drawn_order() -> None:
    """Sorted, as counts come, they would put alike labels into one batch."""
    x, y = images(8), torch.arange(8) % 5
    recipe = Recipe(epochs=1, batch_size=2, learning_rate=0.1)
    view = view_of(x, y, recipe)
    view = replace(view, grants=replace(view.grants, label_counts=torch.bincount(y, minlength=5)))
    labels = attacked(view, steps=1).tensors["labels"].tolist()
    assert sorted(labels) == sorted(y.tolist()) != labels
    whole = view_of(x, y, replace(recipe, batch_size="all"))
    whole = replace(whole, grants=replace(whole.grants, label_counts=torch.bincount(y, minlength=5)))
    assert attacked(whole, steps=1).tensors["labels"].tolist() == sorted(y.tolist())


def test_two_images_come_back() -> None:
    x, y = images(2), torch.tensor([4, 1])
    evidence = attacked(view_of(x, y), steps=400)
    assert sorted(evidence.tensors["labels"].tolist()) == [1, 4]
    assert error(evidence, x) < 5e-3


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_an_update_of_several_local_steps_is_inverted_by_replaying_them(momentum: float) -> None:
    x, y = images(3), torch.tensor([0, 2, 4])
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.1, momentum=momentum, shuffle="never")
    view = view_of(x, y, recipe)
    view = replace(view, grants=replace(view.grants, labels=y))
    evidence = attacked(view, steps=250)
    assert evidence.tensors["labels"].tolist() == [0, 2, 4]
    assert error(evidence, x) < 0.03
    client, seen = replayed(view, view.observations[0], 3, "batch")
    assert all(torch.allclose(value, seen[name], atol=1e-6) for name, value in client.update(x, y).items())


def test_guesses_stay_in_the_range_of_pixels() -> None:
    evidence = attacked(view_of(images(2), torch.tensor([0, 1])), steps=30)
    inputs = evidence.tensors["inputs"]
    assert float(inputs.min()) >= 0 and float(inputs.max()) <= 1


def test_granted_labels_are_used_and_the_label_attack_is_not_run() -> None:
    x, y = images(2), torch.tensor([2, 2])

    def refuse(*_: Any) -> Evidence:
        raise AssertionError("the label attack was run")

    view = view_of(x, y, labels=torch.tensor([2, 2]))
    evidence = InvertingGradients(steps=3).run(view, generator=fork(1), memo=refuse)
    assert evidence.tensors["labels"].tolist() == [2, 2] and evidence.facts["labels"] == "granted"
    counted = view_of(x, y, label_counts=torch.tensor([0, 1, 0, 0, 1]))
    evidence = InvertingGradients(steps=3).run(counted, generator=fork(1), memo=refuse)
    assert evidence.tensors["labels"].tolist() == [1, 4] and evidence.facts["labels"] == "granted counts"


def test_the_label_attack_runs_through_the_memo_with_its_own_draws() -> None:
    reports: list[str] = []

    def memo(attack: Any, view: View, run: Any) -> Evidence:
        reports.append(attack.name)
        return compute(attack, view, run)

    InvertingGradients(steps=2).run(view_of(images(1), torch.tensor([1])), generator=fork(1), memo=memo)
    assert reports == ["labels-idlg"]


def test_restarts_are_chosen_by_the_own_loss() -> None:
    view = view_of(images(2), torch.tensor([0, 1]))
    reports: list[Step] = []
    many = InvertingGradients(steps=20, restarts=3).run(view, generator=fork(1), report=reports.append)
    losses = many.facts["own_loss"]
    assert len(losses) == 3 and losses[many.facts["restart"]] == min(losses) == min(many.curve)
    assert reports[-1].done == reports[-1].total == 60 and reports[0].what == "inverting-gradients"


def test_zeros_that_were_seen_can_be_left_out() -> None:
    view = view_of(images(1), torch.tensor([0]))
    seen = view.observations[0]
    update = {name: value.clone() for name, value in seen.update.items()}
    update["0.weight"][2] = 0.0  # as if a unit had been off
    changed = replace(view, observations=(replace(seen, update=update),))
    client, aim = replayed(changed, changed.observations[0], 1, "batch")
    point = {"inputs": images(1)}
    losses = {
        skip: InvertingGradients(skip_zeros=skip, total_variation=0.0)
        ._loss(client, aim, distance_to(aim, "cosine"), torch.tensor([0]), point)
        .item()
        for skip in (False, True)
    }
    assert losses[True] < 1e-6 < 1e-4 < losses[False]
    assert error(attacked(changed, steps=250, skip_zeros=True), images(1)) < 1e-3


@pytest.mark.parametrize("start", ["normal", "uniform", "grey"])
def test_starts_are_spread_as_they_say(start: Any) -> None:
    view = view_of(images(1), torch.tensor([0]))
    shifted = replace(view, space=replace(view.space, mean=(0.5,), std=(0.25,)))  # valid from -2 to 2
    found = drawn_inputs(shifted, torch.zeros(1), 2000, fork(3), start)
    assert found.shape == (2000, 1, 4, 4)
    wanted = {"normal": 1.0, "uniform": 4 / 12**0.5, "grey": 0.4}[start]
    assert float(found.std()) == pytest.approx(wanted, rel=0.02) and abs(float(found.mean())) < 0.03
    assert start == "normal" or float(found.abs().max()) <= 2.0
    assert torch.equal(found, drawn_inputs(shifted, torch.zeros(1), 2000, fork(3), start))
    assert attacked(view, steps=1, start=start).status == "ok"


def test_the_round_can_be_chosen() -> None:
    first, last = view_of(images(1), torch.tensor([0])), view_of(images(1, 5), torch.tensor([2]))
    both = replace(first, observations=(*first.observations, replace(last.observations[0], round=4)))
    assert attacked(both, steps=2).facts["round"] == 0
    late = attacked(both, steps=250, at="last", labels=LabelsIdlg(at="last"))
    assert late.facts["round"] == 4 and error(late, images(1, 5)) < 1e-3


@pytest.mark.parametrize("match", ["cosine", "cosine-by-layer", "l2", "l1"])
def test_every_way_to_match_goes_down(match: str) -> None:
    evidence = attacked(view_of(images(1), torch.tensor([1])), steps=100, match=match)
    assert min(evidence.curve) < 0.3 * evidence.curve[0]


def test_smoothness_pulls_when_asked() -> None:
    def roughness(weight: float) -> float:
        evidence = attacked(view_of(images(1), torch.tensor([1])), steps=60, total_variation=weight)
        return float(evidence.tensors["inputs"].diff(dim=-1).abs().mean())

    assert roughness(10.0) < 0.5 * roughness(0.0)


def test_an_update_that_is_not_finite_is_an_outcome() -> None:
    view = view_of(images(1), torch.tensor([1]))
    seen = view.observations[0]
    broken = {name: value * float("nan") if "0." in name else value for name, value in seen.update.items()}
    evidence = attacked(replace(view, observations=(replace(seen, update=broken),)), steps=5)
    assert evidence.status == "diverged" and evidence.reason
    assert bool(torch.isfinite(evidence.tensors["inputs"]).all())


def test_a_sum_under_fedsgd_is_the_gradient_of_everyones_images() -> None:
    x, y = images(2), torch.tensor([4, 1])
    recipe = Recipe(algorithm="fedsgd", server_learning_rate=0.3)
    view = view_of(x, y, recipe)
    seen = view.observations[0]
    change = apply_update(seen.start, seen.update, recipe)
    change = {name: value - seen.start[name] for name, value in change.items()}
    whole: Observation = replace(seen, update=change, kind="weights", contributors=None)
    sums = replace(view, target=None, role="secure-aggregation", observations=(whole,))
    client, aim = replayed(sums, whole, 2, "batch")
    assert all(torch.allclose(value, aim[name], atol=1e-4) for name, value in client.update(x, y).items())
    assert error(attacked(sums, steps=400, match="cosine"), x) < 5e-3


def test_one_gradient_needs_no_recipe_but_weights_do() -> None:
    x, y = images(2), torch.tensor([4, 1])
    gradient = view_of(x, y, with_recipe=False)
    used = recipe_of(gradient, gradient.observations[0])
    assert used is not None and used.kind == "gradient"
    assert attacked(gradient, steps=2).status == "ok"
    with pytest.raises(Refused, match="recipe") as refusal:
        attacked(view_of(x, y, Recipe(batch_size=2), with_recipe=False))
    assert 'grants = ["recipe"]' in refusal.value.remedy


def test_other_needs_are_named() -> None:
    x, y = images(2), torch.tensor([4, 1])
    with pytest.raises(Refused, match="number of examples"):
        attacked(view_of(x, y, examples=None))
    with pytest.raises(Refused, match="an update"):
        attacked(view_of(x, y).without_messages())
    table = view_of(x, y)
    with pytest.raises(Refused, match="image"):
        attacked(replace(table, space=replace(table.space, kind="table")))
    headless = replace(table, model=nn.Sequential(nn.Conv2d(1, 5, 4), nn.Flatten()))
    with pytest.raises(Refused, match="linear last layer") as refusal:
        attacked(headless)
    assert 'grants = ["labels"]' in refusal.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("learning_rate", -1.0),
        ("total_variation", -0.1),
        ("total_variation", float("inf")),
        ("match", "cosin"),
        ("restarts", 0),
        ("start", "black"),
        ("at", "middle"),
        ("batch_norm", "eval"),
        ("labels", LastReturned()),
    ],
)
def test_wrong_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput):
        InvertingGradients(**{name: value})
