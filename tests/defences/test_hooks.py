"""Hooks joined in order, each part with its own state, and per-example gradients on their way to a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedxray.defences.base import IDENTITY, ExampleGradients, NoDefence, Work, example_norms
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.joined import Joined
from fedxray.defences.noise import GaussianNoise
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import parameters_of
from fedxray.seeds import fork
from tests.federation.runs import network, records

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


def gradients_of_examples() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a gradients hook is shown for one batch, and the same from a loop over the examples."""
    model, data = network("mlp", torch.float64), records(6, dtype=torch.float64)
    shown: list[ExampleGradients] = []

    def look(value: ExampleGradients, state: Any, generator: torch.Generator) -> tuple[ExampleGradients, Any]:
        shown.append(value)
        return value, state

    from fedxray.defences.base import Hooks

    batch = Batch(x=data.x, y=data.y)
    evaluate = objective(model, "cross-entropy")
    local_update(parameters_of(model), {}, [batch], Recipe(), evaluate, hooks=Hooks(gradients=look))
    loop: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for x, y in zip(data.x, data.y, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        for name, value in model.named_parameters():
            assert value.grad is not None
            loop[name].append(value.grad.clone())
    return shown[0].each, {name: torch.stack(values) for name, values in loop.items()}


def test_gradients_of_single_examples_equal_a_loop() -> None:
    shown, loop = gradients_of_examples()
    for name, value in loop.items():
        torch.testing.assert_close(shown[name], value, rtol=1e-12, atol=1e-12)


def test_example_norms_equal_a_loop() -> None:
    shown, _ = gradients_of_examples()
    norms = [torch.cat([value[example].flatten() for value in shown.values()]).norm() for example in range(6)]
    torch.testing.assert_close(example_norms(shown), torch.stack(norms))


def test_combined_is_sum_and_extra_over_the_divisor() -> None:
    each = {"w": torch.tensor([[1.0, 2.0], [3.0, 5.0]])}
    value = ExampleGradients(each=each, divisor=torch.tensor(4.0), extra={"w": torch.tensor([0.0, 1.0])})
    assert torch.equal(value.combined()["w"], torch.tensor([1.0, 2.0]))


def test_no_defence_is_the_identity() -> None:
    assert NoDefence().hooks(WORK) is IDENTITY
    assert not IDENTITY.inside_steps
    assert Joined(parts=(NoDefence(), NoDefence())).hooks(WORK) == IDENTITY


def test_joined_defences_work_one_after_the_other() -> None:
    first, second = DpSgd(clip=0.1, noise_multiplier=1.0), GaussianNoise(scale=0.5)
    joined = Joined(parts=(first, second)).hooks(WORK)
    assert joined.inside_steps and joined.batch is None and joined.incoming is None
    assert joined.outgoing is not None
    update = {"w": torch.zeros(3)}
    noised, _ = joined.outgoing(update, None, fork(0, "draw"))
    alone = second.hooks(WORK).outgoing
    assert alone is not None
    assert torch.equal(noised["w"], alone(update, None, fork(0, "draw"))[0]["w"])
    assert "clipped" in Joined(parts=(first, second)).describe() and "then" in Joined(parts=(first, second)).describe()


def test_every_part_keeps_its_own_state() -> None:
    from dataclasses import dataclass
    from typing import ClassVar

    from fedxray.defences.base import Defence, Hooks

    @dataclass(frozen=True, kw_only=True)
    class Counting(Defence):
        name: ClassVar[str] = "counting"
        step: int

        def hooks(self, work: Work) -> Hooks:
            def count(value: Any, state: Any, generator: torch.Generator) -> tuple[Any, Any]:
                return value, (state or 0) + self.step

            return Hooks(batch=count)

        def describe(self) -> str:
            return "counts"

    batch = Joined(parts=(Counting(step=1), NoDefence(), Counting(step=10))).hooks(WORK).batch
    assert batch is not None
    state = None
    for _ in range(3):
        _, state = batch((torch.zeros(1), torch.zeros(1)), state, fork(0))
    assert state == (3, None, 30)
