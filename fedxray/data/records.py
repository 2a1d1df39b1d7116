"""Some records as a client, an adversary or a judge holds them: inputs with their targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Records:
    """Some records: inputs and targets."""

    x: Tensor  # [records, ...]
    y: Tensor  # [records]

    def __len__(self) -> int:
        """Number of records."""
        return int(self.x.shape[0])

    def take(self, index: Tensor) -> Records:
        """The records at these places."""
        return Records(self.x[index], self.y[index])


def union(parts: tuple[Records, ...]) -> Records:
    """All records of several parts in one."""
    return Records(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
