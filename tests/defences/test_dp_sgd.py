"""DP-SGD in a step: no example counts more than the clip, and the noise is as large as asked for."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.defences.base import ExampleGradients, Work, example_norms
from fedxray.defences.dp_sgd import DpSgd, clip_examples
from fedxray.errors import BadInput
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import continue_run, simulate
from fedxray.params import Params, parameters_of
from fedxray.seeds import fork
from tests.defences.test_noise import assert_normal
from tests.federation.runs import federation, network, records


@given(
    rows=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=5, max_size=5), min_size=1, max_size=4),
    clip=st.floats(1e-3, 1e4),
)
def test_no_example_is_longer_than_the_clip_and_directions_stay(rows: list[list[float]], clip: float) -> None:
    table = torch.tensor(rows, dtype=torch.float64)
    gradients = {"w": table[:, :4].reshape(-1, 2, 2), "b": table[:, 4:]}
    clipped = clip_examples(gradients, clip)
    before, after = example_norms(gradients), example_norms(clipped)
    assert bool((after <= clip * (1 + 1e-9)).all())
    for row, (old, new) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        if old <= clip:
            assert all(torch.equal(value[row], gradients[name][row]) for name, value in clipped.items())
        else:
            assert new == pytest.approx(clip, rel=1e-9)
            for name, value in clipped.items():
                torch.testing.assert_close(value[row] * old / clip, gradients[name][row], rtol=1e-9, atol=1e-9)


def test_a_gradient_of_zero_stays_zero() -> None:
    assert torch.equal(clip_examples({"w": torch.zeros(2, 3)}, 1.0)["w"], torch.zeros(2, 3))


def defence(clip: float = 1.0, noise: float = 0.0, **more: Any) -> DpSgd:
    return DpSgd(**{"clip": clip, "noise_multiplier": noise, "sampling": "shuffle", **more})


def step(used: DpSgd, seed: int = 0) -> dict[str, torch.Tensor]:
    """The update of one step at a learning rate of one, which is minus the gradient that was used."""
    model, data = network("mlp", torch.float64), records(6, dtype=torch.float64)
    recipe = Recipe(learning_rate=1.0)
    batch, evaluate = Batch(x=data.x, y=data.y), objective(model, recipe.loss)
    hooks = used.hooks(Work(examples=6, batch_size=6, steps=1, rounds=1))
    return local_update(
        parameters_of(model), {}, [batch], recipe, evaluate, hooks=hooks, generator=fork(seed, "draw")
    ).update


def test_a_step_equals_a_loop_over_the_examples() -> None:
    model, data, clip = network("mlp", torch.float64), records(6, dtype=torch.float64), 0.4
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    cut = 0
    for x, y in zip(data.x, data.y, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        length = torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None]).norm()
        cut += int(length > clip)
        for name, value in model.named_parameters():
            assert value.grad is not None
            total[name] += value.grad * min(1.0, clip / float(length))
    assert cut > 0
    found = step(defence(clip=clip))
    for name, value in total.items():
        torch.testing.assert_close(found[name], -value / 6, rtol=1e-10, atol=1e-12)


def test_a_large_clip_without_noise_is_plain_training() -> None:
    model, data = network("mlp", torch.float64), records(6, dtype=torch.float64)
    recipe, batch = Recipe(learning_rate=1.0), Batch(x=data.x, y=data.y)
    plain = local_update(parameters_of(model), {}, [batch], recipe, objective(model, recipe.loss)).update
    for name, value in step(defence(clip=1e9)).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-10, atol=1e-12)


def test_the_noise_is_drawn_once_per_step_for_the_sum() -> None:
    hook = defence(clip=2.0, noise=1.5).hooks(Work(examples=20, batch_size=10, steps=2, rounds=1)).gradients
    assert hook is not None
    value = ExampleGradients(each={"w": torch.zeros(7, 200, 100)}, divisor=torch.tensor(7.0))
    noised, _ = hook(value, None, fork(0, "noise"))
    assert noised.extra is not None
    assert_normal(noised.extra["w"], 3.0)
    assert_normal(noised.combined()["w"], 0.3)  # divided by a full batch of 10, not by the 7 that came
    twice, _ = hook(noised, None, fork(1, "noise"))
    assert twice.extra is not None
    assert_normal(twice.extra["w"], 3.0 * 2**0.5)


def test_an_empty_batch_is_a_step_of_noise() -> None:
    model = torch.nn.Linear(100, 200, bias=False)
    hooks = defence(clip=1.0, noise=2.0, sampling="poisson").hooks(Work(examples=20, batch_size=5, steps=4, rounds=1))
    batch = Batch(x=torch.zeros(0, 100), y=torch.zeros(0, dtype=torch.int64))
    found = local_update(
        parameters_of(model), {}, [batch], Recipe(learning_rate=1.0), objective(model, "cross-entropy"),
        hooks=hooks, generator=fork(0, "draw"),
    ).update  # fmt: skip
    assert_normal(found["weight"], 2.0 / 5)


def test_noise_follows_the_generator() -> None:
    noisy = defence(noise=1.0)
    first, again, other = step(noisy, 0), step(noisy, 0), step(noisy, 1)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["0.weight"], other["0.weight"])


@pytest.mark.parametrize(
    "settings",
    [
        {"clip": 0.0}, {"clip": -1.0}, {"clip": float("nan")}, {"noise_multiplier": -1.0}, {"epsilon": 1.0},
        {"noise_multiplier": None}, {"noise_multiplier": None, "epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0},
        {"sampling": "epoch"}, {"rounds": 0}, {"rounds": True},
    ],
)  # fmt: skip
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        DpSgd(**{"noise_multiplier": 1.0, **settings})


def test_description() -> None:
    assert DpSgd(clip=2.0, epsilon=10.0).describe() == (
        "DP-SGD with epsilon 10, delta 1e-05, example gradients clipped to norm 2, Poisson batches"
    )
    assert "noise multiplier 1.5" in DpSgd(noise_multiplier=1.5).describe()
    assert "shuffled" in defence().describe()


def test_batches_are_drawn_by_chance_unless_told_otherwise() -> None:
    run = federation((30, 40), recipe={"batch_size": 10, "epochs": 3}, defence=DpSgd(noise_multiplier=1.0))
    truth = run.truth(0)
    sizes = [[len(row) for row in truth.schedule(client, round).rows()] for client in (0, 1) for round in (0, 1)]
    assert [len(one) for one in sizes] == [9, 9, 12, 12] and len(set(map(tuple, sizes))) == 4
    assert len({size for one in sizes for size in one}) > 3
    shuffled = federation((30, 40), recipe={"batch_size": 10}, defence=defence(noise=1.0)).truth(0)
    assert [len(row) for row in shuffled.schedule(0, 0).rows()] == [10, 10, 10]


def test_a_run_uses_the_batches_of_the_truth() -> None:
    """Without noise and with a large clip a run over Poisson batches is a sum over them, divided by their mean size."""
    used = DpSgd(noise_multiplier=0.0, clip=1e9)
    run = federation((10,), recipe={"batch_size": 5, "learning_rate": 1.0}, rounds=1, defence=used, dtype=torch.float64)
    transcript, truth = simulate(run, seed=3)
    model = copy.deepcopy(run.model)
    records_ = run.clients[0]
    for row in truth.schedule(0, 0).rows():
        model.zero_grad()
        losses = torch.nn.functional.cross_entropy(model(records_.x[row]), records_.y[row], reduction="sum")
        (losses / 5).backward()
        with torch.no_grad():
            for value in model.parameters():
                assert value.grad is not None
                value -= value.grad
    found = transcript.shelf.get("global/1").params
    for name, value in model.named_parameters():
        torch.testing.assert_close(found[name], value.detach(), rtol=1e-10, atol=1e-12)


def test_a_tampering_server_cannot_ask_for_the_same_noise_twice() -> None:
    run = federation((8, 4), recipe={"batch_size": 4}, defence=DpSgd(noise_multiplier=1.0))
    transcript, _ = simulate(run, seed=1)

    def reply(shift: float) -> dict[str, torch.Tensor]:
        branch = continue_run(run, transcript, seed=1, after=0, clients=[0], rounds=1, tamper=Shift(shift))
        return branch.transcript.shelf.get("reply/1/0").params

    honest = transcript.shelf.get("reply/1/0").params
    asked, near = reply(1e-3), reply(1e-3 + 1e-6)
    assert all(torch.equal(value, again) for value, again in zip(asked.values(), reply(1e-3).values(), strict=True))
    assert all(torch.equal(value, honest[name]) for name, value in reply(0.0).items())  # that round was run
    for one, other in ((asked, near), (asked, honest)):
        gap = torch.cat([(one[name] - other[name]).flatten() for name in one])
        assert float(gap.abs().median()) > 0.01


@dataclass(frozen=True)
class Shift:
    by: float

    def start(self) -> None:
        return None

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, torch.Tensor], Any]:
        return {name: value + self.by for name, value in broadcast.items()}, state

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        return state
