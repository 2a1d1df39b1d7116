from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedxray.federation.local import Batch, checkpointed, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import buffers_of, parameters_of
from tests.attacks.inversion.clients import examples, small_net


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
def test_a_round_in_segments_is_the_round(recipe: Recipe, norm: bool, segment: int) -> None:
    model = small_net(torch.float64, norm=norm)
    x, _ = examples(8, torch.float64)
    y = torch.softmax(torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), -1)
    x, y = x.requires_grad_(), y.requires_grad_()
    evaluate = objective(model, "cross-entropy")

    def run(length: int | None) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[Tensor, ...]]:
        cut = [Batch(x=a, y=b) for a, b in zip(x.split(3), y.split(3), strict=True)] * 3
        found = local_update(
            parameters_of(model), buffers_of(model), cut, recipe, evaluate, keep_graph=True, segment=length
        )
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
        local_update(
            parameters_of(model), {}, batches, Recipe(), objective(model, "cross-entropy"), segment=part
        )
        for part in (None, 2)
    )
    assert all(torch.equal(value, cut.update[name]) for name, value in plain.update.items())
