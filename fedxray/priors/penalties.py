"""What a likely input looks like, as penalties: smooth, within its range, not large."""

from __future__ import annotations

import torch
from torch import Tensor

Bound = float | Tensor  # one number, or a tensor of the shape of one input


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute step to the neighbours, down plus across, x [n, c, h, w] (as Inverting Gradients)."""
    return _mean_size(x[..., 1:, :] - x[..., :-1, :]) + _mean_size(x[..., :, 1:] - x[..., :, :-1])


def squared_total_variation(x: Tensor) -> Tensor:
    """Squared differences of neighbours on a torus, summed, mean over images, x [n, c, h, w] (DLF); scalar.

    The paper's code adds 1e-7 per pixel; a constant steers nothing and is left out.
    """
    down, across = x - torch.roll(x, 1, dims=-2), x - torch.roll(x, 1, dims=-1)
    return _mean_over_inputs(down**2 + across**2)


def box_penalty(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """Squared distance to the box [low, high], summed, mean over inputs, x [n, ...] (DLF); scalar."""
    return _mean_over_inputs((x - clip(x, low, high)) ** 2)


def clip(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """The nearest point of the box [low, high], shape kept."""
    return torch.minimum(torch.maximum(x, _bound(low, x)), _bound(high, x))


def l2(x: Tensor) -> Tensor:
    """Half the mean square (GradInversion); scalar."""
    return _mean_over_inputs(x**2) / (2 * max(1, x[:1].numel()))


def _bound(value: Bound, x: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=x.dtype, device=x.device)


def _mean_size(difference: Tensor) -> Tensor:
    return difference.abs().sum() / max(1, difference.numel())  # an image one pixel wide has no neighbours


def _mean_over_inputs(values: Tensor) -> Tensor:
    return values.sum() / max(1, len(values))
