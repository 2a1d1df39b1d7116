"""Building a network by name or from a user's factory, with initial weights that depend on the generator only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn

from fedxray import plugins
from fedxray.data.checks import max_bytes
from fedxray.data.dataset import Space
from fedxray.errors import BadInput, unknown_key
from fedxray.lookup import describe_error, harmless_output, load_factory, users_code
from fedxray.models import MODELS
from fedxray.settings import check_arguments


def check_parameters(model: nn.Module) -> None:
    """Refuse a network, also one on the meta device, whose parameters take more than FEDXRAY_MAX_BYTES."""
    needed = sum(value.numel() * value.element_size() for value in model.parameters())
    if needed > max_bytes():
        got = f"{needed:,} bytes of parameters"
        remedy = "Make it smaller, or raise the cap by setting FEDXRAY_MAX_BYTES."
        raise BadInput("model", expected=f"a network of at most {max_bytes():,} bytes", got=got, remedy=remedy)


POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
COLLECTING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def build(name: str, space: Space, *, generator: torch.Generator, **settings: Any) -> nn.Module:
    """Build the named network on the CPU in float32: inputs [n, *space.shape] to outputs [n, space.outputs]."""
    known = settings_of(name)
    for setting in settings:
        if setting not in known:
            raise unknown_key("model", setting, known, of=name)
    check_arguments(_builder(name), settings)
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
    """Return the settings of a named network with their defaults."""
    parameters = inspect.signature(_builder(name)).parameters.values()
    return {argument.name: argument.default for argument in parameters if argument.kind is Parameter.KEYWORD_ONLY}


def from_factory(path: str, space: Space, generator: torch.Generator) -> nn.Module:
    """Build a user's own network by factory(space) or factory() of "package.module:factory", and test it.

    Only torch's draws follow the generator; draws of numpy or random in a factory are its own.
    """
    _check_outputs(space)
    factory = load_factory(path, "factory")
    arguments = (space,) if _takes_space(factory, path) else ()
    with own_surroundings(generator):
        with users_code("factory", f"{path} to return a network"):
            model = factory(*arguments)
        if not isinstance(model, nn.Module):
            raise _bad_factory("an nn.Module", type(model).__name__, f"Let {path} return the network.")
        _try_out(model, space, path)  # here, since lazy layers draw their weights at the first use
    check_parameters(model)
    return model


@contextmanager
def own_surroundings(generator: torch.Generator) -> Iterator[None]:
    """Build on the CPU in float32 from a seed of the generator, and restore all global state.

    Layers draw their initial weights from torch's global generator with the default device and dtype; torch offers no
    argument for it. So these are set while building, and restored.
    """
    seed = int(torch.randint(2**63 - 1, (1,), generator=generator, device="cpu", dtype=torch.int64))
    dtype = torch.get_default_dtype()
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would also reseed the accelerators, which are not restored here.
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
    with users_code("factory", f"{path} to be a function with a signature"):
        parameters = list(inspect.signature(factory).parameters.values())
    needed = [item for item in parameters if item.default is Parameter.empty and item.kind not in COLLECTING]
    if len(needed) > 1 or any(item.kind is Parameter.KEYWORD_ONLY for item in needed):
        got = f"required arguments {', '.join(item.name for item in needed)}"
        raise _bad_factory(f"{path} to take the space or nothing", got, "Give the other arguments defaults.")
    return any(item.kind in POSITIONAL or item.kind is Parameter.VAR_POSITIONAL for item in parameters)


@harmless_output()
def _try_out(model: nn.Module, space: Space, path: str) -> None:
    """Evaluate two blank inputs in evaluation mode, which leaves running statistics unchanged."""
    weight = next((value for value in model.parameters() if value.requires_grad), None)
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
        raise _bad_factory(expected, describe_error(error), f"Build the network of {path} from space.shape.") from error
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
