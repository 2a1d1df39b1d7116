"""Batches: every epoch uses every example once, in batches of the length asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.dataset import Records, Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.federation.setting import Federation
from fedxray.federation.truth import client_schedule
from fedxray.seeds import fork

SHUFFLES = st.sampled_from(["epoch", "once", "never"])


@given(count=st.integers(1, 40), batch=st.integers(1, 50) | st.just("all"), epochs=st.integers(1, 4), shuffle=SHUFFLES)
def test_an_epoch_uses_every_example_once(count: int, batch: Any, epochs: int, shuffle: Any) -> None:
    recipe = Recipe(batch_size=batch, epochs=epochs, shuffle=shuffle)
    schedule = draw_schedule(count, recipe, fork(0, "order"))
    length = recipe.batch_length(count)
    assert schedule.steps == recipe.steps(count)
    assert schedule.width == length == (count if batch == "all" else min(batch, count))
    per_epoch = schedule.index.reshape(epochs, -1)
    orders = []
    for epoch in per_epoch:
        used = epoch[epoch >= 0]
        assert sorted(used.tolist()) == list(range(count))
        orders.append(used.tolist())
    sizes = [len(schedule.used(step)) for step in range(schedule.steps // epochs)]
    assert all(size == length for size in sizes[:-1]) and sizes[-1] == (count % length or length)
    if shuffle != "epoch":
        assert all(order == orders[0] for order in orders)
    if shuffle == "never":
        assert orders[0] == list(range(count))


def test_filling_stands_at_the_end_of_the_last_batch() -> None:
    schedule = draw_schedule(5, Recipe(batch_size=3, shuffle="never"), fork(0))
    assert schedule.index.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert [row.tolist() for row in schedule.rows()] == [[0, 1, 2], [3, 4]]
    assert [schedule.used(step).tolist() for step in range(2)] == [[0, 1, 2], [3, 4]]


def test_fedsgd_is_one_step_on_everything() -> None:
    schedule = draw_schedule(7, Recipe(algorithm="fedsgd", batch_size=2), fork(0))
    assert schedule.index.tolist() == [list(range(7))]


def test_epochs_rounds_and_clients_get_their_own_order() -> None:
    recipe = Recipe(batch_size=30, epochs=2)
    rows = [client_schedule(30, recipe, 0, client, round).index for client in range(2) for round in range(2)]
    orders = {tuple(row.tolist()) for index in rows for row in index}
    assert len(orders) == 8
    assert torch.equal(client_schedule(30, recipe, 0, 1, 1).index, rows[3])


def test_an_order_drawn_once_is_the_same_in_every_round() -> None:
    recipe = Recipe(batch_size=4, shuffle="once")
    first, later, other = (
        client_schedule(20, recipe, 0, client, round).index for client, round in ((0, 0), (0, 9), (1, 0))
    )
    assert torch.equal(first, later) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 0), ("batch_size", -3), ("batch_size", True), ("batch_size", 2.5), ("batch_size", "some"),
        ("epochs", 0), ("epochs", 1.5), ("learning_rate", 0.0), ("learning_rate", float("nan")),
        ("learning_rate", float("inf")), ("server_learning_rate", -1.0), ("momentum", 1.0), ("momentum", -0.1),
        ("mu", 0.1), ("algorithm", "fedadam"), ("shuffle", "twice"), ("weighting", "loss"), ("loss", "hinge"),
        ("batch_norm", "none"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"^{setting}: expected"):
        Recipe(**{setting: value})


def test_the_loss_follows_the_target_unless_it_is_named() -> None:
    assert Recipe(loss="MSE").loss == "mse" and Recipe(loss="Cross-Entropy").loss == "cross-entropy"
    with pytest.raises(BadInput, match=r"loss.*mse"):
        Recipe(loss="MSELoss")
    x, model = torch.rand(4, 2), torch.nn.Linear(2, 1)
    numbers = Space(kind="table", shape=(2,), target="regression")
    clients = (Records(x, torch.rand(4)),)
    assert Federation(space=numbers, clients=clients, model=model).recipe.loss == "mse"
    classes = Space(kind="table", shape=(2,), target="classification", classes=("a",))
    labelled = (Records(x, torch.zeros(4, dtype=torch.int64)),)
    assert Federation(space=classes, clients=labelled, model=model).recipe.loss == "cross-entropy"
    named = Federation(space=numbers, clients=clients, model=model, recipe=Recipe(loss="mse", epochs=3))
    assert named.recipe == Recipe(loss="mse", epochs=3)
