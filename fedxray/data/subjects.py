"""People with several records: their numbers in place of identifiers, and the records of each.

A subject is the person whom records are about or from (a patient, a writer). Its number is its place in the order of
first occurrence, so that only the holder of the data can find the person again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.seeds import fork, permutation


def number_subjects(values: NDArray[Any]) -> Tensor:
    """The number [records] of every record's person; refused where there is one only, or one for every record."""
    _, first, index = np.unique(values, return_index=True, return_inverse=True)
    count = len(first)
    if count == 1:
        remedy = "Name the column that identifies people, or leave subject out."
        raise BadInput("subject", expected="records of two people or more", got="one person only", remedy=remedy)
    if count == len(values):
        expected, got = "people with several records", f"{count:,} people for {count:,} records"
        raise BadInput("subject", expected=expected, got=got, remedy="Every record is a person: leave subject out.")
    number = np.empty(count, dtype=np.int64)
    number[np.argsort(first)] = np.arange(count)
    return torch.from_numpy(number[index.reshape(-1)])


def records_by_subject(subject: Tensor) -> list[Tensor]:
    """The indices of the records of person 0, 1, ..., each [records] in order."""
    order = torch.argsort(subject, stable=True)
    return list(torch.split(order, torch.bincount(subject).tolist()))


def check_one_client_each(subject: Tensor, owner: Tensor) -> None:
    """Refuse people whose records have several owners, where owners are the clients."""
    pairs = torch.unique(torch.stack([subject, owner]), dim=1)
    several = int((torch.bincount(pairs[0]) > 1).sum())
    if several:
        expected, got = "all records of a person at one client", f"{several:,} people at several"
        remedy = "Use another partition, or identifiers that differ from client to client."
        raise BadInput("subject", expected=expected, got=got, remedy=remedy)


def check_one_use_each(subject: Tensor, uses: Sequence[Tensor]) -> None:
    """Refuse people whose records have several of the uses, each given by the indices of its records."""
    kinds = [torch.unique(subject[rows]) for rows in uses]
    several = int((torch.bincount(torch.cat(kinds)) > 1).sum())
    if several:
        expected, got = "one use for all records of a person", f"{several:,} people with several"
        remedy = "Train on a person's records, or hold them out, or make them public."
        raise BadInput("use", expected=expected, got=got, remedy=remedy)


def set_aside(groups: Sequence[Tensor], share: float, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """The records of every person [records] without those set aside, and those set aside; one at least stays."""
    kept, aside = [], []
    for person, rows in enumerate(groups):
        size = min(max(round(share * len(rows)), 1), len(rows) - 1) if share > 0 else 0
        order = rows[permutation(len(rows), fork(seed, "split", "person", person))] if size else rows
        kept.append(order[size:])
        aside.append(order[:size])
    return kept, aside
