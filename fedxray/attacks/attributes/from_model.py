"""Attribute inference from a model (papers 003 Eq. 3 and 000 Eq. 3): the value under which the model fits best.

Ties go to the first value. `criterion = "loss"` compares the training loss, as 003 and its code do; "squared" compares
the squared distance of the prediction, which for classes is that of the softmax vector, as 000 writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, Need, granted, needs_of_model, sensitive_column
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_attributes
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.predict import losses
from fedxray.errors import check_one_of, check_whole
from fedxray.losses import ExampleLoss, example_loss, squared_error, squared_probability

MOST_VALUES = 1000  # of a grid: each takes one pass over all records


@dataclass(frozen=True, kw_only=True)
class AttributeFromModel(Attack):
    """What is the sensitive value of each record? Of all values, the one that the client's model fits best."""

    name: ClassVar[str] = "attribute-from-model"
    kind: ClassVar[Kind] = "attributes"
    roles: ClassVar[tuple[str, ...]] = (
        "server",
        "eavesdropper",
        "active-server",
        "curious-client",
        "secure-aggregation",
    )
    grants: ClassVar[tuple[str, ...]] = ("public-attributes",)
    floors: ClassVar[tuple[str, ...]] = ("majority", "imputation")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client", "global-model")

    model: Attack = field(default_factory=LastReturned)
    criterion: Literal["loss", "squared"] = "loss"
    grid: int = 25  # candidate values of a continuous column

    def __post_init__(self) -> None:
        """Check the settings."""
        check_one_of("criterion", self.criterion, ("loss", "squared"))
        check_whole("grid", self.grid, least=2, usual=25, most=MOST_VALUES)

    def needs(self) -> tuple[Need, ...]:
        """The other columns of the records, and whatever the model's own reconstruction needs."""
        return (sensitive_column(), granted("public-attributes"), *needs_of_model(self.model))

    def attack(self, view: View, context: Context) -> Evidence:
        """The candidate with the least loss, record by record."""
        records, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert records is not None
        params, buffers = model_params(context.run(self.model, view))
        candidates = column.candidates(records.x, self.grid)  # [values, positions]
        fits = torch.stack(
            [
                losses(
                    view.model,
                    params,
                    buffers,
                    with_value(records.x, column.positions, value),
                    records.y,
                    self._measure(view),
                )
                for value in candidates
            ]
        )  # [values, records]
        best = fits.argmin(0)
        codes = candidates[best]
        codes[~torch.isfinite(fits).all(0)] = torch.nan  # no guess rather than an arbitrary one
        ordered = fits.sort(0).values
        return of_attributes(codes, ordered[1] - ordered[0], facts={"values": len(candidates)})

    def _measure(self, view: View) -> ExampleLoss:
        if self.criterion == "loss":
            return example_loss(view.loss)
        return squared_error if view.space.target == "regression" else squared_probability


def with_value(x: Tensor, positions: tuple[int, ...], value: Tensor) -> Tensor:
    """Records with one encoded value written into these positions, shape kept."""
    filled = x.clone()
    filled[:, list(positions)] = value
    return filled
