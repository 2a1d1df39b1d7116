"""The six numbers of awa: the paper's table, the layers they fall on, and that they are constants to the slope."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
import torch

from fedxray.attacks.inversion.awa import PRESETS
from fedxray.attacks.inversion.layer_weights import layers_of, ramps
from tests.attacks.inversion.test_awa import images, loss_of, seen
from tests.attacks.inversion.test_layers import resnet

TABLE_3 = """
conv     519.19  236.31  547.17  655.98
norm     802.55  552.31  222.48  692.94
linear    42.83   54.28  394.39  283.42
enhance  946.44  837.80  899.47  665.28
mean       0.24    0.11    0.31    0.40
var        0.07    0.13    0.01    0.33
"""  # a column for each case


def test_the_presets_are_the_papers_table_number_by_number() -> None:
    rows = [line.split()[1:] for line in TABLE_3.strip().splitlines()]
    for place in range(4):
        assert astuple(PRESETS[f"case{place + 1}"]) == tuple(float(row[place]) for row in rows)


def test_the_papers_weights_fall_on_the_first_and_last_layers_of_each_kind() -> None:
    model, tuned = resnet(), PRESETS["case1"]
    layers = layers_of(model, dict(model.named_parameters()))
    ends = {"conv": tuned.q_conv, "norm": tuned.q_norm, "linear": tuned.q_linear}
    weights = {one.module: weight for one, weight in zip(layers, ramps(layers, ends), strict=True)}
    assert (weights["stem.0"], weights["stem.1"]) == (1.0, 1.0)
    assert weights["stage4.1.branch.3"] == pytest.approx(519.19)
    assert weights["stage4.1.branch.4"] == pytest.approx(802.55) and weights["head"] == 42.83
    # The shortcut of a block comes after its branch: the 18th of 20, and not the last.
    assert weights["stage4.0.shortcut.0"] == pytest.approx(1 + 518.19 * 17 / 19)
    assert weights["stage4.0.shortcut.1"] == pytest.approx(1 + 801.55 * 17 / 19)


def test_enhanced_weights_are_constants_to_the_slope() -> None:
    """The guess decides which layers are enhanced; its slope is that of a sum with these weights held fixed."""
    view, _, y = seen()
    match = loss_of(view, y, q_conv=5.0, q_norm=9.0, q_linear=3.0, q_enhance=70.0, p_mean=0.6, p_var=0.6)
    guess = images(2, 4).requires_grad_()
    update = match.work.client.update(guess, y)
    fixed = match.tensor_weights(update)
    assert len(set(fixed.values())) > 2 and 70.0 in fixed.values(), "some layers are enhanced, some are not"
    apart = {name: (((value - match.work.aim[name]) / match.size) ** 2).sum() for name, value in update.items()}
    expected = torch.autograd.grad(sum(fixed[name] * one for name, one in apart.items()), guess)[0]
    value = match({"inputs": guess})
    found = torch.autograd.grad(value, guess)[0]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=float(expected.abs().max()) / 1e5)
    assert value.item() == pytest.approx(sum(one.item() for one in apart.values()), rel=1e-4), "without weights"
    ramp_only = replace(match, weights=replace(match.weights, p_mean=0.0))({"inputs": guess})
    assert not torch.allclose(torch.autograd.grad(ramp_only, guess)[0], found, rtol=1e-2)
