"""How the weights of a network are drawn before training.

torch    as torch starts its layers: uniform, up to 1 / sqrt(inputs) either way, biases too
lecun    a normal of variance 1 / inputs, cut at two standard deviations, and no bias, as flax does
he       convolutions by a normal of variance 2 / (outputs x kernel), the rest as torch, as torchvision's ResNets do
uniform  uniform from -0.5 to 0.5, biases too, as the code of "Deep Leakage from Gradients" does
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedxray.models.checks import check_choice

STD_OF_TRUNCATED_NORMAL = 0.87962566103423978  # of a standard normal cut at two standard deviations
HALF_WIDTH = 0.5  # of the uniform start

Layer = nn.Conv2d | nn.Linear


def started(model: nn.Module, init: str) -> nn.Module:
    """The network with its convolutions and linear layers drawn anew, in their order; norm layers stay."""
    draw = INITS[check_choice("init", init, INITS)]
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            draw(layer)
    return model


def lecun_normal(layer: Layer) -> None:
    """Draw the weight from a cut normal of variance 1 / inputs and set the bias to zero."""
    inputs = layer.weight[0].numel()
    deviation = inputs**-0.5 / STD_OF_TRUNCATED_NORMAL
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def he_normal(layer: Layer) -> None:
    """Draw the weight of a convolution from a normal of variance 2 / (outputs x kernel); the rest stays."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def uniform(layer: Layer) -> None:
    """Draw weight and bias evenly from -0.5 to 0.5."""
    for value in (layer.weight, layer.bias):
        if value is not None:
            nn.init.uniform_(value, -HALF_WIDTH, HALF_WIDTH)


def as_built(layer: Layer) -> None:
    """Leave what torch drew when it made the layer."""


INITS: dict[str, Callable[[Layer], None]] = {
    "torch": as_built,
    "lecun": lecun_normal,
    "he": he_normal,
    "uniform": uniform,
}
