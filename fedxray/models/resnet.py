"""Residual networks of basic blocks, with or without BatchNorm.

The defaults are the BatchNorm-free networks of "Federated Learning Nodes Can Reconstruct Peers' Image Data".
The stem decides how an image enters and how the last feature maps are pooled:
  004       7x7 convolution with stride 2; pooled to 8x8 (smaller maps are repeated), so the head is wide
  imagenet  7x7 convolution with stride 2, 3x3 max pooling with stride 2; pooled to one value per channel
  cifar     3x3 convolution with stride 1; pooled to one value per channel
The norm decides what follows every convolution:
  none      nothing
  batch     BatchNorm: clients train with the statistics of their batch
  running   BatchNorm as it is in evaluation mode, at all times: running statistics, which stay at 0 and 1
The usual ResNet18 for CIFAR is norm = "batch", stem = "cifar", head_bias = true.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional

from fedxray.data.space import Space
from fedxray.models.checks import RESIDUAL_NORMS, check_choice, check_flag, check_size, image_shape
from fedxray.models.norms import RunningNorm2d
from fedxray.models.starting import started

POOLED_SIZE = {"004": 8, "imagenet": 1, "cifar": 1}


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x))."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        """Hold both paths; they must end in the same shape."""
        nn.Module.__init__(self)
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps [n, inside, h, w] to [n, outside, h / stride, w / stride]."""
        return functional.relu(self.branch(x) + self.shortcut(x))


def resnet9(
    space: Space,
    *,
    norm: str = "none",
    width: int = 64,
    stem: str = "004",
    head_bias: bool = False,
    init: str = "torch",
) -> nn.Module:
    """One block in each of the four stages.

    `norm` can be none, batch or running (BatchNorm that keeps its first statistics, 0 and 1); `stem` 004 (as in paper
    004), cifar (3 x 3) or imagenet (7 x 7, pooled); `init` torch, lecun or he.
    """
    made = _resnet(space, "resnet9", 1, norm=norm, width=width, stem=stem, head_bias=head_bias)
    return started(made, init)


def resnet18(
    space: Space,
    *,
    norm: str = "none",
    width: int = 64,
    stem: str = "004",
    head_bias: bool = False,
    init: str = "torch",
) -> nn.Module:
    """Two blocks in each of the four stages.

    `norm` can be none, batch or running (BatchNorm that keeps its first statistics, 0 and 1); `stem` 004 (as in paper
    004), cifar (3 x 3) or imagenet (7 x 7, pooled); `init` torch, lecun or he.
    """
    made = _resnet(space, "resnet18", 2, norm=norm, width=width, stem=stem, head_bias=head_bias)
    return started(made, init)


def _resnet(
    space: Space, name: str, blocks: int, *, norm: str, width: int, stem: str, head_bias: bool
) -> nn.Module:
    channels, _, _ = image_shape(space, name, least=1)
    check_choice("norm", norm, RESIDUAL_NORMS)
    check_size("width", width)
    pooled = POOLED_SIZE[check_choice("stem", stem, POOLED_SIZE)]
    layers = OrderedDict(stem=_stem(stem, channels, width, norm))
    inside = width
    for stage in range(4):
        outside = width * 2**stage
        stride = 1 if stage == 0 else 2
        layers[f"stage{stage + 1}"] = _stage(inside, outside, blocks, stride=stride, norm=norm)
        inside = outside
    layers["pool"] = nn.AdaptiveAvgPool2d(pooled)
    layers["flatten"] = nn.Flatten()
    layers["head"] = nn.Linear(inside * pooled**2, space.outputs, bias=check_flag("head_bias", head_bias))
    return nn.Sequential(layers)


def _stem(stem: str, channels: int, width: int, norm: str) -> nn.Module:
    kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
    parts = [*_conv(channels, width, kernel, stride, norm), nn.ReLU()]
    if stem == "imagenet":
        parts.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*parts)


def _stage(inside: int, outside: int, blocks: int, *, stride: int, norm: str) -> nn.Module:
    first = _block(inside, outside, stride, norm)
    return nn.Sequential(first, *(_block(outside, outside, 1, norm) for _ in range(blocks - 1)))


def _block(inside: int, outside: int, stride: int, norm: str) -> nn.Module:
    branch = [*_conv(inside, outside, 3, stride, norm), nn.ReLU(), *_conv(outside, outside, 3, 1, norm)]
    same = stride == 1 and inside == outside
    shortcut = nn.Identity() if same else nn.Sequential(*_conv(inside, outside, 1, stride, norm))
    return Residual(nn.Sequential(*branch), shortcut)


def _conv(inside: int, outside: int, kernel: int, stride: int, norm: str) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, bias=False)
    if norm == "none":
        return [conv]
    return [conv, nn.BatchNorm2d(outside) if norm == "batch" else RunningNorm2d(outside)]
