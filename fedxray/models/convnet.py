"""The two convolutional networks of "Data Leakage in Federated Averaging", as its JAX code builds them.

Convolutions 3x3 with SAME padding, ReLU, average pooling; layers start lecun-normal (truncated) with a zero
bias. The log-softmax at the end is part of the loss here. The default width and hidden size are the paper's.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedxray.data.space import Space
from fedxray.models.checks import check_size, image_shape

STD_OF_TRUNCATED_NORMAL = 0.87962566103423978  # of a standard normal cut at two standard deviations


def cnn_femnist(space: Space, *, width: int = 32, hidden: int = 100) -> nn.Module:
    """Two convolutions (32, 64), a dense layer of 100 and the head."""
    return _cnn(space, "cnn-femnist", check_size("width", width), check_size("hidden", hidden))


def cnn_cifar(space: Space, *, width: int = 64, hidden: int = 200) -> nn.Module:
    """Two convolutions (64, 128), a dense layer of 200 and the head."""
    return _cnn(space, "cnn-cifar", check_size("width", width), check_size("hidden", hidden))


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
    for layer in layers.values():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            start_lecun_normal(layer)
    return nn.Sequential(layers)


def start_lecun_normal(layer: nn.Conv2d | nn.Linear) -> None:
    """Draw the weight from a cut normal of variance 1 / inputs and set the bias to zero."""
    inputs = layer.weight[0].numel()
    deviation = inputs**-0.5 / STD_OF_TRUNCATED_NORMAL
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
