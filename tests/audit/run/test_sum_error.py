"""The error of treating all clients as one, as a dry run prints it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedxray.audit.plan import make_plan
from fedxray.audit.run.dry_run import SumError, how_far_off, spoken, words
from fedxray.audit.run.prepare import prepare
from fedxray.cli.audit import print_sum_errors
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.setting import Federation

LINEAR = Space(kind="table", shape=(3,), target="regression", columns=())
FULL = Recipe(epochs=2, batch_size="all", learning_rate=0.1, loss="mse")


def federation(recipe: Recipe, sizes: tuple[int, ...] = (2, 5, 3)) -> Federation:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    draws = torch.Generator().manual_seed(1)
    clients = tuple(
        Records(torch.randn(size, 3, generator=draws, dtype=torch.float64),
                torch.randn(size, 1, generator=draws, dtype=torch.float64)[:, 0])
        for size in sizes
    )  # fmt: skip
    return Federation(space=LINEAR, clients=clients, model=model, recipe=recipe)


def test_two_full_steps_of_a_quadratic_loss_are_given_exactly_by_the_lemma() -> None:
    whole = federation(FULL)
    off = how_far_off(whole, whole.clients)
    assert off.clients == 3 and off.leading == pytest.approx(off.simulated, rel=1e-6) and off.simulated > 1e-3
    slow = replace(whole, recipe=replace(FULL, server_learning_rate=0.5))
    assert how_far_off(slow, slow.clients).simulated == pytest.approx(off.simulated, rel=1e-6)
    assert how_far_off(slow, slow.clients).leading == pytest.approx(off.simulated, rel=1e-6)


def test_one_step_one_client_and_equal_clients_are_not_off() -> None:
    for recipe in (replace(FULL, epochs=1), Recipe(algorithm="fedsgd", learning_rate=0.1, loss="mse")):
        whole = federation(recipe)
        off = how_far_off(whole, whole.clients)
        assert off.simulated < 1e-12 and off.leading == 0
    whole = federation(replace(FULL, epochs=5))
    assert how_far_off(whole, whole.clients[:1]).simulated < 1e-12
    assert how_far_off(whole, whole.clients[:1] * 3).simulated < 1e-12


def test_where_batches_are_drawn_the_lemma_says_nothing() -> None:
    whole = federation(replace(FULL, batch_size=1))
    assert how_far_off(whole, whole.clients).leading is None
    assert how_far_off(whole, whole.clients).simulated > 0


def test_where_clients_of_other_sizes_have_the_same_weight_the_lemma_does_not_apply() -> None:
    """Its one client weighs clients, the attacker's weighs records: even one step tells them apart."""
    uniform = replace(FULL, epochs=1, weighting="uniform")
    whole = federation(uniform)
    off = how_far_off(whole, whole.clients)
    assert off.simulated > 0.01 and off.leading is None
    even = federation(uniform, (3, 3))
    assert how_far_off(even, even.clients) == SumError(clients=2, simulated=pytest.approx(0, abs=1e-12), leading=0.0)


def test_words() -> None:
    assert "changes the update by 6.8 % of it (Lemma 1's leading term: 2.6 %)" in spoken(
        SumError(clients=3, simulated=0.0675, leading=0.0262)
    )
    assert "less than 0.001 %" in spoken(SumError(clients=3, simulated=1e-9, leading=None))
    assert "one client" in spoken(SumError(clients=1, simulated=0.0, leading=0.0))


def test_a_dry_run_lists_every_attack_that_reads_sums(tmp_path: Path) -> None:
    attack: dict[str, Any] = {"name": "curious-client", "grants": ["recipe", "examples", "labels"], "latent": 1}
    plan = make_plan(
        {
            "data": {"name": "digits", "clients": 3, "limit": 3},
            "model": {"name": "mlp", "hidden": [8]},
            "federation": {"rounds": 1, "epochs": 2, "batch_size": "all", "learning_rate": 0.1},
            "attack": [
                {**attack, "role": "curious-client"},
                {**attack, "role": "secure-aggregation", "label": "server"},
                {**attack, "role": "curious-client", "seat": [0, 1], "label": "two"},
                {"name": "labels-dlf"},
            ],
        },
        tmp_path,
    )
    first, second, third = words(plan, prepare(plan, "none", 0))
    assert first.startswith("curious-client: treating 2 clients as one")
    assert second.startswith("server: treating 3 clients as one")
    assert third.startswith("two: one client stands behind")


def test_a_dry_run_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {
        "data": {"name": "digits", "clients": 2, "limit": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "federation": {"rounds": 1, "epochs": 2, "batch_size": "all", "learning_rate": 0.1},
    }
    attack = {"name": "curious-client", "role": "secure-aggregation", "latent": 1}
    print_sum_errors(make_plan({**content, "attack": [attack]}, tmp_path))
    assert capsys.readouterr().out.startswith("sums        curious-client: treating 2 clients as one")
    print_sum_errors(make_plan({**content, "attack": [{"name": "labels-dlf"}]}, tmp_path))
    assert capsys.readouterr().out == ""
