"""Attribute inference from a model (Diana et al. 2025, Eq. 3; Driouich et al., Eq. 3): the best-fitting value.

Ties go to the first value. `criterion = "loss"` compares the training loss, as Diana et al. 2025 and their code do;
"squared" compares the squared error of the prediction, for classes of the softmax vector, as Driouich et al. write.
`prior = "floor"` (ours) weighs the loss against the probabilities of the imputation floor (see floor_prior).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import PublicAttributes, View
from fedxray.attacks import floor_prior
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, granted, needs_of_model, sensitive_column
from fedxray.attacks.evidence import Evidence, Kind, model_params, of_attributes
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.data.dataset import Records
from fedxray.errors import some
from fedxray.losses import ExampleLoss, example_loss, losses, squared_error, squared_probability
from fedxray.params import Params
from fedxray.settings import setting

MOST_VALUES = 1000  # of a grid: each takes one pass over all records
GRID = "Number of candidate values of a continuous column."


@dataclass(frozen=True, kw_only=True)
class AttributeFromModel(Attack):
    """What is the sensitive value of each record? The value that the client's model fits best."""

    name: ClassVar[str] = "attribute-from-model"
    kind: ClassVar[Kind] = "attributes"
    paper: ClassVar[str] = "diana-2025"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("public-attributes",)
    floors: ClassVar[tuple[str, ...]] = ("majority", "imputation")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client", "global-model")

    model: Attack = setting(LastReturned, "Attack whose model is used as the client's.")
    criterion: Literal["loss", "squared"] = setting(
        "loss", "Criterion of a value: the training loss, or the squared error of the prediction."
    )
    grid: int = setting(25, GRID, least=2, most=MOST_VALUES)
    prior: floor_prior.Prior = setting("none", floor_prior.PRIOR, later=True)

    def needs(self) -> tuple[Need, ...]:
        """List the other columns of the records, the needs of the attack on the model, and those of the prior."""
        known = (sensitive_column(), granted("public-attributes"), *floor_prior.needs_of(self.prior))
        return (*known, *needs_of_model(self.model))

    def own_grants(self) -> tuple[str, ...]:
        """List the declared grants, and those of the prior."""
        return (*self.grants, *floor_prior.grants_of(self.prior))

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the candidate with the lowest loss, or with the largest posterior, record by record."""
        records, column = view.grants.public_attributes, view.space.column(view.space.sensitive or "")
        assert records is not None
        model = model_params(context.run(self.model, view))
        candidates = column.candidates(records.x, self.grid)  # [values, positions]
        fits = self._fits(view, model, candidates, records)
        facts: dict[str, Any] = {"values": len(candidates)}
        if self.prior == "floor":
            public, known = view.grants.public_records, floor_prior.of_values(view, candidates)
            assert public is not None
            misfits = self._fits(view, model, candidates, public).T.double()
            weights = floor_prior.fitted(known.public, misfits, known.real)
            facts |= asdict(weights)
            evidence = floor_prior.likeliest_values(candidates, known.asked, fits.T.double(), weights, facts=facts)
        else:
            ordered = fits.sort(0).values
            evidence = of_attributes(candidates[fits.argmin(0)], ordered[1] - ordered[0], facts=facts)
        evidence.tensors["codes"][~torch.isfinite(fits).all(0)] = torch.nan  # no guess rather than an arbitrary one
        return evidence

    def _fits(
        self, view: View, model: tuple[Params, Params], candidates: Tensor, records: PublicAttributes | Records
    ) -> Tensor:
        """Return the loss of every record with every candidate [values, records]."""
        positions, measure = view.space.column(view.space.sensitive or "").positions, self._measure(view)
        filled = (with_value(records.x, positions, value) for value in candidates)
        return torch.stack([losses(view.network, *model, x, records.y, measure) for x in filled])

    def _measure(self, view: View) -> ExampleLoss:
        if self.criterion == "loss":
            return example_loss(view.loss)
        return squared_error if view.space.target == "regression" else squared_probability


def with_value(x: Tensor, positions: tuple[int, ...], value: Tensor) -> Tensor:
    """Return records with one encoded value [positions] written into these positions, shape kept."""
    filled = x.clone()
    filled[:, list(positions)] = value
    return filled


def few_indicators(grid: int, most: int, instead: str = "") -> Need:
    """Return the need of no more records times values than the attack can hold; `instead` is a setting without it."""

    def met(view: View) -> bool:
        given = view.grants.public_attributes
        if given is None or view.space.sensitive is None:
            return False
        values = view.space.column(view.space.sensitive).candidates(given.x, grid)
        return len(given.x) * len(values) <= most

    ways = [*([instead] if instead else []), "a smaller grid for numbers", "a limit on the records in [data]"]
    return Need(what=f"records times values up to {most}", given_by=some(ways, between=", or "), met=met)
