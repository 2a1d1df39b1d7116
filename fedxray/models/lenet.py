"""The LeNet of "Federated Learning Nodes Can Reconstruct Peers' Image Data": no bias in linear layers."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedxray.data.space import Space
from fedxray.models.checks import activation_layer, check_flag, check_size, image_shape


def lenet(
    space: Space, *, width: int = 32, hidden: int = 512, activation: str = "relu", head_bias: bool = False
) -> nn.Module:
    """Two 5x5 convolutions with max pooling, a hidden linear layer and the head (bias if asked for)."""
    channels, height, across = image_shape(space, "lenet", least=4)
    check_size("width", width)
    flat = 2 * width * (height // 4) * (across // 4)
    return nn.Sequential(
        OrderedDict(
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
    )
