"""Stacked clients end at the same weights as alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from fedxray.data.dataset import Records
from fedxray.defences.base import IDENTITY, Hooks, Work
from fedxray.defences.noise import GaussianNoise
from fedxray.federation import cohort
from fedxray.federation.cohort import ClientJob, stacking_pays, train, train_one
from fedxray.federation.local import stacked_layers
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.params import buffers_of, each, parameters_of
from fedxray.seeds import fork
from tests.federation.loops import by_hand, relative_difference
from tests.federation.runs import CLASSES, FEATURES, network, records


def jobs_of(
    model: nn.Module, sizes: list[int], recipe: Recipe, hooks: Hooks = IDENTITY, **more: Any
) -> list[ClientJob]:
    """One job per size, each client starting a little elsewhere."""
    jobs = []
    for client, size in enumerate(sizes):
        source = fork(7, "job", client)
        data = more.get("data", records)(size, client)
        start = each(lambda value, g=source: value + 0.1 * torch.randn(value.shape, generator=g), parameters_of(model))  # type: ignore[misc]
        jobs.append(
            ClientJob(
                client=client,
                start=start,
                buffers=buffers_of(model),
                x=data.x,
                y=data.y,
                schedule=draw_schedule(size, recipe, source),
                hooks=hooks,
                generator=fork(8, "draws", client),
            )
        )
    return jobs


def assert_same_as_alone(model: nn.Module, jobs: list[ClientJob], recipe: Recipe, tolerance: float = 1e-5) -> None:
    together = train(model, jobs, recipe)
    for job, result in zip(jobs, together, strict=True):
        fresh = ClientJob(**{**vars(job), "generator": fork(8, "draws", job.client)})
        assert relative_difference(result.update, train_one(model, fresh, recipe).update) < tolerance


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 17), min_size=2, max_size=6),
    batch=st.integers(1, 7) | st.just("all"),
    variant=st.sampled_from(
        [{}, {"epochs": 3}, {"momentum": 0.9}, {"algorithm": "fedprox", "mu": 0.5}, {"algorithm": "fedsgd"}]
    ),
)
def test_stacked_equals_alone_for_any_sizes(sizes: list[int], batch: Any, variant: dict[str, Any]) -> None:
    recipe = Recipe(**{"batch_size": batch, "learning_rate": 0.1, **variant})
    model = network("mlp")
    assert stacking_pays(jobs_of(model, sizes, recipe))
    assert_same_as_alone(model, jobs_of(model, sizes, recipe), recipe)


def test_unequal_clients_equal_the_loop_by_hand() -> None:
    recipe = Recipe(batch_size=4, learning_rate=0.1, epochs=2, momentum=0.5)
    model = network("mlp")
    jobs = jobs_of(model, [3, 17, 8, 9], recipe)
    for job, result in zip(jobs, train(model, jobs, recipe), strict=True):
        own = network("mlp")
        own.load_state_dict(dict(job.start))
        update, _ = by_hand(own, Records(job.x, job.y), job.schedule, recipe)
        assert relative_difference(result.update, update) < 1e-5


def test_every_client_of_a_stack_is_in_its_own_place() -> None:
    """Groups are sorted by length; the answers come back in the order of the jobs."""
    recipe, model = Recipe(batch_size=2, learning_rate=0.1), network("mlp")
    sizes = [1, 40, 3, 16, 2, 39, 20]
    groups = cohort._groups(jobs_of(model, sizes, recipe))
    assert sorted(place for group in groups for place in group) == list(range(7))
    for group in groups:
        steps = [-(-sizes[place] // 2) for place in group]
        assert steps == sorted(steps, reverse=True) and 2 * steps[-1] >= steps[0]
    assert_same_as_alone(model, jobs_of(model, sizes, recipe), recipe)


@pytest.mark.parametrize("activation", [nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU])
def test_layers_that_may_be_stacked(activation: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Sequential(OrderedDict(first=nn.Linear(FEATURES, 6), bend=activation())),
        nn.Identity(),
        nn.Linear(6, 6),
        nn.ReLU(inplace=True),
        nn.Linear(6, CLASSES, bias=False),
    )
    recipe = Recipe(batch_size=3, learning_rate=0.1)
    assert stacked_layers(model) is not None
    assert_same_as_alone(model, jobs_of(model, [7, 5], recipe), recipe)


def test_a_layer_that_comes_twice_is_applied_twice() -> None:
    once = nn.Tanh()
    model = nn.Sequential(nn.Linear(FEATURES, 6), once, nn.Linear(6, 6), once, nn.Linear(6, CLASSES))
    layers = stacked_layers(model)
    assert layers is not None and len(layers) == 5
    recipe = Recipe(loss="cross-entropy", learning_rate=0.1, batch_size=4)
    assert_same_as_alone(model, jobs_of(model, [9, 7, 8, 9], recipe), recipe)
    shared = nn.Linear(FEATURES, FEATURES)
    assert stacked_layers(nn.Sequential(shared, nn.Tanh(), shared)) is None


def test_a_linear_layer_on_more_dimensions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Flatten(), nn.Linear(8, CLASSES))

    def pairs(count: int, seed: int) -> Records:
        flat = records(2 * count, seed)
        return Records(flat.x.reshape(count, 2, FEATURES), flat.y[:count])

    recipe = Recipe(batch_size=3, learning_rate=0.1)
    assert stacked_layers(model) is not None
    assert_same_as_alone(model, jobs_of(model, [7, 5], recipe, data=pairs), recipe)


class Own(nn.Module):
    """A user's network, whose forward may do anything."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(nn.functional.dropout(x, 0.5, self.training))
        return found


