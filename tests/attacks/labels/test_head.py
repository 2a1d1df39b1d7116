from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedxray.adversary.view import Own
from fedxray.attacks.labels.last_layer import head_gradient, mean_reply, pulls, returned, statistics
from fedxray.data.dataset import Records
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import apply_update, mean_update
from fedxray.params import parameters_of
from tests.attacks.labels.heads import INPUTS, SameFeatures, as_sum, net, slow_gradient, told_view

FEDSGD = Recipe(algorithm="fedsgd", learning_rate=0.5, server_learning_rate=0.3)
Y = torch.tensor([1, 4, 6, 2, 0, 4])


def test_pulls_are_what_an_optimiser_makes_of_a_gradient() -> None:
    reply = told_view(net(3), Y, Recipe(), kind="weights").observations[0]
    for momentum in (0.0, 0.8):
        recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.05, momentum=momentum)
        found = pulls(reply, recipe, 6)
        assert found is not None and len(found) == 6
        for step in range(6):  # a gradient of one in this step alone
            weight = torch.zeros(1, requires_grad=True)
            optimiser = torch.optim.SGD([weight], lr=0.05, momentum=momentum)
            for place in range(6):
                weight.grad = torch.ones(1) * (place == step)
                optimiser.step()
            assert found[step] == pytest.approx(-float(weight.detach()), rel=1e-5)
    assert pulls(replace(reply, kind="gradient"), None, 6) == [1.0]
    assert pulls(reply, None, 6) is None


def test_the_gradient_of_the_head_against_loops() -> None:
    model = net(2)
    view = told_view(model, Y, Recipe(algorithm="fedsgd"))
    x = torch.randn(len(Y), INPUTS, generator=torch.Generator().manual_seed(0))
    slow = slow_gradient(torch.relu(model[0](x)).detach(), model(x).detach(), Y)  # type: ignore[index]
    found = head_gradient(view, "first")
    assert torch.allclose(found.rows, slow.rows, atol=1e-6)
    assert found.bias is not None and slow.bias is not None and torch.allclose(found.bias, slow.bias, atol=1e-6)
    assert found.pulls.tolist() == [1.0] and found.examples == 6


@pytest.mark.parametrize("recipe", [FEDSGD, Recipe(epochs=2, batch_size=2, server_learning_rate=0.3)])
def test_a_sum_of_clients_that_are_alike_is_one_of_them(recipe: Recipe) -> None:
    single = told_view(net(2), Y, recipe)
    whole = as_sum(single, 3, recipe, names=("contributors", "examples", "recipe"), contributors=(0, 1, 2))
    one, three = head_gradient(single, "first"), head_gradient(whole, "first")
    assert torch.allclose(one.rows, three.rows, rtol=1e-4, atol=1e-7) and three.examples == 18
    assert torch.equal(one.pulls, three.pulls)  # the steps of one client, not of one that is thrice as large
    ends = returned(mean_reply(single, "first")), returned(mean_reply(whole, "first"))
    assert all(torch.allclose(ends[0][name], ends[1][name], atol=1e-6) for name in ends[0])


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_a_curious_client_takes_its_own_reply_out(weighting: str) -> None:
    recipe = Recipe(batch_size="all", weighting=weighting, server_learning_rate=0.7)  # type: ignore[arg-type]
    model = net(4)
    own, other = told_view(model, Y[:2], recipe), told_view(model, Y, recipe, seed=1)
    replies = [view.observations[0] for view in (own, other)]
    mean = mean_update([one.update for one in replies], [2, 6], recipe)
    start = parameters_of(model)
    end = apply_update(start, mean, recipe)
    change = {name: end[name] - value for name, value in start.items()}
    seen = replace(replies[1], update=change, contributors=None, examples=None)
    knowledge = replace(own.grants, contributors=(0, 1), examples=6, names=("contributors", "examples", "recipe"))
    mine = Own(client=0, records=Records(torch.zeros(2, INPUTS), Y[:2]), observations=(replies[0],))
    view = replace(own, target=None, observations=(seen,), grants=knowledge, own=(mine,))
    found = mean_reply(view, "first").update
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in replies[1].update.items())
    unknown = replace(view, grants=replace(knowledge, contributors=None))
    left_in = mean_reply(unknown, "first").update
    assert all(torch.allclose(left_in[name], value, atol=1e-6) for name, value in mean.items())


def test_statistics_against_a_plain_mean() -> None:
    model = net(1)
    one = torch.empty(1, INPUTS)
    found = statistics(model, parameters_of(model), {}, one, 150, torch.Generator().manual_seed(3))
    draw = torch.Generator().manual_seed(3)
    x = torch.cat([torch.randn(count, INPUTS, generator=draw) for count in (60, 60, 30)])
    sums = torch.relu(model[0](x)).detach().sum(1).double()  # type: ignore[index]
    assert torch.allclose(found.prediction, model(x).detach().double().softmax(1).mean(0), atol=1e-6)
    assert float(found.activation) == pytest.approx(float(sums.mean()), rel=1e-6)
    assert float(found.error) == pytest.approx(float(sums.std()) / 150**0.5, rel=1e-5) and found.clear


def test_statistics_are_those_of_the_parameters_given_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    params = {name: 2 * value for name, value in parameters_of(model).items()}
    buffers = {"1.running_mean": torch.full((4,), 0.5)}
    first, second = (
        statistics(model, params, buffers, torch.empty(1, INPUTS), 70, torch.Generator().manual_seed(1))
        for _ in range(2)
    )
    assert torch.equal(first.prediction, second.prediction) and model.training
    assert float(model.get_buffer("1.num_batches_tracked")) == 0
    plain = statistics(model, params, {}, torch.empty(1, INPUTS), 70, torch.Generator().manual_seed(1))
    assert not torch.equal(first.prediction, plain.prediction)


def test_a_head_that_everything_enters_alike_has_exact_statistics() -> None:
    model = SameFeatures(0, 5)
    one = torch.empty(1, INPUTS)
    found = statistics(model, parameters_of(model), {}, one, 10, torch.Generator().manual_seed(0))
    assert float(found.activation) == pytest.approx(float(model.features.sum())) and float(found.error) < 1e-6
    assert torch.allclose(found.prediction, model(one * 0).double().softmax(1)[0].detach(), atol=1e-6)
