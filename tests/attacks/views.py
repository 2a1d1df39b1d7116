"""Views of one update, made without a federation."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedxray.adversary.view import Grants, Observation, View
from fedxray.data.dataset import Space
from fedxray.federation.recipe import Recipe
from fedxray.params import buffers_of, parameters_of


def view_of_update(
    model: nn.Module,
    update: dict[str, Tensor],
    *,
    shape: tuple[int, ...],
    classes: int,
    recipe: Recipe | None = None,
    examples: int | None = None,
    client: int | None = 0,
    kind: str = "gradient",
    rounds: int = 1,
    **grants: Any,
) -> View:
    """A server's view of one client's update, the same in every round; with client = None, of a sum."""
    names = tuple(sorted(name.replace("_", "-") for name in (*grants, *(["recipe"] if recipe else []))))
    seen = tuple(
        Observation(
            round=round,
            start=parameters_of(model),
            update=update,
            kind=kind,
            examples=examples,
            contributors=None if client is None else (client,),
            buffers=buffers_of(model),
        )
        for round in range(rounds)
    )
    space = Space(
        kind="image" if len(shape) == 3 else "table",
        shape=shape,
        target="classification",
        classes=tuple(str(number) for number in range(classes)),
    )
    return View(
        role="server",
        target=client,
        observations=seen,
        globals=(),
        model=model,
        space=space,
        loss="cross-entropy",
        grants=Grants(names=names, recipe=recipe, **grants),
    )
