"""One client's work: equal to a loop by hand, differentiable, without changes to its arguments, also in segments."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from fedxray.data.dataset import Records
from fedxray.defences.base import Hooks
from fedxray.federation.local import Batch, LocalResult, checkpointed, in_train_mode, local_update, objective
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.params import add, buffers_of, each, parameters_of, subtract
from fedxray.seeds import fork
from tests.attacks.inversion.clients import examples, small_net
from tests.federation.loops import by_hand, relative_difference
from tests.federation.runs import CLASSES, FEATURES, network, records

# The local steps

VARIANTS: list[dict[str, Any]] = [
    {},
    {"epochs": 3},
    {"epochs": 3, "shuffle": "once"},
    {"epochs": 2, "shuffle": "never"},
    {"batch_size": "all", "epochs": 4},
    {"batch_size": 100},
    {"momentum": 0.9, "epochs": 2},
    {"algorithm": "fedprox", "mu": 0.7, "epochs": 3},
    {"algorithm": "fedprox", "mu": 0.3, "momentum": 0.5, "epochs": 2},
    {"algorithm": "fedsgd"},
]


def run(model: nn.Module, data: Records, schedule: Schedule, recipe: Recipe, **more: Any) -> LocalResult:
    batches = [Batch(x=data.x[used], y=data.y[used]) for used in map(schedule.used, range(schedule.steps))]
    evaluate = objective(model, recipe.loss)
    return local_update(parameters_of(model), buffers_of(model), batches, recipe, evaluate, **more)


def recipe_of(**settings: Any) -> Recipe:
    return Recipe(**{"batch_size": 4, "learning_rate": 0.1, **settings})


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("kind", ["mlp", "norm"])
def test_equals_a_loop_by_hand(kind: str, variant: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    recipe, model, data = recipe_of(**variant), network(kind, dtype), records(11, dtype=dtype)
    if kind == "norm" and variant.get("batch_size") == 100:
        data = records(12, dtype=dtype)
    schedule = draw_schedule(len(data), recipe, fork(0, "order"))
    result = run(model, data, schedule, recipe)
    update, buffers = by_hand(model, data, schedule, recipe)
    assert relative_difference(result.update, update) < tolerance
    for name, value in buffers.items():
        torch.testing.assert_close(result.buffers[name], value, rtol=tolerance, atol=tolerance)
    assert all(value.dtype == dtype for value in result.update.values())


def test_regression_equals_a_loop_by_hand() -> None:
    recipe, data = recipe_of(loss="mse", epochs=2), records(9, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    data = Records(data.x, data.x.sum(1))
    schedule = draw_schedule(9, recipe, fork(0, "order"))
    assert (
        relative_difference(run(model, data, schedule, recipe).update, by_hand(model, data, schedule, recipe)[0])
        < 1e-10
    )


def test_a_linear_model_by_hand() -> None:
    """One step on one example with the mean squared error: w + rate * 2 (y - wx) x."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1.0]]))
    data = Records(torch.tensor([[3.0, 1.0]]), torch.tensor([4.0]))
    result = run(model, data, Schedule(torch.tensor([[0]])), recipe_of(loss="mse", learning_rate=0.5))
    torch.testing.assert_close(result.update["weight"], torch.tensor([[0.5 * 2 * 2 * 3.0, 0.5 * 2 * 2 * 1.0]]))


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_can_be_differentiated_in_inputs_and_soft_labels(variant: dict[str, Any], summed: bool) -> None:
    recipe, model = recipe_of(**variant), network("smooth", torch.float64)
    schedule = draw_schedule(5, recipe, fork(1, "order"))
    source = fork(0, "x")
    x = torch.randn(5, FEATURES, generator=source, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, CLASSES, generator=source, dtype=torch.float64, requires_grad=True)

    def update(inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        data = Records(inputs, torch.softmax(labels, -1))
        result = run(model, data, schedule, recipe, keep_graph=True, summed=summed)
        return tuple(result.update.values())

    assert torch.autograd.gradcheck(update, (x, y), atol=1e-6)


def test_can_be_differentiated_through_batch_norm_and_in_the_start() -> None:
    recipe, model = recipe_of(epochs=2), network("norm", torch.float64)
    model[2] = nn.Tanh()
    data = records(6, dtype=torch.float64)
    rows = [Batch(x=data.x[:3], y=data.y[:3]), Batch(x=data.x[3:], y=data.y[3:])]
    evaluate, names = objective(model, recipe.loss), list(parameters_of(model))

    def update(x: Tensor, *start: Tensor) -> tuple[Tensor, ...]:
        batches = [Batch(x=x, y=data.y[:3]), rows[1]]
        given = dict(zip(names, start, strict=True))
        result = local_update(given, buffers_of(model), batches, recipe, evaluate, keep_graph=True)
        return tuple(result.update.values())

    start = [value.requires_grad_() for value in parameters_of(model).values()]
    assert torch.autograd.gradcheck(update, (data.x[:3].clone().requires_grad_(), *start), atol=1e-6)


def test_with_and_without_a_graph_the_update_is_the_same() -> None:
    recipe, model, data = recipe_of(epochs=2, momentum=0.5), network("norm"), records(8)
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    plain, kept = (run(model, data, schedule, recipe, keep_graph=graph) for graph in (False, True))
    assert all(torch.equal(plain.update[name], value) for name, value in kept.update.items())
    assert not any(value.requires_grad for value in (*plain.update.values(), *plain.buffers.values()))
    with torch.no_grad():
        silent = run(model, data, schedule, recipe)
    assert all(torch.equal(plain.update[name], value) for name, value in silent.update.items())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("kind", ["mlp", "norm"])
def test_summed_steps_are_end_minus_start_within_rounding(kind: str, variant: dict[str, Any]) -> None:
    recipe, model, data = recipe_of(**variant), network(kind, torch.float64), records(12, dtype=torch.float64)
    schedule = draw_schedule(12, recipe, fork(0, "order"))
    shifted = Hooks(incoming=lambda params, state, _: ({name: value + 0.5 for name, value in params.items()}, state))
    for hooks in (Hooks(), shifted):
        plain, summed = (run(model, data, schedule, recipe, hooks=hooks, summed=both) for both in (False, True))
        assert relative_difference(summed.update, plain.update) < 1e-12
        assert all(torch.equal(summed.buffers[name], value) for name, value in plain.buffers.items())


def test_summed_steps_keep_what_the_difference_of_weights_loses() -> None:
    """Scales of norm layers start at 1: in single precision a step of a millionth is hardly there."""
    errors: dict[bool, list[float]] = {False: [], True: []}
    for recipe in (recipe_of(learning_rate=2e-7), recipe_of(learning_rate=2e-7, epochs=2, momentum=0.9)):
        schedule = draw_schedule(8, recipe, fork(0, "order"))
        exact, _ = by_hand(network("norm", torch.float64), records(8, dtype=torch.float64), schedule, recipe)
        for summed, by_layer in errors.items():
            update = run(network("norm"), records(8), schedule, recipe, summed=summed).update
            apart = update["1.weight"].double() - exact["1.weight"]
            by_layer.append(float(apart.norm() / exact["1.weight"].norm()))
    assert min(errors[False]) > 0.2 and max(errors[True]) < 1e-3, errors


@pytest.mark.parametrize("kind", ["mlp", "norm", "dropout"])
def test_nothing_that_was_given_is_changed(kind: str) -> None:
    recipe, model, data = recipe_of(epochs=2), network(kind), records(8)
    model.eval()
    before = copy.deepcopy(model.state_dict())
    start, buffers = parameters_of(model), buffers_of(model)
    kept = each(torch.clone, start), each(torch.clone, buffers), data.x.clone()
    batches = [Batch(x=data.x[:4], y=data.y[:4]), Batch(x=data.x[4:], y=data.y[4:])]
    local_update(start, buffers, batches, recipe, objective(model, recipe.loss))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, kept[0][name]) for name, value in start.items())
    assert all(torch.equal(value, kept[1][name]) for name, value in buffers.items())
    assert torch.equal(data.x, kept[2]) and not any(value.requires_grad for value in start.values())


