"""The learned update map: a small network that equals the large one, and both ways to the point where it vanishes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.base import Context
from fedxray.attacks.local_model.heuristic import (
    LocalModelHeuristic,
    UpdateMap,
    fit_update_map,
    make_ground,
    raw_network,
    span_of,
)
from fedxray.attacks.local_model.linear import LocalModelLinearForward
from fedxray.attacks.local_model.messages import Messages, messages_of_target
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.optim import Adam, Sgd, minimise
from fedxray.progress import silent
from fedxray.seeds import fork

DOUBLE = torch.float64
EVERY_WAY = [(reading, restrict) for reading in ("norm-descent", "follow-update") for restrict in ("none", "span")]


def made_view(messages: int, parameters: int, *, pull: float = 0.4, noise: float = 0.0) -> tuple[View, Tensor]:
    """A client that pulls every model towards one point, sent models drawn at random."""
    draw = fork(0, "pull", messages, parameters)
    right = torch.randn(parameters, generator=draw, dtype=DOUBLE)
    half = torch.randn(parameters, parameters, generator=draw, dtype=DOUBLE) / parameters**0.5
    matrix = pull * (torch.eye(parameters, dtype=DOUBLE) + 0.1 * (half + half.T))
    seen = []
    for round in range(messages):
        start = torch.randn(parameters, generator=draw, dtype=DOUBLE)
        update = matrix @ (right - start) + noise * torch.randn(parameters, generator=draw, dtype=DOUBLE)
        one = Observation(
            round=round,
            start={"weight": start[None]},
            update={"weight": update[None]},
            kind="weights",
            contributors=(0,),
            examples=None,
        )
        seen.append(one)
    view = View(
        role="server",
        target=0,
        observations=tuple(seen),
        globals=(),
        model=nn.Linear(parameters, 1, bias=False, dtype=DOUBLE),
        space=Space(kind="table", shape=(parameters,), target="regression"),
        loss="mse",
        grants=Grants(),
    )
    return view, right


def answer(attack: LocalModelHeuristic | LocalModelLinearForward, view: View) -> Tensor:
    return attack.run(view, generator=fork(3)).tensors["param:weight"][0]


@pytest.mark.parametrize(
    "settings",
    [{"lr": 0.02}, {"reading": "follow-update", "lr": 0.3}, {"restrict": "span", "lr": 0.02}],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_without_hidden_layers_it_is_least_squares(settings: dict[str, object]) -> None:
    """A linear G that was trained to the end vanishes where the closed form says."""
    view, right = made_view(60, 4, noise=0.05)
    attack = LocalModelHeuristic(hidden=(), fit_steps=1500, fit_lr=0.01, steps=1500, **settings)  # type: ignore[arg-type]
    closed = answer(LocalModelLinearForward(), view)
    assert torch.allclose(answer(attack, view), closed, atol=1e-5)
    assert not torch.allclose(closed, right, atol=1e-5)  # the noise moved both alike


def learned_map(messages: int = 6, parameters: int = 20, *, outside: bool = True) -> tuple[UpdateMap, Tensor]:
    view, _ = made_view(messages, parameters, noise=0.1)
    seen = messages_of_target(view)
    method = Adam(steps=30, lr=0.01)
    found = fit_update_map(seen, (7, 5), method, fork(1), silent, outside=outside)
    return found, seen.starts[-1] + seen.updates[-1]


def large_network(found: UpdateMap, theta: Tensor) -> Tensor:
    """G written out with its first layer [units, parameters] and its last [parameters, units]."""
    models, changes, net = found.models, found.changes, found.network
    first = net["weight0"] @ models.basis.T + (0 if found.outside is None else found.outside)
    last, last_bias = changes.basis @ net["weight2"], changes.basis @ net["bias2"]
    value = (theta - models.middle) / models.size
    value = torch.relu(value @ first.T + net["bias0"])
    value = torch.relu(value @ net["weight1"].T + net["bias1"])
    return changes.middle + changes.size * (value @ last.T + last_bias)


@pytest.mark.parametrize(("reading", "restrict"), EVERY_WAY)
def test_the_small_network_is_the_large_one(reading: str, restrict: str) -> None:
    """Its norm, and the way downhill in all parameters, at places along the walk."""
    found, start = learned_map(outside=restrict == "none")
    ground = make_ground(found, start, reading, restrict)
    usual = found.changes.size**2 + float(found.changes.middle.square().sum())
    for seed in range(3):
        place = 0.3 * torch.randn(ground.directions.shape[1], generator=fork(seed), dtype=DOUBLE)
        theta = (ground.origin + found.models.size * ground.directions @ place).requires_grad_()
        change = large_network(found, theta)
        norm = change.square().sum() / usual
        (slope,) = torch.autograd.grad(norm, theta)
        leaf = place.clone().requires_grad_()
        value = ground.loss(reading)({"place": leaf})
        (small,) = torch.autograd.grad(value, leaf)
        assert float(value.detach()) == pytest.approx(float(norm.detach()), rel=1e-9)
        wanted = slope * found.models.size if reading == "norm-descent" else -change.detach() / found.models.size
        assert torch.allclose(small, ground.directions.T @ wanted, atol=1e-9)
        if restrict == "none":  # the walk could not leave these directions if it had all of them
            assert torch.allclose(torch.linalg.pinv(ground.directions).T @ small, wanted, atol=1e-9)


@pytest.mark.parametrize("parameters", [20, 500])
def test_one_step_of_the_search_means_the_same_in_models_of_any_size(parameters: int) -> None:
    found, start = learned_map(parameters=parameters)
    ground = make_ground(found, start, "norm-descent", "none")
    walked = minimise(ground.loss("norm-descent"), ground.start(), Adam(steps=2, lr=0.1))
    first, second, *_ = walked.curve
    assert second < first


def test_a_step_of_one_adds_the_predicted_change() -> None:
    found, start = learned_map()
    ground = make_ground(found, start, "follow-update", "none")
    walked = minimise(ground.loss("follow-update"), ground.start(), Sgd(steps=1, lr=1.0))
    after = ground.origin + found.models.size * ground.directions @ walked.last["place"]
    assert torch.allclose(after, start + large_network(found, start), atol=1e-9)


@pytest.mark.parametrize("reading", ["norm-descent", "follow-update"])
def test_gradients_move_the_model_by_the_recipe_s_step(reading: Literal["norm-descent", "follow-update"]) -> None:
    """A client that sends gradients is followed as far as one that sends the models these lead to."""
    view, _ = made_view(12, 3)
    recipe = Recipe(algorithm="fedsgd", loss="mse", learning_rate=1 / 64)
    gradients = [
        replace(one, kind="gradient", update={name: 64 * value for name, value in one.update.items()})
        for one in view.observations
    ]
    same = replace(view, observations=tuple(gradients), grants=Grants(names=("recipe",), recipe=recipe))
    attack = LocalModelHeuristic(reading=reading, hidden=(), fit_steps=200, fit_lr=0.05, steps=20, lr=0.1)
    assert torch.allclose(answer(attack, same), answer(attack, view), atol=1e-9)


def test_restricted_it_stays_among_the_models_sent() -> None:
    view, _ = made_view(8, 30, noise=0.1)
    attack = LocalModelHeuristic(restrict="span", fit_steps=40, steps=30)
    found, span = answer(attack, view), span_of(messages_of_target(view).starts, 1e-15)
    assert span.basis.shape == (30, 7)
    away = found - span.middle
    assert float((away - span.basis @ (span.basis.T @ away)).norm()) < 1e-9
    assert float((away).norm()) > 1e-3


def test_it_learns_where_the_update_vanishes() -> None:
    """A small network on many messages of a simple client comes near her point by both readings."""
    view, right = made_view(200, 3)
    last = messages_of_target(view)
    before = float((last.starts[-1] + last.updates[-1] - right).norm())
    for settings in ({"lr": 0.02}, {"reading": "follow-update", "lr": 0.5}):
        attack = LocalModelHeuristic(fit_steps=800, fit_lr=0.01, steps=300, **settings)  # type: ignore[arg-type]
        evidence = attack.run(view, generator=fork(0))
        assert evidence.status == "ok" and evidence.facts["unexplained"] < 0.02
        assert float((evidence.tensors["param:weight"][0] - right).norm()) < 0.35 * before


@pytest.mark.parametrize("messages", [1, 5])
def test_undetermined_when_all_messages_are_about_one_model(messages: int) -> None:
    view, _ = made_view(messages, 6)
    first = view.observations[0]
    same = tuple(replace(one, start=first.start, update=first.update) for one in view.observations)
    evidence = LocalModelHeuristic(steps=3, fit_steps=3).run(replace(view, observations=same), generator=fork(0))
    assert evidence.status == "undetermined" and "same model" in evidence.reason
    last = first.start["weight"] + first.update["weight"]
    assert torch.allclose(evidence.tensors["param:weight"], last)


def test_refuses_impossible_layers() -> None:
    with pytest.raises(BadInput, match="hidden"):
        LocalModelHeuristic(hidden=(8, 0))


@pytest.mark.parametrize("name", ["reading", "restrict"])
def test_refuses_words_that_it_does_not_know(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}: expected one of .*, .*, got 'other'"):
        LocalModelHeuristic(**{name: "other"})  # type: ignore[arg-type]


def direct(attack: LocalModelHeuristic, view: View) -> Tensor:
    """The answer on draws that do not depend on the attack's name and settings."""
    context = Context(generator=fork(3), root=fork(3), memo=lambda _, __, make: make(), report=silent)
    return attack.attack(view, context).tensors["param:weight"][0]


