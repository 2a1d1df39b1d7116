"""What the simulations of the family have in common and where they coincide (facts of the paper)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.inversion.distance import BY_DEPTH, DISTANCES, depth_weights, distance_named
from fedxray.attacks.inversion.dlf import Dlf, Objective, Simulation, objective, simulation, what_is_known
from fedxray.attacks.inversion.replay import (
    one_step,
    one_step_per_epoch,
    pulled,
    schedule_of_epochs,
    segment_length,
    straight_schedule,
)
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.priors import EPOCH_PRIORS
from tests.attacks.inversion.clients import plain_update
from tests.attacks.inversion.dlf_views import client_view, context
from tests.attacks.labels.heads import as_sum

recipes = st.builds(
    Recipe,
    epochs=st.integers(1, 4),
    batch_size=st.sampled_from([1, 2, 3, 4, "all"]),
    learning_rate=st.sampled_from([0.01, 0.3]),
    momentum=st.sampled_from([0.0, 0.9]),
)


def simulated(view: View, way: str, **changes: Any) -> tuple[Simulation, Objective]:
    """The simulation and the loss of one of the attacks."""
    attack = Dlf(**changes)
    known = what_is_known(view, attack, context())
    merged = {"fedsgd": one_step, "fedsgd-epoch": one_step_per_epoch}
    recipe = merged[way](known.recipe, len(known.labels)) if way in merged else known.recipe
    found = simulation(view, attack, known, recipe, by_epoch=way in ("dlf", "no prior"))
    prior = (lambda x: 1000 * EPOCH_PRIORS["l2-mean"](x, None)) if way == "dlf" else None
    return found, objective(view, attack, found, prior)


def slope(loss: Objective, x: Tensor, step: int = 0) -> tuple[float, Tensor]:
    leaf = x.clone().requires_grad_()
    value = loss.value({"inputs": leaf}, step)
    return float(value.detach()), torch.autograd.grad(value, leaf)[0]


@settings(max_examples=15)
@given(recipe=recipes, count=st.integers(1, 7), seed=st.integers(0, 99))
def test_the_truth_in_its_own_order_matches_exactly(recipe: Recipe, count: int, seed: int) -> None:
    view, x, y, order = client_view(recipe, count, seed=seed)
    rows = torch.cat([order.used(step) for step in range(order.steps)])
    labels = tuple(y[order.used(step)] for step in range(order.steps))
    view = replace(view, grants=replace(view.grants, labels=y, batch_labels={0: labels}))
    one_round, loss = simulated(view, "no prior", total_variation=0.0, clip=0.0)
    assert one_round.sets == recipe.epochs and torch.equal(one_round.labels, y[rows])
    value, _ = slope(loss, x[rows].reshape(recipe.epochs, count, 1, 4, 4))
    scale = sum(float((one**2).sum()) for one in one_round.aim.values())
    assert value <= 1e-8 * (1 + scale)
    wrong, _ = slope(loss, x[rows].reshape(recipe.epochs, count, 1, 4, 4) + 1)
    assert wrong > 100 * value


@pytest.mark.parametrize("batch", [2, 4, "all"])
def test_with_one_epoch_three_attacks_are_one_and_two_are_another(batch: int | str) -> None:
    view, *_ = client_view(Recipe(batch_size=batch, learning_rate=0.1), labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    start = torch.randn(1, 6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    found = {
        way: slope(simulated(view, way)[1], start) for way in ("dlf", "no prior", "shared", "fedsgd-epoch", "fedsgd")
    }
    for same in (("dlf", "no prior", "shared"), ("fedsgd-epoch", "fedsgd")):
        for other in same[1:]:
            assert found[other][0] == found[same[0]][0] and torch.equal(found[other][1], found[same[0]][1])
    if batch != "all":
        assert abs(found["fedsgd"][0] - found["shared"][0]) > 1e-6


@pytest.mark.parametrize("epochs", [2, 3])
def test_with_one_batch_shared_is_fedsgd_epoch(epochs: int) -> None:
    recipe = Recipe(epochs=epochs, batch_size="all", learning_rate=0.3)
    view, *_ = client_view(recipe, labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    start = torch.randn(1, 6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    shared, epoch, fedsgd = (slope(simulated(view, way)[1], start) for way in ("shared", "fedsgd-epoch", "fedsgd"))
    assert shared[0] == epoch[0] and torch.equal(shared[1], epoch[1])
    assert abs(fedsgd[0] - shared[0]) > 1e-6


def slow_loss(view: View, x: Tensor, labels: Tensor, recipe: Recipe, step: int, half: int) -> float:
    """The loss of the authors' code for FEMNIST, from a plain training loop and plain sums."""
    sets, count = x.shape[:2]
    order = schedule_of_epochs(count, recipe)
    guess = plain_update(view.model, x.flatten(0, 1), labels.repeat(sets), recipe, order)
    seen, match, layers = view.observations[0].update, 0.0, []
    for name in dict(view.model.named_parameters()):
        layer = name.rsplit(".", 1)[0]
        layers += [layer] if layer not in layers else []
        apart = (seen[name] - guess[name]) / recipe.learning_rate
        match += math.exp(-layers.index(layer)) * float((apart**2).sum())
    fac = 1.0 * 2.0 ** min(1.0, (step + 1) / half)
    pixels, rough, outside = x.flatten(0, 1), 0.0, 0.0
    for image in pixels:
        for shift in (torch.roll(image, 1, -2), torch.roll(image, 1, -1)):
            rough += float(((image - shift) ** 2).sum()) / len(pixels)
        outside += float(((image - image.clamp(0, 1)) ** 2).sum()) / len(pixels)
    means = [epoch.mean(0) for epoch in x]
    apart = sum(float(((one - other) ** 2).mean()) for one in means for other in means) / sets**2
    return fac * match / order.steps + 1e-3 * rough + 2.0 * outside + 1000 * apart


