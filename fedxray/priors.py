"""Penalties on guessed inputs: tensors in, a scalar out, pure and differentiable.

Pixel penalties (total variation, distance to the valid range, size), the epoch-order-invariant prior of Dimitrov et al.
2022 (DLF), and the dependence between two halves of a batch (HSIC).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.models.networks import STD_OF_TRUNCATED_NORMAL

# Pixel penalties: smooth, within the valid range, not large

Bound = float | Tensor  # one number, or a tensor of the shape of one input


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbours, down plus across, x [n, c, h, w] (Inverting Gradients); scalar."""
    return _mean_size(x[..., 1:, :] - x[..., :-1, :]) + _mean_size(x[..., :, 1:] - x[..., :, :-1])


def squared_total_variation(x: Tensor) -> Tensor:
    """Squared differences of neighbours on a torus, summed, mean over images, x [n, c, h, w] (DLF); scalar.

    The paper's code adds 1e-7 per pixel; a constant has no gradient and is left out.
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


# The epoch-order-invariant prior (Dimitrov et al. 2022, section 4.3): every epoch saw the same images.
# A summary of each epoch that does not depend on the order of its images is compared pair by pair. Eight choices:
# mean or maximum over images, of pixels or of a fixed random convolution, squared or absolute differences.

Distance = Literal["l1", "l2"]
Summary = Literal["mean", "max"]
_DISTANCES: tuple[Distance, ...] = ("l1", "l2")
_SUMMARIES: tuple[Summary, ...] = ("mean", "max")
FEATURES = 96  # channels of the random convolution


@dataclass(frozen=True, kw_only=True)
class EpochPrior:
    """One of the eight choices of the prior."""

    distance: Distance
    summary: Summary
    convolved: bool

    def __call__(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """Mean distance between the summaries of two epochs, x [epochs, images, c, h, w]; scalar.

        The mean is over all ordered pairs of epochs, an epoch with itself included, and over entries.
        """
        spread = _squared_apart if self.distance == "l2" else _apart
        return spread(self.summaries(x, kernel))

    def summaries(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """One summary per epoch, shape [epochs, c or features, h, w]."""
        if not self.convolved:
            return x.mean(1) if self.summary == "mean" else x.amax(1)
        assert kernel is not None
        if self.summary == "mean":  # a convolution is linear, so it may follow the mean
            return functional.conv2d(x.mean(1), kernel, padding="same")
        # One convolution over all images of all epochs, [epochs * images, features, h, w], then per epoch.
        features: Tensor = functional.conv2d(x.flatten(0, 1), kernel, padding="same")
        return features.reshape(*x.shape[:2], *features.shape[1:]).amax(1)


EPOCH_PRIORS: dict[str, EpochPrior] = {
    f"{distance}-{summary}{'-conv' if convolved else ''}": EpochPrior(
        distance=distance, summary=summary, convolved=convolved
    )
    for distance in _DISTANCES
    for summary in _SUMMARIES
    for convolved in (False, True)
}


def random_kernel(like: Tensor, generator: torch.Generator) -> Tensor:
    """The kernel of a 3 x 3 convolution, LeCun-normal draws, for images like [..., c, h, w]; shape [96, c, 3, 3]."""
    channels = like.shape[-3]
    blank = torch.empty((FEATURES, channels, 3, 3), dtype=torch.float32, device="cpu")
    deviation = (9 * channels) ** -0.5 / STD_OF_TRUNCATED_NORMAL
    drawn = torch.nn.init.trunc_normal_(blank, std=deviation, a=-2 * deviation, b=2 * deviation, generator=generator)
    return drawn.to(device=like.device, dtype=like.dtype)


def _squared_apart(summaries: Tensor) -> Tensor:
    """Mean over all pairs of epochs of the squared difference, summaries [epochs, ...]: twice the variance; scalar."""
    return 2 * ((summaries - summaries.mean(0)) ** 2).mean()


def _apart(summaries: Tensor) -> Tensor:
    """Mean over all pairs of epochs of the absolute difference, summaries [epochs, ...]; scalar.

    By sorting: the k-th lowest of n values is larger than k others and smaller than n - 1 - k, so it enters the sum of
    all differences with the factor 2 k - (n - 1).
    """
    epochs = len(summaries)
    ranks = 2 * torch.arange(epochs, dtype=summaries.dtype, device=summaries.device) - (epochs - 1)
    lowest_first = summaries.flatten(1).sort(0).values
    return 2 * (ranks[:, None] * lowest_first).sum(0).mean() / epochs**2


# Dependence between the two halves of a batch: the normalised HSIC of kernel matrices

RIDGE = 1e-5  # of a kernel matrix, for every example


def hsic(x: Tensor, y: Tensor, sigma: float = 5.0) -> Tensor:
    """The normalised (CCA) Hilbert-Schmidt independence criterion of paired examples [n, ...] and [n, ...].

    With centred Gaussian kernel matrices K of a variance sigma^2 for every entry, and R = K (K + ridge n I)^-1, it
    is the trace of R_x R_y: 0 where the pairs are independent, up to n - 1 where one determines the other.
    """
    return (_share(x.flatten(1), sigma) * _share(y.flatten(1), sigma).T).sum()


def _share(x: Tensor, sigma: float) -> Tensor:
    """R of examples [n, entries]; shape [n, n]."""
    n = len(x)
    apart = x - x.mean(0)
    squares = apart.square().sum(1)
    # By products, so that nothing of size [n, n, entries] is built: with a hundred classes that would not fit.
    distances = (squares[:, None] + squares - 2 * apart @ apart.T).clamp(min=0)
    kernel = torch.exp(-distances / (2 * sigma**2 * x.shape[1]))
    centred = kernel - kernel.mean(0, keepdim=True)  # centred on one side only, as in the authors' code
    identity = torch.eye(n, dtype=x.dtype, device=x.device)
    share: Tensor = centred @ torch.linalg.inv(centred + RIDGE * n * identity)
    return share