def literal_algorithm(seen: Messages, start: Tensor, network: dict[str, Tensor], *, fit_lr: float, lr: float) -> Tensor:
    """Alg. 2 with torch's own layers and optimiser, the models of lowest loss kept."""
    first, second, last = nn.Linear(20, 7), nn.Linear(7, 5), nn.Linear(5, 20)
    regressor = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()
    with torch.no_grad():
        for number, layer in enumerate((first, second, last)):
            layer.weight.copy_(network[f"weight{number}"])
            layer.bias.copy_(network[f"bias{number}"])
    fitting = torch.optim.Adam(regressor.parameters(), lr=fit_lr)
    lowest, kept = float("inf"), regressor.state_dict()
    for step in range(41):
        loss = ((regressor(seen.starts) - seen.updates) ** 2).sum(1).mean()
        if loss.item() < lowest:
            lowest, kept = loss.item(), {name: value.clone() for name, value in regressor.state_dict().items()}
        if step < 40:
            fitting.zero_grad()
            loss.backward()
            fitting.step()
    regressor.load_state_dict(kept)
    theta = start.clone().requires_grad_()
    searching, lowest, best = torch.optim.Adam([theta], lr=lr), float("inf"), start
    for step in range(31):
        loss = (regressor(theta) ** 2).sum()
        if loss.item() < lowest:
            lowest, best = loss.item(), theta.detach().clone()
        if step < 30:
            searching.zero_grad()
            loss.backward()
            searching.step()
    return best


def test_raw_is_the_algorithm_to_the_letter() -> None:
    view, _ = made_view(6, 20, noise=0.1)
    seen = messages_of_target(view)
    attack = LocalModelHeuristic(reading="raw", hidden=(7, 5), fit_steps=40, fit_lr=0.01, steps=30, lr=0.02)
    start = seen.starts[-1] + seen.updates[-1]
    network = raw_network(20, (7, 5), fork(3), start)
    slow = literal_algorithm(seen, start, network, fit_lr=0.01, lr=0.02)
    assert torch.allclose(direct(attack, view), slow, atol=1e-9)
    assert float((slow - start).norm()) > 0.01


def test_raw_within_the_span_is_refused() -> None:
    with pytest.raises(BadInput, match="restrict"):
        LocalModelHeuristic(reading="raw", restrict="span")
