"""What the clients of a split are called, where the data says so: the values of a column, or the owners' names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedxray.data.checks import plain_name
from fedxray.data.columns import spell_category
from fedxray.data.partition import as_ranges, raw_column
from fedxray.data.space import Dataset

MOST_VALUES = 5  # of one client that its name spells out


def client_names(
    dataset: Dataset, partition: str, parts: Sequence[Tensor], column: object = None
) -> tuple[str, ...]:
    """One name per client, empty where it has none; a range of numbers is counted, its ends are records' values."""
    if partition == "by-column":
        values = raw_column(dataset, column)
        members = np.concatenate([part.numpy() for part in parts])
        if as_ranges(values[members], len(parts)):
            return tuple(f"{column}, part {place} of {len(parts)}" for place in range(1, len(parts) + 1))
        return tuple(
            _joined([spell_category(one) for one in np.unique(values[part.numpy()])]) for part in parts
        )
    if partition == "as-given" and dataset.owner is not None and dataset.owners:
        return tuple(dataset.owners[int(dataset.owner[part[0]])] for part in parts)
    return ("",) * len(parts)


def _joined(values: list[str]) -> str:
    more = f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
    return ", ".join(plain_name(value) for value in values[:MOST_VALUES]) + more
