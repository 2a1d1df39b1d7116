"""Views of a model with known weights and of records that fit on a page, made without a federation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedxray.adversary.view import Grants, Observation, ObservedModel, View
from fedxray.data.dataset import Column, Space


def column(values: tuple[float, ...] = (0.0, 1.0), position: int = 1) -> Column:
    """A categorical column of one position with these codes."""
    return Column(
        name="s",
        kind="categorical",
        positions=(position,),
        categories=tuple(map(str, values)),
        codes=tuple((value,) for value in values),
    )


def table(
    width: int, sensitive: Column | None = None, *, classes: int = 0, shape: tuple[int, ...] | None = None
) -> Space:
    """A table (or images, if a shape is given) with a regression target or classes."""
    return Space(
        kind="table" if shape is None else "image",
        shape=(width,) if shape is None else shape,
        target="classification" if classes else "regression",
        classes=tuple(map(str, range(classes))),
        columns=() if sensitive is None else (sensitive,),
        sensitive=None if sensitive is None else sensitive.name,
    )


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    """A linear layer with these weights [outputs, inputs]."""
    made = nn.Linear(len(weight[0]), len(weight), bias=bias is not None)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(weight))
        if bias is not None:
            made.bias.copy_(torch.tensor(bias))
    return made


def view_with(
    model: nn.Module,
    space: Space,
    *,
    loss: str = "mse",
    returned: dict[str, Tensor] | None = None,
    own: tuple[Any, ...] = (),
    **grants: Any,
) -> View:
    """A server's view in which client 0 started from zeros and returned these parameters (or the model's own)."""
    end = dict(model.named_parameters()) if returned is None else returned
    end = {name: value.detach().clone() for name, value in end.items()}
    start = {name: torch.zeros_like(value) for name, value in end.items()}
    seen = Observation(round=0, start=start, update=end, kind="weights", contributors=(0,), examples=None)
    return View(
        role="server",
        target=0,
        observations=(seen,),
        globals=(ObservedModel(0, start, {}),),
        model=model,
        space=space,
        loss=loss,
        grants=Grants(names=tuple(sorted(name.replace("_", "-") for name in grants)), **grants),
        own=own,
    )
