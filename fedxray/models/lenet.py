"""Two LeNets of papers on inversion.

`lenet` is the one of "Federated Learning Nodes Can Reconstruct Peers' Image Data", without a bias in linear layers;
`lenet-sigmoid` that of "Deep Leakage from Gradients", smooth throughout: sigmoids, and strides in place of pooling.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedxray.data.space import Space
from fedxray.models.checks import activation_layer, check_flag, check_size, image_shape
from fedxray.models.starting import started


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
