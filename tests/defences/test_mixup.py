"""Mixup: what is averaged with what, soft targets, and what dp-sgd may then promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedxray.defences.base import Work
from fedxray.defences.dp_sgd import IN_PAIRS, NOT_COUNTED, DpSgd
from fedxray.defences.joined import Joined
from fedxray.defences.mixup import Mixup, beta_draw, halves, neighbours
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.seeds import fork
from tests.federation.runs import federation

WORK = Work(examples=8, batch_size=4, steps=2, rounds=3, classes=3)


def mixed(defence: Mixup, x: Any, y: Any, work: Work = WORK, seed: int = 0) -> tuple[list[Any], list[Any]]:
    hook = defence.hooks(work).batch
    assert hook is not None
    (new_x, new_y), _ = hook((torch.tensor(x), torch.tensor(y)), None, fork(seed))
    return new_x.tolist(), new_y.tolist()


def test_neighbours_are_averaged_and_an_odd_one_stays() -> None:
    x, y = mixed(Mixup(), [[0.0], [2.0], [4.0], [8.0], [5.0]], [0, 1, 2, 2, 1])
    assert x == [[1.0], [6.0], [5.0]]
    assert y == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


def test_targets_of_a_regression_are_averaged() -> None:
    work = Work(examples=8, batch_size=4, steps=2, rounds=3)
    assert mixed(Mixup(), [[0.0], [2.0]], [10.0, 30.0], work) == ([[1.0]], [20.0])


def test_an_attacker_pairs_far_examples_and_finds_as_many() -> None:
    values = torch.arange(7.0)
    assert halves(values).tolist() == [1.5, 2.5, 3.5, 6.0]
    assert neighbours(values).tolist() == [0.5, 2.5, 4.5, 6.0]
    assert halves(values[:0]).shape == neighbours(values[:0]).shape == (0,)


def test_drawn_weights_mix_every_example_with_another() -> None:
    x, y = mixed(Mixup(mix="drawn"), [[1.0], [2.0], [4.0], [8.0]], [0, 1, 2, 0])
    assert len(x) == 4 and np.sum(x) == pytest.approx(15.0) and np.sum(y, 1) == pytest.approx(1.0)
    assert mixed(Mixup(mix="drawn"), [[1.0], [2.0]], [0, 1]) == mixed(Mixup(mix="drawn"), [[1.0], [2.0]], [0, 1])


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_weights_come_from_a_beta_distribution(alpha: float) -> None:
    generator = fork(0, "weights")
    drawn = [beta_draw(alpha, generator) for _ in range(2000)]
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_a_run_on_averages_is_a_run_on_averaged_records() -> None:
    """Without shuffling and with batches of all, training with mixup is training on the means of neighbours."""
    recipe = {"batch_size": "all", "shuffle": "never", "epochs": 2}
    run = federation((8,), recipe=recipe, rounds=1, defence=Mixup(), dtype=torch.float64)
    found = simulate(run)[0].shelf.get("reply/0/0").params
    data, model = run.clients[0], run.model
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    soft = torch.nn.functional.one_hot(data.y, 3).double()
    for _ in range(2):
        model.zero_grad()
        output = model((data.x[::2] + data.x[1::2]) / 2)
        torch.nn.functional.cross_entropy(output, (soft[::2] + soft[1::2]) / 2).backward()
        with torch.no_grad():
            for value in model.parameters():
                assert value.grad is not None
                value -= 0.1 * value.grad
    for name, value in model.named_parameters():
        torch.testing.assert_close(found[name], value.detach() - start[name], rtol=1e-9, atol=1e-12)


def test_pairs_enter_a_step_together() -> None:
    defence = Joined(parts=(Mixup(), DpSgd(noise_multiplier=1.0)))
    run = federation((30,), recipe={"batch_size": 10, "epochs": 5}, rounds=1, defence=defence)
    rows = list(run.truth(0).schedule(0, 0).rows())
    assert len(rows) == 15 and len({len(row) for row in rows}) > 2
    for row in rows:
        assert len(set(row.tolist())) == len(row)
        assert len(row) % 2 == 0
    simulate(run)


def test_with_dp_sgd_pairs_are_counted_and_more_is_not_claimed() -> None:
    work = Work(examples=40, batch_size=40, steps=1, rounds=5, classes=3)
    private = DpSgd(noise_multiplier=20.0)
    alone, pairs, several = (
        Joined(parts=parts).hooks(work).privacy
        for parts in ((private,), (private, Mixup()), (Mixup(mix="drawn"), private))
    )
    assert alone is not None and pairs is not None and several is not None
    one, two, none = alone(5), pairs(5), several(5)
    assert one.epsilon is not None and two.epsilon is not None and two.epsilon > 2 * one.epsilon
    assert IN_PAIRS in two.note and none.epsilon is None and none.note == NOT_COUNTED
    target = Joined(parts=(DpSgd(epsilon=5.0), Mixup())).hooks(work).privacy
    assert target is not None and 4.9 < (target(5).epsilon or 0) <= 5.0


def test_a_step_of_pairs_is_divided_by_their_expected_number() -> None:
    defence = Joined(parts=(Mixup(), DpSgd(noise_multiplier=0.0, clip=1e9)))
    recipe = {"batch_size": "all", "shuffle": "never"}
    plain = federation((8,), recipe={**recipe, "learning_rate": 1.0}, rounds=1, defence=Mixup(), dtype=torch.float64)
    private = federation((8,), recipe={**recipe, "learning_rate": 1.0}, rounds=1, defence=defence, dtype=torch.float64)
    pairs = private.truth(0).schedule(0, 0).index[0]
    data = plain.clients[0].take(pairs)
    first = simulate(replace(plain, clients=(data,)))[0].shelf.get("reply/0/0").params
    second = simulate(private)[0].shelf.get("reply/0/0").params
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [{"mix": "all"}, {"alpha": 0.0}, {"alpha": -1.0}])
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Mixup(**settings)


def test_description() -> None:
    assert Mixup().describe() == "mixup of disjoint pairs, averaged"
    assert "Beta(2, 2)" in Mixup(mix="drawn", alpha=2.0).describe()
