"""Building a network by name or from a user's factory, with weights that depend on the generator alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn

from fedxray import plugins
from fedxray.data.checks import max_bytes, shown
from fedxray.data.dataset import Space
from fedxray.errors import BadInput, unknown_key
from fedxray.lookup import load_factory, told, users_code
from fedxray.models import MODELS

# --- Checks of the settings and spaces that the networks share.


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


POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
COLLECTING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def build(name: str, space: Space, *, generator: torch.Generator, **settings: Any) -> nn.Module:
    """The named network on the CPU in float32: inputs [n, *space.shape] to outputs [n, space.outputs]."""
    known = settings_of(name)
    for setting in settings:
        if setting not in known:
            raise unknown_key("model", setting, known, of=name)
    _check_outputs(space)
    plugin = plugins.find("models", name, MODELS, "model")
    if plugin is not None:
        return _from_plugin(plugin, space, generator, settings)
    with torch.device("meta"):  # takes no memory and draws nothing
        check_parameters(_builder(name)(space, **settings))
    with own_surroundings(generator):
        model: nn.Module = _builder(name)(space, **settings)
    return model


def _from_plugin(
    plugin: plugins.Plugin, space: Space, generator: torch.Generator, settings: Mapping[str, Any]
) -> nn.Module:
    """The network of a plug-in, tried out; its own errors are reported with its file and line."""
    expected = f"{plugin.name} of {plugin.package} to return an nn.Module"
    with own_surroundings(generator):
        with users_code("model", expected, plugins.REMEDY):
            model = _builder(plugin.name)(space, **settings)
        if not isinstance(model, nn.Module):
            raise BadInput("model", expected=expected, got=type(model).__name__, remedy=plugins.REMEDY)
        _try_out(model, space, plugin.spec)
    check_parameters(model)
    return model


def settings_of(name: str) -> dict[str, Any]:
    """The settings of a named network with their defaults."""
    parameters = inspect.signature(_builder(name)).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is Parameter.KEYWORD_ONLY}


def from_factory(path: str, space: Space, generator: torch.Generator) -> nn.Module:
    """A user's own network, made by factory(space) or factory() of "package.module:factory" and tried out.

    Only torch's draws follow the generator; a factory that asks numpy or random decides for itself.
    """
    _check_outputs(space)
    factory = load_factory(path, "factory")
    arguments = (space,) if _takes_space(factory, path) else ()
    with own_surroundings(generator):
        with users_code("factory", f"{path} to return a network"):
            model = factory(*arguments)
        if not isinstance(model, nn.Module):
            raise _bad_factory("an nn.Module", type(model).__name__, f"Let {path} return the network.")
        _try_out(model, space, path)  # in here, since lazy layers draw their weights at the first use
    check_parameters(model)
    return model


@contextmanager
def own_surroundings(generator: torch.Generator) -> Iterator[None]:
    """Build on the CPU in float32 from a seed of the generator, and leave everything global as it was.

    Layers draw their first weights from torch's global generator and take the default device and dtype; torch
    offers no argument for it. So these are set for the time of building, and put back.
    """
    seed = int(torch.randint(2**63 - 1, (1,), generator=generator, device="cpu", dtype=torch.int64))
    dtype = torch.get_default_dtype()
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also reseed the accelerators, which are not put back here.
        torch.default_generator.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def _builder(name: str) -> Callable[..., nn.Module]:
    builder: Callable[..., nn.Module] = plugins.resolve("models", name, MODELS, "model")
    return builder


def _check_outputs(space: Space) -> None:
    if space.outputs < 1:
        remedy = "Name the classes of the target."
        raise BadInput("space", expected="at least one class", got="none", remedy=remedy)


def _bad_factory(expected: str, got: str, remedy: str) -> BadInput:
    return BadInput("factory", expected=expected, got=got, remedy=remedy)


def _takes_space(factory: Callable[..., object], path: str) -> bool:
    with users_code("factory", f"{path} to be a function that tells its arguments"):
        parameters = list(inspect.signature(factory).parameters.values())
    needed = [one for one in parameters if one.default is Parameter.empty and one.kind not in COLLECTING]
    if len(needed) > 1 or any(one.kind is Parameter.KEYWORD_ONLY for one in needed):
        got = f"required arguments {', '.join(one.name for one in needed)}"
        raise _bad_factory(f"{path} to take the space or nothing", got, "Give the other arguments defaults.")
    return any(one.kind in POSITIONAL or one.kind is Parameter.VAR_POSITIONAL for one in parameters)


def _try_out(model: nn.Module, space: Space, path: str) -> None:
    """Send two blank inputs through in evaluation mode, so that running statistics stay as they were."""
    weight = next((one for one in model.parameters() if one.requires_grad), None)
    if weight is None:
        raise _bad_factory("trainable parameters", "none", f"Let {path} return a network to train.")
    blank = torch.zeros((2, *space.shape), device=weight.device, dtype=weight.dtype)
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            output = model(blank)
    except (Exception, SystemExit) as error:  # nothing but the user's network runs here
        expected = f"a network for inputs {list(blank.shape)}"
        raise _bad_factory(expected, told(error), f"Build the network of {path} from space.shape.") from error
    finally:
        for module, training in modes:
            module.training = training
    _check_result(output, [2, space.outputs], path)


def _check_result(output: object, shape: list[int], path: str) -> None:
    if isinstance(output, Tensor) and list(output.shape) == shape and output.is_floating_point():
        return
    got = f"{output.dtype} {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    remedy = f"Build {path} from space.outputs; regression keeps its last dimension of 1."
    raise _bad_factory(f"floating-point outputs of shape {shape}", got, remedy)


# --- How the weights of a network are drawn before training.
#
# torch    as torch starts its layers: uniform, up to 1 / sqrt(inputs) either way, biases too lecun    a
# normal of variance 1 / inputs, cut at two standard deviations, and no bias, as flax does he
# convolutions by a normal of variance 2 / (outputs x kernel), the rest as torch, as torchvision's ResNets
# do uniform  uniform from -0.5 to 0.5, biases too, as the code of "Deep Leakage from Gradients" does


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