@pytest.mark.parametrize(("epochs", "batch", "count"), [(3, 2, 6), (2, 4, 6), (1, 6, 6), (2, 3, 5)])
def test_the_loss_against_plain_sums(epochs: int, batch: int, count: int) -> None:
    recipe = Recipe(epochs=epochs, batch_size=batch, learning_rate=0.2)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])[:count]
    view, *_ = client_view(recipe, count, dtype=torch.float64, labels=labels)
    one_round, loss = simulated(view, "dlf", steps=20)
    assert one_round.batches == epochs * -(-count // batch)
    x = torch.randn(epochs, count, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for step in (0, 4, 9, 15):
        assert slope(loss, x, step)[0] == pytest.approx(slow_loss(view, x, labels, recipe, step, 10), rel=1e-9)


def test_the_weight_of_the_match_rises_until_half_of_the_steps() -> None:
    view, *_ = client_view(Recipe(batch_size=2), labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    loss = simulated(view, "dlf", steps=400)[1]
    assert loss.match_weight(0) == pytest.approx(2 ** (1 / 200))
    assert loss.match_weight(99) == pytest.approx(2**0.5)
    assert [loss.match_weight(step) for step in (199, 200, 399)] == [2.0] * 3
    falls = simulated(view, "dlf", steps=400, preset="cifar100")[1]
    assert falls.match_weight(99) == pytest.approx(8**0.5) and falls.match_weight(300) == 2.0
    given = simulated(view, "dlf", steps=400, match_weight=(3.0, 3.0))[1]
    assert {given.match_weight(step) for step in (0, 100, 399)} == {3.0}


def test_layers_count_less_the_deeper_they_are() -> None:
    names = ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "deep.dense.weight", "head.weight"]
    found = depth_weights(names)
    assert found == pytest.approx(
        {name: math.exp(-power) for name, power in zip(names, (0, 0, 1, 1, 2, 3), strict=True)}
    )
    left, right = ({name: torch.full((2,), value) for name in names} for value in (1.0, 3.0))
    expected = 8 * (2 + 2 * math.exp(-1) + math.exp(-2) + math.exp(-3))
    assert float(distance_named(BY_DEPTH, names)(left, right)) == pytest.approx(expected)
    assert all(distance_named(name, names) is DISTANCES[name] for name in DISTANCES)
    with pytest.raises(BadInput, match="match"):
        Dlf(match="l3")


@given(count=st.integers(1, 9), batch=st.integers(1, 10), epochs=st.integers(1, 4))
def test_every_epoch_has_examples_of_its_own_in_the_same_batches(count: int, batch: int, epochs: int) -> None:
    recipe = Recipe(epochs=epochs, batch_size=batch)
    own, once = schedule_of_epochs(count, recipe), straight_schedule(count, recipe)
    used = [own.used(step).tolist() for step in range(own.steps)]
    assert [place for row in used for place in row] == list(range(epochs * count))
    assert [[place % count for place in row] for row in used] == [
        once.used(step).tolist() for step in range(once.steps)
    ]
    assert len(used) == recipe.steps(count) and max(map(len, used)) <= batch


def test_merged_steps_by_hand() -> None:
    recipe = Recipe(epochs=3, batch_size=4, learning_rate=0.1)
    whole, epoch = one_step(recipe, 10), one_step_per_epoch(recipe, 10)
    assert (whole.epochs, whole.batch_size, whole.learning_rate) == (1, "all", pytest.approx(0.9))
    assert (epoch.epochs, epoch.batch_size, epoch.learning_rate) == (3, "all", pytest.approx(0.3))
    gradient = Recipe(algorithm="fedsgd", learning_rate=0.1, epochs=3)
    assert one_step(gradient, 10).learning_rate == one_step_per_epoch(gradient, 10).learning_rate == 0.1
    assert pulled(Recipe(momentum=0.5), 3) == pytest.approx(1 + 1.5 + 1.75)


def test_segments_begin_where_the_graph_would_be_too_large() -> None:
    start = {"weight": torch.zeros(1_000_000)}
    assert segment_length(100, start) is None and segment_length(101, start) == 11
    assert segment_length(500, start) == 23 and segment_length(10, {"weight": torch.zeros(3)}) is None


def test_the_labels_stand_in_the_order_asked_for() -> None:
    counts, labels = torch.tensor([2, 3, 1]), torch.tensor([2, 0, 1, 1, 0, 1])
    recipe = Recipe(batch_size=2)
    counted, named = (client_view(recipe, **grant)[0] for grant in ({"label_counts": counts}, {"labels": labels}))

    def ordered(view: View, order: str, seed: int = 0) -> list[int]:
        return what_is_known(view, Dlf(label_order=order), context(seed)).labels.tolist()

    assert ordered(named, "given") == labels.tolist() and ordered(named, "sorted") == sorted(labels.tolist())
    assert ordered(counted, "sorted") == [0, 0, 1, 1, 1, 2]
    assert ordered(counted, "given") == ordered(counted, "random")
    orders = {tuple(ordered(counted, "given", seed)) for seed in range(8)}
    assert len(orders) > 3 and all(sorted(order) == [0, 0, 1, 1, 1, 2] for order in orders)
    guessed = what_is_known(client_view(recipe)[0], Dlf(), context())
    assert guessed.facts["labels"] == "labels-dlf" and guessed.labels.tolist() == sorted(guessed.labels.tolist())


@pytest.mark.parametrize("way", ["shared", "fedsgd-epoch", "fedsgd"])
def test_the_loss_of_the_baselines_against_plain_sums(way: str) -> None:
    """They have one set of images: the match is divided by its batches, and one step counts for several."""
    recipe, labels = Recipe(epochs=3, batch_size=2, learning_rate=0.2), torch.tensor([0, 1, 2, 0, 1, 2])
    view, *_ = client_view(recipe, 6, dtype=torch.float64, labels=labels)
    one_round, loss = simulated(view, way, total_variation=0.0, clip=0.0, match="l2")
    x = torch.randn(1, 6, 1, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    large = replace(recipe, batch_size="all", learning_rate=0.6)
    slow = {"shared": recipe, "fedsgd-epoch": large, "fedsgd": replace(large, epochs=1, learning_rate=1.8)}[way]
    guess = plain_update(view.model, x[0], labels, slow, straight_schedule(6, slow))
    seen = view.observations[0].update
    match = sum(float(((seen[name] - guess[name]) ** 2).sum()) for name in seen) / recipe.learning_rate**2
    assert one_round.batches == 3
    assert slope(loss, x, 10**6)[0] == pytest.approx(2.0 * match / 3, rel=1e-9)


@pytest.mark.parametrize("way", ["dlf", "shared", "fedsgd-epoch", "fedsgd"])
def test_a_sum_of_alike_clients_is_simulated_in_as_many_steps_as_each_took(way: str) -> None:
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.01)
    view, x, y, _ = client_view(recipe, 6, labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    whole = as_sum(view, 4, recipe, labels=y.repeat(4), contributors=(0, 1, 2, 3))
    one_round, _ = simulated(whole, way)
    sets = one_round.sets
    update = one_round.client.update(x.repeat(4 * sets, 1, 1, 1), y.repeat(4 * sets))
    length = sum(float((one_round.unit * one).detach().square().sum()) for one in update.values())
    assert length / sum(float(one.square().sum()) for one in one_round.aim.values()) == pytest.approx(1, abs=0.4)
    assert len(one_round.client.sizes) == {"dlf": 6, "shared": 6, "fedsgd-epoch": 2, "fedsgd": 1}[way]


@pytest.mark.parametrize("match", ["cosine", "cosine-by-layer"])
def test_with_a_cosine_the_other_terms_are_a_share_of_the_squared_length_of_the_update(match: str) -> None:
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.3)
    view, *_ = client_view(recipe, 6, dtype=torch.float64, labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    x = torch.randn(2, 6, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = {name: simulated(view, "dlf", match=name, steps=400)[1] for name in (match, BY_DEPTH)}
    none: dict[str, Any] = {"total_variation": 0.0, "clip": 0.0, "steps": 400}
    bare = {name: simulated(view, "no prior", match=name, **none)[1] for name in whole}
    held = {name: slope(whole[name], x)[0] - slope(bare[name], x)[0] for name in whole}
    layers = list(dict.fromkeys(name.rsplit(".", 1)[0] for name, _ in view.model.named_parameters()))
    length = sum(
        math.exp(-layers.index(name.rsplit(".", 1)[0])) * float((value / 0.3).square().sum())
        for name, value in view.observations[0].update.items()
    )
    assert held[match] == pytest.approx(held[BY_DEPTH] / (length / 6), rel=1e-6)
    assert slope(bare[match], x)[0] == pytest.approx(2 ** (1 / 200) * float(distance_of(bare[match], x)), rel=1e-9)


def distance_of(loss: Objective, x: Tensor) -> Tensor:
    one_round = loss.simulation
    update = one_round.client.update(x.flatten(0, 1), one_round.labels)
    return loss.distance({name: one_round.unit * value for name, value in update.items()}).detach()
