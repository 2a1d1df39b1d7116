"""Checks of the settings and spaces that the networks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from fedxray.data.checks import shown
from fedxray.data.limits import max_bytes
from fedxray.data.space import Space
from fedxray.errors import BadInput

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
}
NORMS = ("none", "batch")
RESIDUAL_NORMS = (*NORMS, "running")
WIDEST = 65_536  # units or channels of a layer
DEEPEST = 64  # hidden layers


def check_choice(setting: str, value: object, known: Sequence[str] | Mapping[str, object]) -> str:
    """The value if it is one of the known words."""
    if isinstance(value, str) and value in known:
        return value
    names = ", ".join(known)
    raise BadInput(setting, expected=f"one of {names}", got=repr(value), remedy=f"Choose one of {names}.")


def check_size(setting: str, value: object) -> int:
    """The value if it is a whole number of at least one that a layer may have."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= WIDEST:
        return value
    raise BadInput(
        setting,
        expected=f"a whole number from 1 to {WIDEST:,}",
        got=shown(value),
        remedy="Give a positive number of that size.",
    )


def check_parameters(model: nn.Module) -> None:
    """Refuse a network, perhaps on the meta device, whose parameters take more than FEDXRAY_MAX_BYTES."""
    needed = sum(one.numel() * one.element_size() for one in model.parameters())
    if needed > max_bytes():
        raise BadInput(
            "model",
            expected=f"a network of at most {max_bytes():,} bytes",
            got=f"{needed:,} bytes of parameters",
            remedy="Make it smaller, or raise the cap by setting FEDXRAY_MAX_BYTES.",
        )


def check_flag(setting: str, value: object) -> bool:
    """The value if it is true or false."""
    if isinstance(value, bool):
        return value
    raise BadInput(setting, expected="true or false", got=repr(value), remedy="Give true or false.")


def activation_layer(name: object) -> nn.Module:
    """A fresh activation layer of that name."""
    return ACTIVATIONS[check_choice("activation", name, ACTIVATIONS)]()


def image_shape(space: Space, model: str, least: int) -> tuple[int, int, int]:
    """Channels, height and width of the space's images, at least `least` pixels each way."""
    if space.kind != "image" or len(space.shape) != 3:
        raise BadInput(
            "model",
            expected=f"images (channels, height, width) for {model}",
            got=f"{space.kind} inputs of shape {tuple(space.shape)}",
            remedy="Use linear or mlp for tables.",
        )
    channels, height, width = space.shape
    if min(height, width) < least:
        raise BadInput(
            "model",
            expected=f"images of at least {least} x {least} pixels for {model}",
            got=f"{height} x {width}",
            remedy="Use mlp, or enlarge the images.",
        )
    return channels, height, width
