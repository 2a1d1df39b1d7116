"""Values on their way through a seam: what comes back must have the form of what went in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedxray.defences.base import ExampleGradients, Examples, OnBatch, OnGradients, OnParams, Seams, State
from fedxray.errors import BadInput
from fedxray.params import Params


def entered(seams: Seams, start: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """The model that arrived, as the client takes it up."""
    return _params("incoming", seams.incoming, start, generator)


def sent(seams: Seams, update: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """The update as it leaves."""
    return _params("outgoing", seams.outgoing, update, generator)


def _params(
    place: str, step: OnParams | None, given: Params, generator: torch.Generator
) -> dict[str, Tensor]:
    if step is None:
        return dict(given)
    forms = _forms(given)  # noted first: a step may write into what it gets
    found, _ = _pair(place, step(dict(given), None, generator))
    _check_tensors(place, found, forms)
    return dict(found)


def mixed(step: OnBatch, batch: Examples, state: State, generator: torch.Generator) -> tuple[Examples, State]:
    """The examples of a step after a batch seam."""
    found, state = _pair("batch", step(batch, state, generator))
    x, y = _pair("batch", found)
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or len(x) != len(y):
        raise _unfit("batch", "as many inputs as targets", _shown({"x": x, "y": y}))
    if x.shape[1:] != batch[0].shape[1:] or x.dtype != batch[0].dtype:
        raise _unfit("batch", _shown({"x": batch[0]}), _shown({"x": x}))
    return (x, y), state


def changed(
    step: OnGradients, value: ExampleGradients, state: State, generator: torch.Generator
) -> tuple[ExampleGradients, State]:
    """The gradients of single examples after a seam."""
    forms = {name: (shape[1:], dtype) for name, (shape, dtype) in _forms(value.each).items()}
    found, state = _pair("gradients", step(value, state, generator))
    if not isinstance(found, ExampleGradients):
        raise _unfit("gradients", "ExampleGradients", type(found).__name__)
    for tensors, leading in ((found.each, 1), (found.extra, 0)):
        if tensors is not None:
            _check_tensors("gradients", tensors, forms, leading)
    return found, state


def _pair(place: str, answer: Any) -> tuple[Any, Any]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise _unfit(place, "a pair (value, state)", type(answer).__name__)
    return answer


Forms = dict[str, tuple[torch.Size, torch.dtype]]


def _forms(tensors: Params) -> Forms:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _check_tensors(place: str, found: Any, forms: Forms, leading: int = 0) -> None:
    """Refuse other names, shapes (after so many leading dimensions) and types than these."""
    if not isinstance(found, Mapping):
        raise _unfit(place, "named tensors", type(found).__name__)
    odd = sorted(map(str, found.keys() ^ forms.keys()))
    if odd:
        raise _unfit(place, "the names it was given", f"{odd[0]!r} left out or added")
    for name, (shape, dtype) in forms.items():
        value = found[name]
        if not isinstance(value, Tensor) or value.shape[leading:] != shape or value.dtype != dtype:
            raise _unfit(place, f"{name!r} as {dtype} {list(shape)}", _shown({name: value}))


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        for name, value in values.items()
    )


def _unfit(place: str, expected: str, got: str) -> BadInput:
    return BadInput(
        "defence",
        expected=f"{expected} from its seam {place}",
        got=got,
        remedy="A seam returns (value, state) and changes values only, not names, shapes or types.",
    )
