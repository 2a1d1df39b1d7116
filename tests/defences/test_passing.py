"""A hook may change values only: everything else is refused, naming the hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedxray.defences.base import ExampleGradients, Hooks, changed, entered, mixed, sent
from fedxray.errors import BadInput
from fedxray.seeds import fork

GIVEN = {"w": torch.ones(2, 3), "b": torch.ones(2)}


def only(change: Callable[[dict[str, Tensor]], Any]) -> Callable[..., Any]:
    """Return a hook on parameters that makes this change."""
    return lambda value, state, generator: (change(value), state)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (only(lambda value: {"w": value["w"]}), "'b' left out or added"),
        (only(lambda value: {**value, "z": value["b"]}), "'z' left out or added"),
        (only(lambda value: {**value, "w": value["w"].flatten()}), r"got w torch.float32 \[6\]"),
        (only(lambda value: {**value, "b": value["b"].double()}), r"got b torch.float64 \[2\]"),
        (only(lambda value: {**value, "b": value["b"].numpy()}), "got ndarray"),
        (only(lambda value: list(value.values())), "named tensors from its hook PLACE, got list"),
        (lambda value, state, generator: value, r"a pair \(value, state\) from its hook PLACE, got dict"),
        (lambda value, state, generator: None, r"a pair \(value, state\) from its hook PLACE, got NoneType"),
    ],
)
def test_parameters_of_another_form_are_refused_coming_and_going(step: Any, words: str) -> None:
    for place, go in (("incoming", entered), ("outgoing", sent)):
        with pytest.raises(BadInput, match=words.replace("PLACE", place)):
            go(Hooks(**{place: step}), GIVEN, fork(0))


def test_a_hook_that_writes_into_another_form_is_noticed_and_values_pass() -> None:
    def shrink(value: dict[str, Tensor], state: Any, generator: Any) -> Any:
        value["w"].resize_(1, 3)
        return value, state

    with pytest.raises(BadInput, match="'w' as"):
        sent(Hooks(outgoing=shrink), {name: value.clone() for name, value in GIVEN.items()}, fork(0))
    double = Hooks(outgoing=only(lambda value: {name: 2 * one for name, one in value.items()}))
    assert sent(double, GIVEN, fork(0))["w"].tolist() == [[2.0] * 3] * 2
    assert sent(Hooks(), GIVEN, fork(0)) == GIVEN


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (torch.ones(4, 3), "a pair"),
        ((torch.ones(4, 3), torch.ones(3)), "as many inputs as targets"),
        ((torch.ones(4, 2), torch.ones(4)), r"got x torch.float32 \[4, 2\]"),
        ((torch.ones(4, 3).double(), torch.ones(4)), "got x torch.float64"),
        (([1.0], [2.0]), "got list, list"),
    ],
)
def test_a_batch_of_another_form_is_refused(answer: Any, words: str) -> None:
    batch = (torch.ones(4, 3), torch.ones(4))
    with pytest.raises(BadInput, match=words):
        mixed(lambda value, state, generator: (answer, state), batch, None, fork(0))
    fewer = (torch.ones(2, 3), torch.ones(2))
    assert mixed(lambda value, state, generator: (fewer, 5), batch, None, fork(0)) == (fewer, 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value.each, "ExampleGradients from its hook gradients, got dict"),
        (lambda value: replace(value, each={"w": value.each["w"]}), "'b' left out"),
        (lambda value: replace(value, each={**value.each, "b": torch.ones(4, 5)}), r"'b' as .* \[2\]"),
        (lambda value: replace(value, extra={**value.each}), r"'w' as .* \[2, 3\]"),
    ],
)
def test_gradients_of_another_form_are_refused(change: Any, words: str) -> None:
    value = ExampleGradients(each={"w": torch.ones(4, 2, 3), "b": torch.ones(4, 2)}, divisor=torch.tensor(4.0))
    with pytest.raises(BadInput, match=words):
        changed(lambda one, state, generator: (change(one), state), value, None, fork(0))
    same, _ = changed(lambda one, state, generator: (replace(one, extra=GIVEN), state), value, None, fork(0))
    assert same.extra is GIVEN
