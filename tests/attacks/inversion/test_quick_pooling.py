from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.attacks.inversion.replay import average_pool, quicken


@pytest.mark.parametrize("size", [(2, 2), (1, 3), (3, 1), (4, 2), (1, 1)])
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 9), (2, 1, 4, 6), (3, 8, 8)])
def test_it_is_average_pooling(size: tuple[int, int], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    found, expected = average_pool(x, size), functional.avg_pool2d(x, size)
    assert found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-12)
    slopes = [torch.autograd.grad((one**3).sum(), x)[0] for one in (found, expected)]
    assert torch.allclose(*slopes, rtol=1e-12, atol=1e-15)


def second_order(network: nn.Module, x: Tensor) -> list[Tensor]:
    loss = network(x).log_softmax(1)[:, 0].mean()
    slopes = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    return list(torch.autograd.grad(sum((one**2).sum() for one in slopes), [x, *network.parameters()]))


def test_a_network_made_quick_has_the_same_second_derivatives() -> None:
    torch.manual_seed(0)
    pools = [nn.AvgPool2d(2), nn.AvgPool2d((2, 1))]
    plain = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Sigmoid(), pools[0], nn.Conv2d(3, 2, 2), pools[1], nn.Flatten(), nn.Linear(16, 3)
    ).double()
    quick = copy.deepcopy(plain)
    quicken(quick)
    assert "forward" in vars(quick[2]) and "forward" in vars(quick[4]) and "forward" not in vars(plain[2])
    x = torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    for left, right in zip(second_order(plain, x), second_order(quick, x), strict=True):
        assert torch.allclose(left, right, rtol=1e-10, atol=1e-14)
    assert quick.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize(
    "layer",
    [
        nn.AvgPool2d(3, stride=2),
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.MaxPool2d(2),
    ],
)
def test_other_poolings_stay(layer: nn.Module) -> None:
    network = nn.Sequential(layer)
    quicken(network)
    assert "forward" not in vars(network[0])
