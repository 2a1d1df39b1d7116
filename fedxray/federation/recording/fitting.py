"""Arrays of a message as the parameters and buffers of a network: by name, or by position in its usual order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedxray.errors import BadInput, some
from fedxray.federation.transcript import Parts
from fedxray.params import buffers_of

HALF = (torch.float16, torch.bfloat16)


def by_position(names: Sequence[str]) -> bool:
    """Whether names are just 0, 1, 2, ..., as frameworks call NumPy arrays that have none."""
    return bool(names) and list(names) == [str(place) for place in range(len(names))]


def fit(
    arrays: Mapping[str, Tensor], model: nn.Module | None, *, widen: bool = False, what: str = "arrays"
) -> Parts:
    """Trainable parameters and buffers of the network from recorded arrays; refused by name where they do not fit."""
    if model is None:
        return _without_model(arrays)
    state = model.state_dict()
    arrays = named(arrays, model)
    for name in arrays:
        if name not in state:
            raise _misfit(what, f"arrays of the network ({some(list(state))})", f"one called {name!r}")
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    missing = [name for name in trained if name not in arrays]
    if missing:
        raise _misfit(what, f"the parameter {missing[0]!r} of the network", "no array of that name")
    fitted = {name: _as(name, value, state[name], widen, what) for name, value in arrays.items()}
    own = buffers_of(model)
    recorded = {name: fitted[name] for name in own if name in fitted}
    # Those that no state dict holds stay the network's own.
    return Parts({name: fitted[name] for name in trained}, {**own, **recorded} if recorded else {})


def frozen(arrays: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The recorded values of parameters that are not trained, which stay with the network."""
    arrays = named(arrays, model)
    still = [name for name, value in model.named_parameters() if not value.requires_grad]
    return {name: arrays[name] for name in still if name in arrays}


def named(arrays: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """Arrays under the network's names, where they came by position."""
    names = list(arrays)
    if by_position(names) and not set(names) <= set(model.state_dict()):
        return dict(zip(_positions(arrays, model), arrays.values(), strict=True))
    return arrays


def _without_model(arrays: Mapping[str, Tensor]) -> Parts:
    """Everything as a parameter, where there are names to go by."""
    if by_position(list(arrays)):
        raise BadInput(
            "model",
            expected="the network, whose order names arrays that were recorded by position (NumPy)",
            got="none",
            remedy="Give the model that was trained.",
        )
    return Parts(dict(arrays))


def _positions(arrays: Mapping[str, Tensor], model: nn.Module) -> list[str]:
    """Names for arrays by position: the order of the state dict, of all parameters, or of the trained ones."""
    shapes = [tuple(value.shape) for value in arrays.values()]
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    named = {name: tuple(value.shape) for name, value in model.named_parameters()}
    trained = {name: tuple(value.shape) for name, value in model.named_parameters() if value.requires_grad}
    for order in (state, named, trained):
        if list(order.values()) == shapes:
            return list(order)
    place = next(
        (at for at, pair in enumerate(zip(state.values(), shapes, strict=False)) if pair[0] != pair[1]), None
    )
    if place is None:
        expected, got = f"{len(state)} arrays, as the network has", f"{len(shapes)}"
    else:
        expected = f"array {place} of shape {list(list(state.values())[place])} ({list(state)[place]} of the network)"
        got = f"{list(shapes[place])}"
    raise _misfit("arrays by position", expected, got)


def _as(name: str, value: Tensor, like: Tensor, widen: bool, what: str) -> Tensor:
    """One array with the shape and dtype of the network's own."""
    if value.shape != like.shape:
        raise _misfit(what, f"{name!r} of shape {list(like.shape)}, as in the network", list(value.shape))
    if not like.is_floating_point():  # counters, which an average turns into fractions; loading cuts them
        return value.to(like.dtype)
    if not value.is_floating_point():
        raise _misfit(what, f"{name!r} of {like.dtype}, as in the network", value.dtype)
    if value.dtype in HALF and like.dtype not in HALF and not widen:
        raise BadInput(
            what,
            expected=f"{name!r} of {_dtype(like)}, as in the network",
            got=f"half precision ({_dtype(value)})",
            remedy="Set widen = true in [transcript] to read it as it is: what was lost by rounding stays lost, "
            "and attacks that replay the training see that as noise.",
        )
    return value.to(like.dtype)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _misfit(what: str, expected: str, got: object) -> BadInput:
    return BadInput(what, expected=expected, got=got, remedy="Give the network that was trained, in [model].")
