"""Small data sets for tests of splits."""

from __future__ import annotations

import numpy as np
import torch

from fedxray.data.dataset import Column, Dataset, Space


def labelled(records: int, classes: int = 4, owners: int = 0, seed: int = 0) -> Dataset:
    """Random numbers with random labels, and owners of uneven size where asked."""
    draw = np.random.default_rng(seed)
    y = torch.from_numpy(draw.integers(0, classes, records))
    column = Column(name="x", kind="continuous", positions=(0,), low=-9, high=9)
    names = tuple(str(label) for label in range(classes))
    space = Space(kind="table", shape=(1,), target="classification", classes=names, columns=(column,))
    x = draw.standard_normal((records, 1)).astype(np.float32)
    owner = torch.from_numpy(np.sort(draw.integers(0, owners, records) // 2)) if owners else None
    raw = {"x": x[:, 0], "town": np.array([f"t{value % 5}" for value in range(records)])}
    return Dataset(name="small", x=torch.from_numpy(x), y=y, space=space, raw=raw, owner=owner)
