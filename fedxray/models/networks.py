"""The two convolutional networks of "Data Leakage in Federated Averaging", as its JAX code builds them.

Convolutions 3x3 with SAME padding, ReLU, average pooling; layers start lecun-normal (truncated) with a zero
bias unless `init` says otherwise. The log-softmax at the end is part of the loss here. The default width and
hidden size are the paper's.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase

from fedxray.data.checks import shown
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.models.factory import (
    DEEPEST,
    NORMS,
    RESIDUAL_NORMS,
    activation_layer,
    check_choice,
    check_flag,
    check_size,
    image_shape,
    started,
)


def cnn_femnist(space: Space, *, width: int = 32, hidden: int = 100, init: str = "lecun") -> nn.Module:
    """Two convolutions (32, 64), a dense layer of 100 and the head."""
    return started(_cnn(space, "cnn-femnist", check_size("width", width), check_size("hidden", hidden)), init)


def cnn_cifar(space: Space, *, width: int = 64, hidden: int = 200, init: str = "lecun") -> nn.Module:
    """Two convolutions (64, 128), a dense layer of 200 and the head."""
    return started(_cnn(space, "cnn-cifar", check_size("width", width), check_size("hidden", hidden)), init)


def _cnn(space: Space, name: str, width: int, hidden: int) -> nn.Module:
    channels, height, across = image_shape(space, name, least=4)
    flat = 2 * width * (height // 4) * (across // 4)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, width, 3, padding=1),
        activation1=nn.ReLU(),
        pool1=nn.AvgPool2d(2),
        conv2=nn.Conv2d(width, 2 * width, 3, padding=1),
        activation2=nn.ReLU(),
        pool2=nn.AvgPool2d(2),
        flatten=nn.Flatten(),
        dense=nn.Linear(flat, hidden),
        activation3=nn.ReLU(),
        head=nn.Linear(hidden, space.outputs),
    )
    return nn.Sequential(layers)


# --- Networks of linear layers alone, for tables and (flattened) images; weights start as torch starts
# them.


def linear(space: Space) -> nn.Module:
    """One linear layer on the flattened input: linear or logistic regression."""
    head = nn.Linear(math.prod(space.shape), space.outputs)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=head))


def mlp(
    space: Space, *, hidden: Sequence[int] = (128,), norm: str = "none", activation: str = "relu"
) -> nn.Module:
    """Hidden layers, each with its activation; norm = "batch" adds BatchNorm before each activation."""
    check_choice("norm", norm, NORMS)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    width = math.prod(space.shape)
    for number, size in enumerate(_hidden_sizes(hidden), start=1):
        layers[f"hidden{number}"] = nn.Linear(width, size)
        if norm == "batch":
            layers[f"norm{number}"] = nn.BatchNorm1d(size)
        layers[f"activation{number}"] = activation_layer(activation)
        width = size
    layers["head"] = nn.Linear(width, space.outputs)
    return nn.Sequential(layers)


def _hidden_sizes(hidden: object) -> list[int]:
    if not isinstance(hidden, list | tuple) or not hidden:
        raise BadInput(
            "hidden",
            expected="a list of layer sizes",
            got=shown(hidden),
            remedy="Write hidden = [128], or use the model linear for none.",
        )
    if len(hidden) > DEEPEST:
        raise BadInput(
            "hidden",
            expected=f"at most {DEEPEST} layers",
            got=f"{len(hidden)} of them",
            remedy="Use fewer layers.",
        )
    return [check_size("hidden", size) for size in hidden]


# --- Two LeNets of papers on inversion.
#
# `lenet` is the one of "Federated Learning Nodes Can Reconstruct Peers' Image Data", without a bias in
# linear layers; `lenet-sigmoid` that of "Deep Leakage from Gradients", smooth throughout: sigmoids, and
# strides in place of pooling.


def lenet(
    space: Space,
    *,
    width: int = 32,
    hidden: int = 512,
    activation: str = "relu",
    head_bias: bool = False,
    init: str = "torch",
) -> nn.Module:
    """Two 5x5 convolutions with max pooling, a hidden linear layer and the head (bias if asked for)."""
    channels, height, across = image_shape(space, "lenet", least=4)
    check_size("width", width)
    flat = 2 * width * (height // 4) * (across // 4)
    layers = OrderedDict(
        conv1=nn.Conv2d(channels, width, 5, padding=2),
        activation1=activation_layer(activation),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(width, 2 * width, 5, padding=2),
        activation2=activation_layer(activation),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        dense=nn.Linear(flat, check_size("hidden", hidden), bias=False),
        activation3=activation_layer(activation),
        head=nn.Linear(hidden, space.outputs, bias=check_flag("head_bias", head_bias)),
    )
    return started(nn.Sequential(layers), init)


def lenet_sigmoid(
    space: Space, *, width: int = 12, activation: str = "sigmoid", init: str = "uniform"
) -> nn.Module:
    """Three 5x5 convolutions, the first two with stride 2, each with its activation, and the head."""
    channels, height, across = image_shape(space, "lenet-sigmoid", least=1)
    check_size("width", width)
    flat = width * -(-height // 4) * -(-across // 4)
    layers = OrderedDict(
        conv1=nn.Conv2d(channels, width, 5, padding=2, stride=2),
        activation1=activation_layer(activation),
        conv2=nn.Conv2d(width, width, 5, padding=2, stride=2),
        activation2=activation_layer(activation),
        conv3=nn.Conv2d(width, width, 5, padding=2),
        activation3=activation_layer(activation),
        flatten=nn.Flatten(),
        head=nn.Linear(flat, space.outputs),
    )
    return started(nn.Sequential(layers), init)


# --- A normalisation that uses its running statistics at all times, as BatchNorm does in evaluation mode.


class RunningNorm2d(_NormBase):
    """BatchNorm with frozen statistics: 0 and 1 unless loaded; only its scale and shift are trained."""

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps [n, channels, h, w], shape kept; every image is on its own."""
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


# --- Residual networks of basic blocks, with or without BatchNorm.
#
# The defaults are the BatchNorm-free networks of "Federated Learning Nodes Can Reconstruct Peers' Image Data".
# The stem decides how an image enters and how the last feature maps are pooled:
#   004       7x7 convolution with stride 2; pooled to 8x8 (smaller maps are repeated), so the head is wide
#   imagenet  7x7 convolution with stride 2, 3x3 max pooling with stride 2; pooled to one value per channel
#   cifar     3x3 convolution with stride 1; pooled to one value per channel
# The norm decides what follows every convolution:
#   none      nothing
#   batch     BatchNorm: clients train with the statistics of their batch
#   running   BatchNorm as it is in evaluation mode, at all times: running statistics, which stay at 0 and 1
# The usual ResNet18 for CIFAR is norm = "batch", stem = "cifar", head_bias = true.


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