def test_clients_train_in_train_mode_whatever_mode_the_model_is_in() -> None:
    model, data, recipe = network("norm"), records(8), recipe_of()
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    awake = run(model, data, schedule, recipe)
    asleep = run(model.eval(), data, schedule, recipe)
    assert all(torch.equal(value, asleep.update[name]) for name, value in awake.update.items())
    assert not torch.equal(awake.buffers["1.running_mean"], buffers_of(model)["1.running_mean"])
    assert in_train_mode(model) is not model
    assert in_train_mode(model.train()) is model


def test_frozen_parameters_stay_with_the_model() -> None:
    model, data, recipe = network("mlp", torch.float64), records(8, dtype=torch.float64), recipe_of(epochs=2)
    for value in model[0].parameters():
        value.requires_grad_(False)
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    result = run(model, data, schedule, recipe)
    assert list(result.update) == ["2.weight", "2.bias"]
    assert relative_difference(result.update, by_hand(model, data, schedule, recipe)[0]) < 1e-10


class Tied(nn.Module):
    """Two uses of one weight."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.again = nn.Linear(FEATURES, FEATURES)
        self.again.weight = self.inner.weight
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.again(torch.tanh(self.inner(x)))))
        return found


def test_shared_weights_stay_shared() -> None:
    torch.manual_seed(0)
    model, data, recipe = Tied().double(), records(8, dtype=torch.float64), recipe_of(epochs=2)
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    result = run(model, data, schedule, recipe)
    assert "again.weight" not in result.update
    assert relative_difference(result.update, by_hand(model, data, schedule, recipe)[0]) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_train_too(dtype: torch.dtype) -> None:
    recipe, data = recipe_of(), records(8)
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    exact = run(network("mlp"), data, schedule, recipe)
    short = run(network("mlp", dtype), Records(data.x.to(dtype), data.y), schedule, recipe)
    assert all(value.dtype == dtype for value in short.update.values())
    assert relative_difference(each(Tensor.float, short.update), exact.update) < 0.2


def test_weights_of_zero_are_as_if_the_example_were_not_there() -> None:
    recipe, model, data = recipe_of(), network("mlp", torch.float64), records(5, dtype=torch.float64)
    evaluate = objective(model, recipe.loss)
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    padded = local_update(parameters_of(model), {}, [Batch(x=data.x, y=data.y, weight=weight)], recipe, evaluate)
    some = [0, 2, 3]
    short = local_update(parameters_of(model), {}, [Batch(x=data.x[some], y=data.y[some])], recipe, evaluate)
    assert relative_difference(padded.update, short.update) < 1e-12


def test_the_four_hooks_are_called_in_order_with_state() -> None:
    calls: list[str] = []

    def hook(name: str) -> Any:
        def apply(value: Any, state: Any, generator: torch.Generator) -> tuple[Any, Any]:
            calls.append(f"{name}{state or 0}")
            return value, (state or 0) + 1

        return apply

    hooks = Hooks(incoming=hook("i"), batch=hook("b"), gradients=hook("g"), outgoing=hook("o"))
    recipe, model, data = recipe_of(), network("mlp", torch.float64), records(8, dtype=torch.float64)
    schedule = draw_schedule(8, recipe, fork(0, "order"))
    result = run(model, data, schedule, recipe, hooks=hooks)
    assert calls == ["i0", "b0", "g0", "b1", "g1", "o0"]
    assert relative_difference(result.update, run(model, data, schedule, recipe).update) < 1e-12


def test_an_update_is_measured_from_what_was_sent() -> None:
    """A defence that changes the incoming model cannot hide that change from the server."""
    recipe, model, data = recipe_of(), network("mlp", torch.float64), records(8, dtype=torch.float64)
    schedule = draw_schedule(8, recipe, fork(0, "order"))

    def shifted(params: dict[str, Tensor], state: Any, generator: torch.Generator) -> tuple[dict[str, Tensor], Any]:
        return {name: value + 1 for name, value in params.items()}, state

    result = run(model, data, schedule, recipe, hooks=Hooks(incoming=shifted))
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for value in moved.parameters():
            value += 1
    update, _ = by_hand(moved, data, schedule, recipe)
    end = add(parameters_of(moved), update)
    assert relative_difference(result.update, subtract(end, parameters_of(model))) < 1e-10


@settings(max_examples=25)
@given(
    count=st.integers(1, 9), batch=st.integers(1, 6), epochs=st.integers(1, 3), seed=st.integers(0, 99),
    shuffle=st.sampled_from(["epoch", "once", "never"]), momentum=st.sampled_from([0.0, 0.8]),
)  # fmt: skip
def test_any_sizes_equal_the_loop_by_hand(
    count: int, batch: int, epochs: int, seed: int, shuffle: Any, momentum: float
) -> None:
    recipe = recipe_of(batch_size=batch, epochs=epochs, shuffle=shuffle, momentum=momentum)
    model, data = network("mlp", torch.float64), records(count, seed, torch.float64)
    schedule = draw_schedule(count, recipe, fork(seed, "order"))
    result = run(model, data, schedule, recipe)
    assert relative_difference(result.update, by_hand(model, data, schedule, recipe)[0]) < 1e-9


# Gradient checkpointing


def test_values_and_gradients_are_those_of_the_work_itself() -> None:
    calls: list[bool] = []

    def work(tensors: Sequence[Tensor], keep_graph: bool) -> tuple[Tensor, ...]:
        calls.append(keep_graph)
        a, b, count = tensors
        return a * b.sin() * count, (a**2).sum()[None], count + 1

    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    count = torch.tensor([1, 2, 3])
    found, plain = checkpointed(work, (a, b, count)), work((a, b, count), True)
    assert all(torch.equal(left, right) for left, right in zip(found, plain, strict=True))
    assert not found[2].requires_grad
    slopes = [torch.autograd.grad(one[0].sum() + 3 * one[1].sum(), (a, b)) for one in (found, plain)]
    assert all(torch.equal(left, right) for left, right in zip(*slopes, strict=True))
    assert calls == [False, True, True]
    twice = torch.autograd.grad(checkpointed(work, (a, b, count))[0].sum(), a, create_graph=True)[0]
    with pytest.raises(RuntimeError):  # of first order only, and it says so
        torch.autograd.grad(twice.sum(), b)


@pytest.mark.parametrize("segment", [1, 2, 3, 7, 50])
@pytest.mark.parametrize(
    ("recipe", "norm"),
    [
        (Recipe(batch_size=3, epochs=3, learning_rate=0.3), False),
        (Recipe(batch_size=3, epochs=3, learning_rate=0.3, momentum=0.9), False),
        (Recipe(batch_size=3, epochs=3, learning_rate=0.3, momentum=0.5), True),
        (Recipe(batch_size=3, epochs=3, learning_rate=0.3, algorithm="fedprox", mu=0.4), False),
    ],
)
@pytest.mark.parametrize("summed", [False, True])
def test_a_round_in_segments_is_the_round(recipe: Recipe, norm: bool, segment: int, summed: bool) -> None:
    model = small_net(torch.float64, norm=norm)
    x, _ = examples(8, torch.float64)
    y = torch.softmax(torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), -1)
    x, y = x.requires_grad_(), y.requires_grad_()
    evaluate = objective(model, "cross-entropy")

    def run(length: int | None) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[Tensor, ...]]:
        cut = [Batch(x=a, y=b) for a, b in zip(x.split(3), y.split(3), strict=True)] * 3
        found = local_update(
            parameters_of(model), buffers_of(model), cut, recipe, evaluate, keep_graph=True, segment=length,
            summed=summed,
        )  # fmt: skip
        loss = sum((value**2).sum() for value in found.update.values())
        return found.update, found.buffers, torch.autograd.grad(loss, (x, y))

    whole, parts = run(None), run(segment)
    assert all(torch.equal(value, parts[0][name]) for name, value in whole[0].items())
    assert whole[1].keys() == parts[1].keys()
    assert all(torch.equal(value, parts[1][name]) for name, value in whole[1].items())
    assert not any(value.requires_grad for value in parts[1].values())
    for left, right in zip(whole[2], parts[2], strict=True):
        assert torch.allclose(left, right, rtol=1e-12, atol=1e-15)


class Held:
    """A tensor that a graph keeps."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_steps_of_a_segment_are_forgotten() -> None:
    model = small_net()
    x, y = examples(4)

    def held_by(segment: int | None) -> int:
        alive: weakref.WeakSet[Held] = weakref.WeakSet()

        def keep(tensor: Tensor) -> Held:
            alive.add(box := Held(tensor))
            return box

        batches = [Batch(x=x.clone().requires_grad_(), y=y) for _ in range(12)]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda box: box.tensor):
            found = local_update(
                parameters_of(model), {}, batches, Recipe(), objective(model, "cross-entropy"),
                keep_graph=True, segment=segment,
            )  # fmt: skip
        assert all(value.requires_grad for value in found.update.values())
        return len(alive)

    assert held_by(3) < held_by(None) / 2


def test_a_segment_without_a_graph_changes_nothing() -> None:
    model = small_net()
    x, y = examples(4)
    batches = [Batch(x=x, y=y)] * 3
    plain, cut = (
        local_update(parameters_of(model), {}, batches, Recipe(), objective(model, "cross-entropy"), segment=part)
        for part in (None, 2)
    )
    assert all(torch.equal(value, cut.update[name]) for name, value in plain.update.items())
