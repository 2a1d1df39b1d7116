"""The hard instance in a real federation: which entries are zero when, and that its twin sends equal messages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.view import Observation
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.theory import hard_client, hard_curvature, hard_optimum, idle_client, twin_client

ZERO = 1e-12  # rounding of the Cholesky factor
LIKE = torch.zeros(1, dtype=torch.float64)


def played(client: tuple[Tensor, Tensor], rounds: int) -> tuple[Observation, ...]:
    d = len(client[1])
    model = nn.Linear(d, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    federation = Federation(
        space=Space(kind="table", shape=(d,), target="regression"),
        clients=(Records(*client), Records(*idle_client(d, like=LIKE)), Records(*idle_client(d, like=LIKE))),
        model=model,
        recipe=Recipe(loss="mse", batch_size="all", epochs=1, learning_rate=d / 2),
        rounds=rounds,
    )
    return roles.server(simulate(federation)[0], client=0).of(0)


@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_records_have_the_curvature(d: int) -> None:
    x, y = hard_client(d, like=LIKE)
    slow = torch.zeros(d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            slow[i, j] = 1.0 if i == j else (-0.5 if abs(i - j) == 1 else 0.0)
    assert torch.equal(hard_curvature(d, like=LIKE), slow)
    assert torch.allclose(x.T @ x, slow, atol=1e-14)
    wanted = torch.zeros(d, dtype=torch.float64)
    wanted[0] = 0.5
    assert torch.allclose(x.T @ y, wanted, atol=1e-14)
    assert torch.allclose(torch.linalg.solve(slow, wanted), hard_optimum(d, like=LIKE), atol=1e-12)


def test_footnote_9_is_the_transpose() -> None:
    """The matrix of the paper's footnote gives H as L L', not as L' L."""
    d = 6
    factor = torch.zeros(d, d, dtype=torch.float64)
    factor[0, 0] = 1.0
    for i in range(d - 1):
        factor[i + 1, i] = -1 / (2 * factor[i, i])
        factor[i + 1, i + 1] = (1 - 1 / (4 * factor[i, i] ** 2)) ** 0.5
    assert torch.allclose(factor, hard_client(d, like=LIKE)[0].T, atol=1e-12)
    assert not torch.allclose(factor.T @ factor, hard_curvature(d, like=LIKE), atol=1e-3)


def test_one_more_parameter_moves_in_every_round() -> None:
    d = 7
    for one in played(hard_client(d, like=LIKE), d):
        sent, back = one.start["weight"][0], one.start["weight"][0] + one.update["weight"][0]
        assert int((sent.abs() > ZERO).sum()) == one.round
        assert int((back.abs() > ZERO).sum()) == min(one.round + 1, d)


def test_the_twin_looks_the_same_for_all_but_the_last_round() -> None:
    d = 7
    hard, twin = played(hard_client(d, like=LIKE), d), played(twin_client(d, like=LIKE), d)
    far = [float((one.update["weight"] - other.update["weight"]).norm()) for one, other in zip(hard, twin, strict=True)]
    assert max(far[:-1]) < ZERO and far[-1] > 1e-6
    x, y = twin_client(d, like=LIKE)
    other = torch.linalg.lstsq(x, y[:, None], driver="gelsd").solution[:, 0]
    assert float((other - hard_optimum(d, like=LIKE)).norm()) > 0.1
