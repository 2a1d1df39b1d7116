"""The two convolutional networks of "Data Leakage in Federated Averaging", as its JAX code builds them.

Convolutions 3x3 with SAME padding, ReLU, average pooling; layers start lecun-normal (truncated) with a zero
bias unless `init` says otherwise. The log-softmax at the end is part of the loss here. The default width and
hidden size are the paper's.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedxray.data.space import Space
from fedxray.models.checks import check_size, image_shape
from fedxray.models.starting import started


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
