"""How much two halves of a batch tell of each other: the normalised HSIC of kernel matrices."""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 1e-5  # of a kernel matrix, for every example


def hsic(x: Tensor, y: Tensor, sigma: float = 5.0) -> Tensor:
    """The normalised (CCA) Hilbert-Schmidt independence criterion of paired examples [n, ...] and [n, ...].

    With centred Gaussian kernel matrices K of a variance sigma^2 for every entry, and R = K (K + ridge n I)^-1, it
    is the trace of R_x R_y: 0 where the pairs are independent, up to n - 1 where one follows from the other.
    """
    return (_share(x.flatten(1), sigma) * _share(y.flatten(1), sigma).T).sum()


def _share(x: Tensor, sigma: float) -> Tensor:
    """R of examples [n, entries]; shape [n, n]."""
    n = len(x)
    apart = x - x.mean(0)
    squares = apart.square().sum(1)
    # By products: nothing of size [n, n, entries] is built, which a hundred classes of images would not fit into.
    distances = (squares[:, None] + squares - 2 * apart @ apart.T).clamp(min=0)
    kernel = torch.exp(-distances / (2 * sigma**2 * x.shape[1]))
    centred = kernel - kernel.mean(
        0, keepdim=True
    )  # kernel times the centring matrix, as the authors have it
    identity = torch.eye(n, dtype=x.dtype, device=x.device)
    found: Tensor = centred @ torch.linalg.inv(centred + RIDGE * n * identity)
    return found
