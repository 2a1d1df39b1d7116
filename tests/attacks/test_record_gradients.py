"""Inner products of records' gradients with directions, against gradients taken one record at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedxray.attacks import record_gradients
from fedxray.attacks.record_gradients import cosines, record_products
from fedxray.losses import cross_entropy
from fedxray.params import Params, buffers_of, dot, parameters_of
from fedxray.seeds import fork, normal_like

RECORDS, CLASSES = 9, 3


class Twice(nn.Module):
    """A network that uses one layer twice."""

    def __init__(self) -> None:
        """Make both layers."""
        super().__init__()
        self.inner, self.last = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        output: Tensor = self.last(self.inner(torch.tanh(self.inner(x))))
        return output


class Added(nn.Module):
    """A network with a parameter that belongs to no layer."""

    def __init__(self) -> None:
        """Make the layer and the shift."""
        super().__init__()
        self.layer, self.shift = nn.Linear(5, CLASSES), nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        output: Tensor = self.layer(x * self.shift)
        return output


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, CLASSES, bias=False))


def over_time() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2), nn.Flatten(), nn.Linear(12, CLASSES))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 3, 2, dilation=2),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
        nn.BatchNorm1d(CLASSES),
    )


def frozen() -> nn.Module:
    network = dense()
    network[0].requires_grad_(False)
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "dense": (dense, (5,), True),
    "over time": (over_time, (6, 5), True),
    "convolutions": (convolutions, (2, 7, 7), True),
    "one layer": (lambda: nn.Linear(5, CLASSES), (5,), True),
    "a frozen layer": (frozen, (5,), True),
    "a layer used twice": (Twice, (5,), False),
    "a parameter of its own": (Added, (5,), False),
    "groups": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 3)), (2, 3, 3), False),
}


@pytest.fixture(params=NETWORKS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Tensor, list[Params]]:
    """A network in float64, records and two directions."""
    make, shape, _ = NETWORKS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = make().double()
    for name, buffer in model.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.copy_(0.5 + normal_like(buffer, fork(4, name)).abs())
    x = normal_like(torch.empty((RECORDS, *shape), dtype=torch.float64), fork(1))
    y = torch.arange(RECORDS) % CLASSES
    directions: list[Params] = [
        {name: normal_like(value, fork(2, name, number)) for name, value in parameters_of(model).items()}
        for number in range(2)
    ]
    return model, x, y, directions


def one_by_one(model: nn.Module, x: Tensor, y: Tensor, directions: list[Params]) -> tuple[Tensor, Tensor]:
    """The same products, from the gradient of one record after another."""
    model.eval()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    dots, squares = [], []
    for number in range(len(x)):
        loss = cross_entropy(model(x[number : number + 1]), y[number : number + 1])[0]
        gradient = dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))
        dots.append(torch.stack([dot(gradient, direction) for direction in directions]))
        squares.append(dot(gradient, gradient))
    model.train()
    return torch.stack(dots), torch.stack(squares)


def test_products_are_those_of_single_gradients(case: tuple[nn.Module, Tensor, Tensor, list[Params]]) -> None:
    model, x, y, directions = case
    found = record_products(model, "cross-entropy")(parameters_of(model), buffers_of(model), x, y, directions)
    for value, wanted in zip(found, one_by_one(model, x, y, directions), strict=True):
        assert torch.allclose(value, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_known_layers_need_no_whole_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole gradients of all records are formed only where the layers do not allow another way."""
    make, shape, by_layers = NETWORKS[name]
    model, called = make(), []
    whole = record_gradients.example_gradients

    def counted(*arguments: object) -> Tensor:
        called.append(1)
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(record_gradients, "example_gradients", counted)
    x, y = torch.ones((2, *shape)), torch.tensor([0, 1])
    params = parameters_of(model)
    record_products(model, "cross-entropy")(params, buffers_of(model), x, y, [params])
    assert bool(called) is not by_layers


def test_pieces_change_nothing(
    case: tuple[nn.Module, Tensor, Tensor, list[Params]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y, directions = case
    given = parameters_of(model), buffers_of(model), x, y, directions
    first = record_products(model, "cross-entropy")(*given)
    monkeypatch.setattr(record_gradients, "RECORDS_AT_ONCE", 4)
    monkeypatch.setattr(record_gradients, "ENTRIES_AT_ONCE", 1)
    second = record_products(model, "cross-entropy")(*given)
    assert all(torch.allclose(one, other, rtol=1e-10) for one, other in zip(first, second, strict=True))
    assert model.training


def test_a_zero_gradient_or_direction_has_cosine_zero() -> None:
    still, along = {"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}
    dots, squares = torch.tensor([[0.0, 0.0], [0.0, 10.0]]), torch.tensor([0.0, 4.0])
    assert cosines(dots, squares, [still, along]).tolist() == [[0.0, 0.0], [0.0, 1.0]]
