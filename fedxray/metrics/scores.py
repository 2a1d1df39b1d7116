"""The result of scoring: one number per metric, and its value for each true record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one guess; a metric that is undefined (nothing to compare) is absent, never NaN."""

    means: Mapping[str, float]
    records: Mapping[str, Tensor]  # per metric [true records]; NaN where a record got no guess


def mean_of(values: Tensor) -> float | None:
    """The mean over the records that have a value, or None if none has."""
    known = values[~torch.isnan(values)]
    return float(known.double().mean()) if len(known) else None


def from_records(records: Mapping[str, Tensor]) -> Scores:
    """Scores whose means are the plain means of the records."""
    means = {name: mean_of(values) for name, values in records.items()}
    return Scores(means={name: mean for name, mean in means.items() if mean is not None}, records=records)
