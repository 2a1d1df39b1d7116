"""Every defence of the catalogue: nothing ambient, and what an attacker knows of it is deterministic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedxray.audit import catalog
from fedxray.defences.base import Defence
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import parameters_of
from fedxray.seeds import fork, spell
from tests.federation.runs import federation, network, records
from tests.federation.test_surroundings import double, meta, whole_run

SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "dp-sgd": {"noise_multiplier": 1.0, "clip": 0.1},
    "mixup": {},
    "mixup, drawn": {"mix": "drawn"},
    "gaussian-noise": {"scale": 0.1},
    "gaussian-noise, gradients": {"scale": 0.1, "at": "gradients"},
    "laplace-noise": {"scale": 0.1},
    "laplace-noise, gradients": {"scale": 0.1, "at": "gradients"},
    "pruning": {"share": 0.5},
    "pruning, gradients": {"share": 0.5, "at": "gradients"},
    "pruning, random": {"share": 0.5, "by": "random"},
    "pruning, random, gradients": {"share": 0.5, "by": "random", "at": "gradients"},
    "quantise": {"bits": 4},
    "quantise, sign": {"bits": 1},
    "local-bn": {"keep": "statistics-and-affine"},
    "nvflare-exclude": {"names": "bias"},
    "flower-local-dp": {"clipping_norm": 1.0, "sensitivity": 0.1, "epsilon": 1.0, "delta": 1e-5},
    "flower-fixed-clipping": {"clipping_norm": 0.01},
    "mixup+dp-sgd+quantise": {"noise_multiplier": 1.0},
}
SETTINGS |= {name: {} for name in catalog.DEFENCES if name not in SETTINGS}  # all others with their defaults


def made(case: str) -> Defence:
    return catalog.make_defence(case.partition(",")[0], SETTINGS[case])


def network_for(case: str) -> str:
    return "norm" if case.startswith("local-bn") else "mlp"


@pytest.mark.parametrize("surroundings", [meta, double])
@pytest.mark.parametrize("case", SETTINGS)
def test_surroundings_change_nothing(case: str, surroundings: Callable[[], Any]) -> None:
    work = whole_run(network_for(case), made(case))
    expected = work()
    with surroundings():
        found = work()
    for before, after in zip(expected, found, strict=True):
        for name, value in before.items():
            assert after[name].dtype == value.dtype and after[name].device.type == "cpu"
            assert torch.equal(after[name], value)


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_are_plain_values_and_hooks_the_same_each_time(case: str) -> None:
    defence = made(case)
    assert spell(defence) == spell(made(case)) and defence.describe()
    run = federation((8, 4), model=network_for(case), recipe={"batch_size": 4}, defence=defence)
    first, second = (defence.hooks(run.work(0)) for _ in range(2))
    assert (first.sampling, first.mixed, first.kept) == (second.sampling, second.mixed, second.kept)


@pytest.mark.parametrize("case", SETTINGS)
def test_what_is_replayed_has_no_chance_and_lets_gradients_pass(case: str) -> None:
    """Two generators give one update; it can be differentiated in the inputs, where the plain one can."""
    run = federation((8, 4), model=network_for(case), recipe={"batch_size": 4}, defence=made(case))
    told = run.defence.hooks(run.work(0)).known
    if told is None:
        return
    data, model, recipe = records(4), network("smooth"), Recipe(learning_rate=0.1)
    updates = []
    for seed in (0, 1):
        x = data.x.clone().requires_grad_()
        result = local_update(
            parameters_of(model), {}, [Batch(x=x, y=data.y)], recipe, objective(model, recipe.loss),
            hooks=told.replay, generator=fork(seed), keep_graph=True,
        )  # fmt: skip
        (slope,) = torch.autograd.grad(sum(value.square().sum() for value in result.update.values()), x)  # type: ignore[arg-type]
        assert bool(slope.any()) and bool(slope.isfinite().all())
        updates.append(result.update)
    assert all(torch.equal(value, updates[1][name]) for name, value in updates[0].items())
