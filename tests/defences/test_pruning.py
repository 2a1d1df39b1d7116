"""Pruning: how much goes, which entries go, and that the rest stays as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.defences.base import ExampleGradients, Work
from fedxray.defences.pruning import Pruning, prune_smallest
from fedxray.errors import BadInput
from fedxray.seeds import fork

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


@given(row=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30, unique_by=abs), share=st.floats(0.0, 0.99))
def test_the_smallest_go_and_the_rest_stays(row: list[float], share: float) -> None:
    values = torch.tensor([row])
    found = prune_smallest(values, share)[0].tolist()
    count = min(int(share * len(row) + 0.5), max(1, len(row) - 1))  # of several entries one stays
    gone = set(sorted(range(len(row)), key=lambda place: abs(row[place]))[:count])
    for place, (before, after) in enumerate(zip(values[0].tolist(), found, strict=True)):
        assert after == (0.0 if place in gone else before)


def test_every_tensor_of_the_update_loses_its_share() -> None:
    hook = Pruning(share=0.75).hooks(WORK).outgoing
    assert hook is not None
    update = {"a": torch.randn(8, 5), "b": 1e-6 * torch.randn(4)}
    pruned, _ = hook(update, None, fork(0))
    assert [int((value != 0).sum()) for value in pruned.values()] == [10, 1]


@pytest.mark.parametrize("at", ["update", "gradients"])
def test_by_chance_every_entry_has_the_same(at: str) -> None:
    hooks = Pruning(share=0.2, by="random", at=at).hooks(WORK)  # type: ignore[arg-type]
    ones = torch.ones(50, 20, 20)
    if hooks.outgoing is not None:
        found = hooks.outgoing({"w": ones}, None, fork(0))[0]["w"]
    else:
        assert hooks.gradients is not None
        value = ExampleGradients(each={"w": ones}, divisor=torch.tensor(50.0))
        found = hooks.gradients(value, None, fork(0))[0].each["w"]
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert abs(float(found.mean()) - 0.8) < 5 * math.sqrt(0.16 / found.numel())
    assert float(found.mean((1, 2)).std()) > 0  # every example by itself


def test_every_example_is_pruned_by_its_own_magnitudes() -> None:
    hook = Pruning(share=0.5, at="gradients").hooks(WORK).gradients
    assert hook is not None
    each = {"w": torch.tensor([[1.0, -4.0, 3.0, 2.0], [9.0, 0.1, 8.0, 0.2]])}
    found, _ = hook(ExampleGradients(each=each, divisor=torch.tensor(2.0)), None, fork(0))
    assert found.each["w"].tolist() == [[0.0, -4.0, 3.0, 0.0], [9.0, 0.0, 8.0, 0.0]]


def test_who_knows_it_replays_what_is_certain() -> None:
    value = ExampleGradients(each={"w": torch.tensor([[1.0, -4.0]])}, divisor=torch.tensor(1.0))
    for by, expected in (("magnitude", [0.0, -4.0]), ("random", [0.5, -2.0])):
        told = Pruning(share=0.5, by=by, at="gradients").hooks(WORK).known  # type: ignore[arg-type]
        assert told is not None and told.replay.gradients is not None and not told.cut
        assert told.replay.gradients(value, None, fork(0))[0].each["w"][0].tolist() == expected
    told = Pruning(share=0.5).hooks(WORK).known
    assert told is not None and told.cut


@pytest.mark.parametrize("settings", [{"share": 1.0}, {"share": -0.1}, {"by": "size"}, {"at": "inputs"}])
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Pruning(**{"share": 0.5, **settings})


def test_description() -> None:
    text = "pruning of 20 % of the entries of the update, the smallest of every tensor"
    assert Pruning(share=0.2).describe() == text
    assert "by chance" in Pruning(share=0.2, by="random").describe()


def test_a_share_below_one_leaves_something_of_every_tensor_with_several_entries() -> None:
    values = torch.tensor([[3.0, -5.0, 1.0, 2.0]])
    for share in (0.875, 0.9, 0.999999):
        assert prune_smallest(values, share).tolist() == [[0.0, -5.0, 0.0, 0.0]]
    assert prune_smallest(values[:, :1], 0.5).tolist() == [[0.0]]
    assert prune_smallest(values[:, :1], 0.4).tolist() == [[3.0]]
