"""The quick ways through dense networks against whole gradients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Grants, Observation, PublicAttributes, View
from fedxray.attacks.attributes import gradient_match
from fedxray.attacks.attributes.gradient_match import (
    Products,
    cosines,
    cosines_of_rounds,
    dense_head,
    distance,
    filled,
    products,
    relaxed,
)
from fedxray.losses import example_loss
from fedxray.params import each, parameters_of
from fedxray.seeds import fork, normal_like
from tests.attacks.by_hand import column, table

RECORDS, WIDTH, ROUNDS = 7, 4, 3


class Own(nn.Module):
    """A network of the user's own class, of which nothing is known."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 5)
        self.last = nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.tanh(self.inner(x)))
        return found


def networks(outputs: int) -> dict[str, nn.Module]:
    twice = nn.Softplus()
    return {
        "mlp": nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh(), nn.Linear(6, outputs)),
        "deep": nn.Sequential(
            nn.Flatten(), nn.Linear(WIDTH, 6, bias=False), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(),
            nn.Linear(5, outputs, bias=False),
        ),
        "linear": nn.Sequential(nn.Linear(WIDTH, outputs)),
        "bare": nn.Linear(WIDTH, outputs),
        "twice": nn.Sequential(nn.Linear(WIDTH, 6), twice, nn.Linear(6, 6), twice, nn.Linear(6, outputs)),
        "own class": Own(outputs),
    }  # fmt: skip


def view_of(model: nn.Module, classes: int) -> View:
    model = model.double()
    draw = fork(0, "view")
    x = normal_like(torch.empty(RECORDS, WIDTH, dtype=torch.float64), draw)
    x[:, 1], x[:, 2] = 0.0, 0.0  # the sensitive one, and one that is zero for all records
    y = torch.arange(RECORDS) % classes if classes else normal_like(x[:, 0], draw)
    seen = [
        Observation(
            round=number, kind="weights", contributors=(0,), examples=None,
            start=each(lambda value: normal_like(value, draw), parameters_of(model)),
            update=each(lambda value: normal_like(value, draw), parameters_of(model)),
        )
        for number in range(ROUNDS)
    ]  # fmt: skip
    return View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model,
        loss="cross-entropy" if classes else "mse", space=table(WIDTH, column(), classes=classes),
        grants=Grants(public_attributes=PublicAttributes(x=x, y=y)),
    )  # fmt: skip


def slow_cosine(view: View, codes: Tensor, seen: Observation) -> Tensor:
    """By the gradient of the mean loss in one piece."""
    given = view.grants.public_attributes
    assert given is not None
    leaves = {name: value.clone().requires_grad_() for name, value in seen.start.items()}
    output = torch.func.functional_call(view.model, leaves, (filled(given.x, (1,), codes),))
    loss = example_loss(view.loss)(output, given.y).mean()
    slopes = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    left = torch.cat([slope.flatten() for slope in slopes])
    right = -torch.cat([seen.update[name].flatten() for name in leaves])
    return (left * right).sum() / ((left * left).sum() * (right * right).sum()).sqrt()


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("name", list(networks(1)))
def test_cosines_and_their_slopes_equal_those_of_whole_gradients(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(networks(classes or 1)[name], classes)
    given = view.grants.public_attributes
    assert given is not None
    codes = normal_like(given.x[:, :1], fork(1)).requires_grad_()
    wanted = torch.stack([slow_cosine(view, codes, one) for one in view.observations])
    (slope,) = torch.autograd.grad((1 - wanted).sum(), codes)
    for most in (10**9, 0):
        monkeypatch.setattr(gradient_match, "MOST_HELD", most)
        rounds = cosines_of_rounds(view, given, view.observations)
        assert torch.allclose(cosines(codes, rounds), wanted.detach(), atol=1e-10)
        gap = distance(codes, rounds)
        assert float(gap.detach()) == pytest.approx(float((1 - wanted).sum().detach()))
        assert torch.allclose(torch.autograd.grad(3 * gap, codes)[0], 3 * slope, atol=1e-10)
        assert not distance(codes.detach(), rounds).requires_grad


def test_only_plain_dense_networks_have_a_known_first_layer() -> None:
    made = networks(1)
    assert [name for name in made if dense_head(made[name]) is None] == ["twice", "own class"]
    assert dense_head(nn.Sequential(nn.ReLU(), nn.Linear(2, 1))) is None
    assert dense_head(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(2, 1))) is None


def products_of(view: View, counts: Sequence[int] = ()) -> list[Products]:
    given = view.grants.public_attributes
    assert given is not None
    both = [filled(given.x, (1,), torch.full_like(given.x[:, :1], value)) for value in (0.0, 1.0)]
    return list(products(view.model, view.loss, torch.stack(both, 1), given.y, view.observations, counts))


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("name", list(networks(1)))
def test_products_by_layers_equal_those_of_whole_gradients(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(networks(classes or 1)[name], classes)
    monkeypatch.setattr(gradient_match, "ROWS_AT_ONCE", 4)
    quick = products_of(view, [1, 3])
    monkeypatch.setattr(gradient_match, "stacked_layers", lambda model: None)
    monkeypatch.setattr(gradient_match, "ENTRIES_AT_ONCE", 600)
    slow = products_of(view, [1, 3])
    for left, right in zip(quick, slow, strict=True):
        assert torch.allclose(left.whole, right.whole) and torch.allclose(left.across, right.across)
        assert torch.allclose(left.whole, left.whole.T) and left.whole.dtype == torch.float64
    assert torch.allclose(products_of(view)[0].whole, quick[1].whole)


def test_the_relaxed_start_is_least_squares_over_shares_that_sum_to_one() -> None:
    """Against the same problem with Lagrange multipliers, three values per record."""
    draw = fork(3)
    half = torch.randn(12, 9, generator=draw, dtype=torch.float64)
    across = half @ half.T
    found = Products(whole=across, across=across, records=4, values=3)
    centre = torch.eye(3, dtype=torch.float64) - 1 / 3
    sums = torch.kron(torch.eye(4, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64))
    whole = torch.kron(torch.eye(4, dtype=torch.float64), centre)
    scale = float((whole @ across @ whole).diagonal().mean())
    for ridge, start in zip((1e-10, 1e-6, 1e-3, 1e-1, 10.0), relaxed(found), strict=True):
        top = torch.cat([across + ridge * scale * torch.eye(12, dtype=torch.float64), sums.T], 1)
        bottom = torch.cat([sums, torch.zeros(4, 4, dtype=torch.float64)], 1)
        right = torch.cat([-across.sum(1) / 3, torch.zeros(4, dtype=torch.float64)])
        moved = torch.linalg.solve(torch.cat([top, bottom]), right)[:12].reshape(4, 3)
        assert start.tolist() == moved.argmax(1).tolist()