def hooked() -> nn.Module:
    model = network("mlp")
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def frozen() -> nn.Module:
    model = network("mlp")
    model[0].bias.requires_grad_(False)
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    "model",
    [Own(), hooked(), frozen(), tied(), network("norm"), network("dropout"), nn.Sequential(nn.Flatten(0))],
    ids=["own", "hooked", "frozen", "tied", "norm", "dropout", "flatten"],
)
def test_unknown_networks_train_one_by_one(model: nn.Module) -> None:
    assert stacked_layers(model) is None
    if parameters_of(model):
        recipe = Recipe(batch_size=4, learning_rate=0.1)
        assert_same_as_alone(model, jobs_of(model, [8, 8], recipe), recipe, 1e-9)


def test_dropout_draws_from_the_jobs_seed_alone() -> None:
    model, recipe = network("dropout"), Recipe(batch_size=4, learning_rate=0.1)
    state = torch.get_rng_state()
    first = train(model, jobs_of(model, [8, 8], recipe), recipe)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = train(model, jobs_of(model, [8, 8], recipe), recipe)
    for one, other in zip(first, again, strict=True):
        assert all(torch.equal(value, other.update[name]) for name, value in one.update.items())
    jobs = jobs_of(model, [8], recipe)
    other_seed = ClientJob(**{**vars(jobs[0]), "generator": fork(1, "another")})
    assert relative_difference(train_one(model, other_seed, recipe).update, first[0].update) > 1e-3


def test_hooks_before_and_after_the_steps_keep_clients_stacked() -> None:
    model, recipe = network("mlp"), Recipe(batch_size=4, learning_rate=0.1)
    hooks = GaussianNoise(scale=0.5).hooks(Work(examples=8, batch_size=4, steps=2, rounds=1))
    jobs = jobs_of(model, [8, 5, 7], recipe, hooks)
    assert stacking_pays(jobs)
    assert_same_as_alone(model, jobs, recipe)

    def shifted(params: dict[str, Tensor], state: Any, generator: torch.Generator) -> tuple[dict[str, Tensor], Any]:
        return {name: value + 1 for name, value in params.items()}, state

    for algorithm in ("fedavg", "fedsgd"):
        recipe = Recipe(batch_size=4, learning_rate=0.1, algorithm=algorithm)  # type: ignore[arg-type]
        assert_same_as_alone(model, jobs_of(model, [8, 5, 7], recipe, Hooks(incoming=shifted)), recipe)


def test_stacking_is_left_where_it_does_not_pay() -> None:
    recipe = Recipe(batch_size=512, learning_rate=0.1)
    wide = nn.Sequential(nn.Linear(FEATURES, 200_000), nn.ReLU(), nn.Linear(200_000, CLASSES))
    assert not stacking_pays(jobs_of(wide, [2, 2], recipe))
    small = network("mlp")
    assert not stacking_pays(jobs_of(small, [8], recipe))
    gradients = GaussianNoise(scale=0.5, at="gradients").hooks(Work(examples=8, batch_size=4, steps=2, rounds=1))
    assert not stacking_pays(jobs_of(small, [8, 8], recipe, gradients))


def test_large_cohorts_are_cut_into_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, model = Recipe(batch_size=2, learning_rate=0.1), network("mlp")
    monkeypatch.setattr(cohort, "MOST_STACKED", 4)
    jobs = jobs_of(model, [6] * 9, recipe)
    assert [len(group) for group in cohort._groups(jobs)] == [4, 4, 1]
    assert_same_as_alone(model, jobs, recipe)
