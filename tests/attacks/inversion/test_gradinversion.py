"""gradinversion: its parts by hand, and images from one gradient with and without BatchNorm."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.disclose import disclose
from fedxray.adversary.roles import server
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.gradinversion import (
    GradInversion,
    Langevin,
    consensus,
    known_statistics,
    lowest_rows,
    matched_places,
    statistics_loss,
)
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.data.dataset import Records, Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.models.inspect import batch_statistics
from fedxray.optim import Constant, minimise
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork

CLASSES = 5
SPACE = Space(kind="image", shape=(1, 4, 4), target="classification", classes=tuple(str(n) for n in range(CLASSES)))
ONE_STEP = Recipe(algorithm="fedsgd")


def net(norm: bool = True, momentum: float | None = 0.1) -> nn.Module:
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.BatchNorm2d(6, momentum=momentum)] if norm else []
    more: list[nn.Module] = [nn.Conv2d(6, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=momentum)] if norm else []
    last = nn.Linear(64 if norm else 96, CLASSES)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), *middle, nn.ReLU(), *more, nn.Flatten(), last)


def images(count: int, seed: int = 0) -> Tensor:
    drawn = torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(drawn, size=(4, 4), mode="bilinear")


def view_of(model: nn.Module, x: Tensor, y: Tensor, recipe: Recipe = ONE_STEP, grants: tuple[str, ...] = ()) -> View:
    federation = Federation(space=SPACE, clients=(Records(x, y),), model=model, recipe=recipe)
    transcript, truth = simulate(federation, seed=1)
    names = ["recipe", "examples", *grants]
    return server(transcript, client=0, grants=disclose(truth, names, client=0, transcript=transcript))


def error(evidence: Evidence, x: Tensor) -> float:
    apart = ((evidence.tensors["inputs"][:, None] - x[None]) ** 2).flatten(2).mean(2)
    return float(apart.min(0).values.mean())


def test_images_come_back_from_one_gradient() -> None:
    x, y = images(2), torch.tensor([4, 1])
    evidence = GradInversion(steps=250, restarts=2).run(view_of(net(norm=False), x, y), generator=fork(1))
    assert evidence.status == "ok" and evidence.tensors["labels"].tolist() == [1, 4]
    assert evidence.tensors["inputs"].shape == (2, 1, 4, 4)
    assert error(evidence, x) < 5e-3 < error(evidence, images(2, 8))
    losses = evidence.facts["own_loss"]
    assert len(losses) == 2 and losses[evidence.facts["restart"]] == min(losses)
    assert evidence.facts["bn_statistics"] == "none"


def test_statistics_of_the_client_help_behind_batch_norm() -> None:
    x, y = images(3), torch.tensor([0, 2, 3])
    view = view_of(net(), x, y)

    def found(weight: float) -> Evidence:
        return GradInversion(steps=150, restarts=1, bn=weight).run(view, generator=fork(1))

    with_them, without = found(0.1), found(0.0)
    assert with_them.facts["bn_statistics"] == "returned" and without.facts["bn_statistics"] == "none"
    assert error(with_them, x) < error(without, x)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_returned_running_statistics_give_those_of_one_batch_away(momentum: float | None) -> None:
    view = view_of(net(momentum=momentum), images(3), torch.tensor([0, 2, 3]), grants=("bn-statistics",))
    granted, source = known_statistics(view, view.observations[0], ONE_STEP, 3)
    assert source == "granted"
    bare = replace(view, grants=replace(view.grants, bn_statistics=None))
    returned, source = known_statistics(bare, view.observations[0], ONE_STEP, 3)
    assert source == "returned" and returned.keys() == granted.keys()
    for name, value in granted.items():
        torch.testing.assert_close(returned[name], value, rtol=1e-3, atol=1e-5)


def test_several_steps_give_an_average_away() -> None:
    recipe = Recipe(epochs=3, batch_size=2, learning_rate=0.01)
    view = view_of(net(), images(4), torch.tensor([0, 2, 3, 1]), recipe, grants=("bn-statistics",))
    assert view.grants.bn_statistics is not None
    client_statistics = view.grants.bn_statistics[0]
    bare = replace(view, grants=replace(view.grants, bn_statistics=None))
    returned, _ = known_statistics(bare, view.observations[0], recipe, 4)
    weights = torch.tensor([0.9**late for late in reversed(range(6))])
    expected = (weights[:, None] * client_statistics["1.mean"]).sum(0) / weights.sum()
    torch.testing.assert_close(returned["1.mean"], expected, rtol=1e-3, atol=1e-5)


def test_a_client_that_keeps_its_statistics_leaves_the_running_ones_of_the_model() -> None:
    recipe = Recipe(algorithm="fedsgd", batch_norm="local")
    model = net()
    fresh = view_of(model, images(2), torch.tensor([0, 1]), recipe)
    assert known_statistics(fresh, fresh.observations[0], recipe, 2) == ({}, "running")
    model(images(8))  # takes statistics up
    used = view_of(model, images(2), torch.tensor([0, 1]), recipe)
    client_statistics, source = known_statistics(used, used.observations[0], recipe, 2)
    assert source == "running"
    torch.testing.assert_close(client_statistics["1.mean"], buffers_of(model)["1.running_mean"])


def test_batch_statistics_by_hand() -> None:
    model, x = net(), images(3)
    found = batch_statistics(model)(parameters_of(model), buffers_of(model), x)
    assert not model.state_dict()["1.num_batches_tracked"] and not model[1]._forward_pre_hooks
    maps = torch.conv2d(x, model[0].weight, model[0].bias, padding=1)
    values = maps.permute(1, 0, 2, 3).reshape(6, -1)
    torch.testing.assert_close(found["1.mean"], values.mean(1))
    torch.testing.assert_close(found["1.var"], ((values - values.mean(1)[:, None]) ** 2).sum(1) / 47)
    biased = values.var(1, unbiased=False)
    normed = (maps - values.mean(1).reshape(-1, 1, 1)) / (biased.reshape(-1, 1, 1) + 1e-5).sqrt()
    second = torch.conv2d(normed.relu(), model[3].weight, model[3].bias, padding=1)
    torch.testing.assert_close(found["4.mean"], second.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)


def test_the_loss_of_statistics_vanishes_at_the_truth_and_counts_the_first_layer_ten_times() -> None:
    x = images(3)
    view = view_of(net(), x, torch.tensor([0, 2, 3]), grants=("bn-statistics",))
    seen = view.observations[0]
    wanted, _ = known_statistics(view, seen, ONE_STEP, 3)
    assert statistics_loss(view, seen, ONE_STEP, wanted)(x).item() < 1e-5
    shifted = {name: value + (name == "1.mean") * 1.0 for name, value in wanted.items()}
    deeper = {name: value + (name == "4.mean") * 1.0 for name, value in wanted.items()}
    assert statistics_loss(view, seen, ONE_STEP, shifted)(x).item() == pytest.approx(10 * 6**0.5, rel=1e-4)
    assert statistics_loss(view, seen, ONE_STEP, deeper)(x).item() == pytest.approx(4**0.5, rel=1e-4)
    moved = (x + 0.1).requires_grad_()
    (slope,) = torch.autograd.grad(statistics_loss(view, seen, ONE_STEP, wanted)(moved), moved)
    assert bool(slope.any()) and bool(torch.isfinite(slope).all())


def test_what_guesses_agree_on() -> None:
    labels = torch.tensor([0, 1, 1, 1])
    truth = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    orders = [[0, 1, 2, 3], [0, 3, 1, 2], [0, 2, 1, 3]]
    noise = 0.01 * torch.randn(3, 4, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    guesses = torch.stack([truth[order] for order in orders]) + noise
    found = consensus(guesses, labels)
    undone = torch.stack([guesses[g][torch.tensor(order).argsort()] for g, order in enumerate(orders)])
    for g, order in enumerate(orders):
        torch.testing.assert_close(found[g], undone.mean(0)[order])


def test_matching_is_the_best_of_all_orders_within_a_label() -> None:
    draw = torch.Generator().manual_seed(3)
    left, right = (torch.rand(5, 1, 2, 2, generator=draw) for _ in "ab")
    labels = torch.tensor([2, 0, 2, 0, 2])
    found = matched_places(left, right, labels)

    def apart(order: Any) -> float:
        return float(((left - right[list(order)]) ** 2).sum())

    allowed = [o for o in itertools.permutations(range(5)) if all(labels[i] == labels[j] for i, j in enumerate(o))]
    assert apart(found.tolist()) == pytest.approx(min(apart(order) for order in allowed))


def test_the_group_pulls_guesses_together_once_it_has_begun() -> None:
    attack = GradInversion(steps=40, group=0.3, group_from=0.5)
    guesses = torch.rand(3, 2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    together = attack._together(lambda point: point["inputs"].sum(), torch.tensor([0, 1]))
    plain = guesses.sum().item()
    apart = sum(((one - guesses.mean(0)) ** 2).mean().item() for one in guesses)
    assert together.settled == 20
    assert together.at({"inputs": guesses}, 19).item() == pytest.approx(plain, rel=1e-5)
    assert together.at({"inputs": guesses}, 20).item() == pytest.approx(plain + 0.3 * apart, rel=1e-5)
    leaf = guesses.clone().requires_grad_()
    (slope,) = torch.autograd.grad(together.at({"inputs": leaf}, 30) - leaf.sum(), leaf)
    torch.testing.assert_close(slope, 0.6 * (guesses - guesses.mean(0)) / 32, rtol=1e-4, atol=1e-6)


def test_noise_follows_the_seed_and_the_learning_rate() -> None:
    start = {"x": torch.zeros(2000)}
    flat = {"x": torch.ones(2000)}

    def moved(noise: float, seed: int, step: int = 0) -> Tensor:
        method = Langevin(steps=10, lr=0.5, noise=noise, seed=seed, decay=Constant())
        return method.move(start, flat, method.fresh(start), step)[0]["x"]

    assert torch.equal(moved(0.0, 1), moved(0.0, 2))
    assert torch.equal(moved(0.2, 1), moved(0.2, 1)) and not torch.equal(moved(0.2, 1), moved(0.2, 2))
    assert float((moved(0.2, 1) - moved(0.0, 1)).std()) == pytest.approx(0.1, rel=0.1)
    whole = Langevin(steps=6, lr=0.1, noise=0.3, seed=4)

    def bowl(point: dict[str, Tensor]) -> Tensor:
        return (point["x"] ** 2).sum()

    first = minimise(bowl, {"x": torch.ones(3)}, whole, budget=2)
    resumed = minimise(bowl, {"x": torch.ones(3)}, whole, state=first.state)
    assert torch.equal(resumed.last["x"], minimise(bowl, {"x": torch.ones(3)}, whole).last["x"])


def test_the_papers_rule_for_labels() -> None:
    gradient = torch.tensor([[0.5, 0.1], [-0.9, 2.0], [0.2, -0.1], [-0.3, -0.3]])
    assert lowest_rows(-gradient, 2).tolist() == [1, 3]
    assert lowest_rows(-gradient, 5).tolist() == [0, 1, 1, 2, 3]
    view = view_of(net(norm=False), images(2), torch.tensor([4, 1]))
    evidence = GradInversion(steps=2, restarts=1, distinct_labels=True).run(view, generator=fork(1))
    assert evidence.facts["labels"] == "lowest rows" and evidence.tensors["labels"].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("learning_rate", 0.0), ("restarts", 0), ("tv", -1.0), ("norm", float("inf")), ("bn", -0.1),
     ("group", -1.0), ("noise", float("nan")), ("group_from", 1.5), ("at", "middle"), ("batch_norm", "eval"),
     ("labels", LastReturned())],
)  # fmt: skip
def test_wrong_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput):
        GradInversion(**{name: value})
