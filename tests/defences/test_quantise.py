"""Quantising: few values, near the old ones, and gradients that pass for who replays it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.defences.base import Work
from fedxray.defences.quantise import Quantise, quantised
from fedxray.errors import BadInput
from fedxray.seeds import fork

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3)


@given(row=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40), bits=st.integers(2, 10))
def test_values_are_few_and_near(row: list[float], bits: int) -> None:
    value = torch.tensor(row, dtype=torch.float64)
    found = quantised(value, bits)
    unit = float(value.abs().max()) / (2 ** (bits - 1) - 1)
    assert bool(((found - value).abs() <= unit * 0.5 * (1 + 1e-9)).all())
    if unit > 1e-300:
        levels = found / unit
        assert bool(((levels - levels.round()).abs() < 1e-6).all())
    torch.testing.assert_close(quantised(found, bits), found)


def test_one_bit_is_the_sign_times_the_mean_magnitude() -> None:
    assert quantised(torch.tensor([1.0, -2.0, 0.0, 5.0]), 1).tolist() == [2.0, -2.0, 2.0, 2.0]


def test_zeros_and_nothing_stay() -> None:
    for bits in (1, 4):
        assert not quantised(torch.zeros(3), bits).any()
        assert quantised(torch.zeros(0), bits).shape == (0,)


@pytest.mark.parametrize("bits", [1, 3])
def test_who_knows_it_rounds_alike_and_gradients_pass(bits: int) -> None:
    hooks = Quantise(bits=bits).hooks(WORK)
    assert hooks.outgoing is not None and hooks.known is not None and hooks.known.replay.outgoing is not None
    update = {"w": torch.randn(20, requires_grad=True)}
    sent, _ = hooks.outgoing({"w": update["w"].detach()}, None, fork(0))
    replayed, _ = hooks.known.replay.outgoing(update, None, fork(0))
    torch.testing.assert_close(replayed["w"].detach(), sent["w"])
    replayed["w"].sum().backward()
    assert torch.equal(update["w"].grad, torch.ones(20))  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [0, 17, 2.5, True])
def test_settings_out_of_range(bits: Any) -> None:
    with pytest.raises(BadInput, match="bits"):
        Quantise(bits=bits)


def test_description() -> None:
    assert Quantise(bits=1).describe() == "signs of the update only"
    assert Quantise().describe() == "update quantised to 8 bits"
