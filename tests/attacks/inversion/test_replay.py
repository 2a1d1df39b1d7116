from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedxray.attacks.inversion.distance import squared_l2
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.inversion.replay import replay, straight_schedule
from fedxray.defences.base import Hooks
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.params import buffers_of, parameters_of
from tests.attacks.inversion.clients import examples, plain_update, small_net


def close(left: dict[str, Tensor], right: dict[str, Tensor], tolerance: float = 1e-6) -> bool:
    return left.keys() == right.keys() and all(
        torch.allclose(value, right[name], rtol=tolerance, atol=tolerance) for name, value in left.items()
    )


recipes = st.builds(
    Recipe,
    algorithm=st.sampled_from(["fedavg", "fedsgd"]),
    epochs=st.integers(1, 4),
    batch_size=st.sampled_from([1, 2, 3, 5, "all"]),
    learning_rate=st.sampled_from([0.01, 0.3]),
    momentum=st.sampled_from([0.0, 0.9]),
    shuffle=st.sampled_from(["epoch", "once", "never"]),
)


@settings(max_examples=40)
@given(recipe=recipes, count=st.integers(1, 7), seed=st.integers(0, 99))
def test_the_truth_replayed_is_the_update_seen(recipe: Recipe, count: int, seed: int) -> None:
    model = small_net()
    x, y = examples(count)
    schedule = draw_schedule(count, recipe, torch.Generator().manual_seed(seed))
    seen = plain_update(model, x, y, recipe, schedule)
    found = replay(model, parameters_of(model), recipe, schedule).update(x, y)
    assert close(found, seen)
    assert float(squared_l2(found, seen).detach()) < 1e-10


@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg"])
def test_of_fedsgd_both_sides_are_negated_where_no_defence_changes_the_reply(algorithm: Any) -> None:
    model, (x, y), recipe = small_net(), examples(4), Recipe(algorithm=algorithm, learning_rate=0.1)
    client = replay(model, parameters_of(model), recipe, straight_schedule(4, recipe))
    update = client.update(x, y)
    turned, aim = client.as_gradient(update)
    sign = -1 if algorithm == "fedsgd" else 1
    assert all(torch.equal(value, sign * update[name]) for name, value in turned.update(x, y).items())
    assert all(torch.equal(value, sign * update[name]) for name, value in aim.items())
    defended = replace(client, hooks=Hooks())
    assert defended.as_gradient(update) == (defended, update)


@pytest.mark.parametrize("recipe", [
    Recipe(algorithm="fedsgd"),
    Recipe(algorithm="fedprox", mu=0.3, epochs=2, batch_size=2, learning_rate=0.3),
    Recipe(epochs=2, batch_size=3, learning_rate=0.2, momentum=0.5),
])  # fmt: skip
def test_stacked_guesses_are_replayed_as_each_by_itself(recipe: Recipe) -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)), examples(5)
    x = torch.randn(2, 5, 6)
    schedule = draw_schedule(5, recipe, torch.Generator().manual_seed(1))
    client = replay(model, parameters_of(model), recipe, schedule)
    together = client.stacked(2)
    assert together is not None
    found = together.update(x, y.expand(2, 5))
    for index in range(2):
        assert close({name: value[index] for name, value in found.items()}, client.update(x[index], y))
    assert replace(client, hooks=Hooks()).stacked(2) is None
    dropping = nn.Sequential(nn.Linear(6, 3), nn.Dropout())
    assert replay(dropping, parameters_of(dropping), recipe, schedule).stacked(2) is None


def test_fedprox_too() -> None:
    model, (x, y) = small_net(), examples(5)
    recipe = Recipe(algorithm="fedprox", mu=0.7, epochs=3, batch_size=2, learning_rate=0.3)
    schedule = draw_schedule(5, recipe, torch.Generator().manual_seed(1))
    found = replay(model, parameters_of(model), recipe, schedule).update(x, y)
    assert close(found, plain_update(model, x, y, recipe, schedule))


def test_the_order_matters_and_straight_is_the_order_of_the_guess() -> None:
    model, (x, y) = small_net(), examples(5)
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.5)
    straight = straight_schedule(5, recipe)
    assert straight.index.tolist() == [[0, 1], [2, 3], [4, -1]] * 2
    turned = Schedule(straight.index.flip(0))
    found = replay(model, parameters_of(model), recipe, straight).update(x, y)
    assert close(found, plain_update(model, x, y, recipe, straight))
    assert not close(found, plain_update(model, x, y, recipe, turned))
    assert straight_schedule(5, Recipe(algorithm="fedsgd", epochs=3)).index.tolist() == [[0, 1, 2, 3, 4]]
    assert straight_schedule(4, Recipe(batch_size="all", epochs=2)).index.tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("recipe", [
    Recipe(algorithm="fedsgd"),
    Recipe(epochs=3, batch_size=2, learning_rate=0.4),
    Recipe(epochs=2, batch_size=2, learning_rate=0.4, momentum=0.5),
])  # fmt: skip
def test_the_gradient_in_inputs_and_soft_labels_is_the_finite_difference(recipe: Recipe) -> None:
    model = small_net(torch.float64)
    x, _ = examples(3, torch.float64)
    logits = torch.randn(3, 3, dtype=torch.float64)
    client = replay(model, parameters_of(model), recipe, draw_schedule(3, recipe, torch.Generator().manual_seed(2)))

    def outputs(guess: Tensor, soft: Tensor) -> tuple[Tensor, ...]:
        return tuple(client.update(guess, soft.softmax(-1)).values())

    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), logits.requires_grad_()), fast_mode=True)


def test_class_numbers_and_certain_probabilities_agree_and_real_targets_work() -> None:
    model, (x, y) = small_net(), examples(4)
    recipe = Recipe(epochs=2, batch_size=3, learning_rate=0.2)
    schedule = straight_schedule(4, recipe)
    client = replay(model, parameters_of(model), recipe, schedule)
    assert close(client.update(x, y), client.update(x, functional.one_hot(y, 3).to(x.dtype)))
    real = Recipe(epochs=2, batch_size=3, learning_rate=0.2, loss="mse")
    targets = torch.linspace(-1, 1, 4)
    found = replay(model, parameters_of(model), real, schedule).update(x, targets)
    assert close(found, plain_update(model, x, targets, real, schedule))


@pytest.mark.parametrize("mode", ["batch", "running"])
def test_batch_norm_in_both_modes(mode: str) -> None:
    model, (x, y) = small_net(norm=True), examples(6)
    model(torch.randn(9, 1, 4, 4))  # moves the running statistics away from their start
    recipe = Recipe(epochs=2, batch_size=3, learning_rate=0.2)
    schedule = straight_schedule(6, recipe)
    model.train(mode == "batch")
    seen = plain_update(model, x, y, recipe, schedule)
    start, buffers = parameters_of(model), buffers_of(model)
    model.train(mode != "batch")  # the mode of the model given does not matter
    found = {
        way: replay(model, start, recipe, schedule, buffers=buffers, batch_norm=way).update(x, y)
        for way in ("batch", "running")
    }
    assert close(found[mode], seen, 1e-5)
    assert not close(found["batch"], found["running"], 1e-5)
    assert close(replay(model, start, recipe, schedule, buffers=buffers).update(x, y), found["batch"], 0)


def test_the_model_given_is_left_alone() -> None:
    model, (x, y) = small_net(norm=True), examples(4)
    before = copy.deepcopy(model.state_dict())
    recipe = Recipe(epochs=2, batch_size=2)
    client = replay(model, parameters_of(model), recipe, straight_schedule(4, recipe), batch_norm="running")
    client.update(x, y)
    replay(model, parameters_of(model), recipe, straight_schedule(4, recipe)).update(x, y)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(layer.training for layer in model.modules())


def test_buffers_of_the_round_are_used_and_the_models_own_fill_what_is_missing() -> None:
    model, (x, y) = small_net(norm=True).eval(), examples(4)
    recipe, start = Recipe(algorithm="fedsgd"), parameters_of(model)
    schedule = straight_schedule(4, recipe)
    own = replay(model, start, recipe, schedule, batch_norm="running").update(x, y)
    moved = {"1.running_mean": torch.ones(3)}
    other = replay(model, start, recipe, schedule, buffers=moved, batch_norm="running").update(x, y)
    model.load_state_dict({**model.state_dict(), **moved})
    assert not close(own, other)
    assert close(other, plain_update(model, x, y, recipe, schedule))


class Attention(nn.Module):
    """Pixels as tokens, one attention layer, a linear head."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.enter = nn.Linear(1, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, 3]."""
        tokens = self.enter(x.flatten(1)[..., None])
        mixed = functional.scaled_dot_product_attention(tokens[:, None], tokens[:, None], tokens[:, None])
        return self.head(mixed[:, 0].mean(1))


def test_attention_can_be_inverted() -> None:
    torch.manual_seed(0)
    model, (x, y) = Attention(), examples(2)
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.3)
    schedule = straight_schedule(2, recipe)
    client = replay(model, parameters_of(model), recipe, schedule)
    seen = plain_update(model, x, y, recipe, schedule)
    guess = torch.zeros_like(x).requires_grad_()
    loss = squared_l2(client.update(guess, y), seen)
    (slope,) = torch.autograd.grad(loss, guess)
    assert float(loss.detach()) > 0 and bool(slope.abs().sum() > 0)
    assert close(client.update(x, y), seen, 1e-5)


def test_dropout_is_off_and_nothing_ambient_is_drawn() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    x, y = examples(3)
    recipe = Recipe(algorithm="fedsgd")
    client = replay(model, parameters_of(model), recipe, straight_schedule(3, recipe))
    before = torch.get_rng_state()
    assert close(client.update(x, y), client.update(x, y), 0)
    assert torch.equal(before, torch.get_rng_state())


def test_frozen_parameters_stay_where_they_are() -> None:
    model, (x, y) = small_net(), examples(3)
    model[0].weight.requires_grad_(False)
    recipe = Recipe(algorithm="fedsgd")
    found = replay(model, parameters_of(model), recipe, straight_schedule(3, recipe)).update(x, y)
    assert "0.weight" not in found and found.keys() == parameters_of(model).keys()


def test_wrong_counts_and_modes_are_refused() -> None:
    model, (x, y) = small_net(), examples(4)
    recipe = Recipe(algorithm="fedsgd")
    client = replay(model, parameters_of(model), recipe, straight_schedule(3, recipe))
    with pytest.raises(BadInput, match="3 of both"):
        client.update(x, y)
    with pytest.raises(BadInput, match="batch_norm"):
        InvertingGradients(batch_norm="eval")  # type: ignore[arg-type]
