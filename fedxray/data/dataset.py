"""Data sets and records: the space of inputs that a whole federation knows, the records themselves, and their use.

`Space` and `Column` describe inputs without naming a record: shape, ranges, columns, candidate values. `Dataset` holds
the encoded records, `Records` some of them. None of these shows a value of a record in its `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import shown
from fedxray.errors import BadInput, unknown_name
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class Column:
    """One raw column of a table and its positions in x; a binary column is categorical with two values."""

    name: str
    kind: Literal["continuous", "categorical"]
    positions: tuple[int, ...]  # indices of its entries in one input
    low: float = 0.0  # encoded range, continuous columns
    high: float = 1.0
    categories: tuple[str, ...] = ()
    codes: tuple[tuple[float, ...], ...] = ()  # one encoding per category, each as long as positions

    @property
    def tolerance(self) -> float:
        """The largest error of a guess of a continuous value that counts as correct: a tenth of the range."""
        return 0.1 * (self.high - self.low)

    def candidates(self, like: Tensor, grid: int = 0) -> Tensor:
        """Encoded candidate values, shape [values, positions]; a continuous column needs a grid size."""
        if self.kind == "categorical":
            return torch.tensor(self.codes, dtype=like.dtype, device=like.device)
        steps = torch.linspace(self.low, self.high, max(grid, 2), dtype=like.dtype, device=like.device)
        return steps[:, None]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The inputs and targets of one learning task; a federation-wide fact that names no record."""

    kind: Literal["image", "table"]
    shape: tuple[int, ...]  # of one input; images are (channels, height, width)
    target: Literal["regression", "classification"]
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    sensitive: str | None = None
    mean: tuple[float, ...] = ()  # images: x = (pixel - mean) / std per channel, pixels in 0..1
    std: tuple[float, ...] = ()
    recognised_above: float = 20.0  # dB from which a reconstruction counts as recognised
    target_mean: float = 0.0  # regression: y = (raw target - mean) / std, constants of the whole data set
    target_std: float = 1.0
    target_name: str | None = None  # tables: the raw name of the target column

    def __repr__(self) -> str:
        """Kind, shape, target and names of columns; ranges and categories are left out."""
        shown = [f"{self.kind!r}", f"shape={list(self.shape)}", f"target={self.target!r}"]
        shown += [f"classes={len(self.classes)}"] if self.classes else []
        shown += [f"columns=[{', '.join(column.name for column in self.columns)}]"] if self.columns else []
        return f"Space({', '.join(shown)})"

    @property
    def outputs(self) -> int:
        """Number of outputs of a model: one per class, or one."""
        return len(self.classes) if self.target == "classification" else 1

    def column(self, name: str) -> Column:
        """The column of that raw name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise unknown_name("column", name, [column.name for column in self.columns])

    def to_pixels(self, x: Tensor) -> Tensor:
        """Images as pixels in 0..1 (not clipped), shape kept."""
        return x * _per_channel(self.std, x, 1.0) + _per_channel(self.mean, x, 0.0)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """Pixels in 0..1 as the model gets them, shape kept."""
        return (pixels - _per_channel(self.mean, pixels, 0.0)) / _per_channel(self.std, pixels, 1.0)

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest valid input, each of the shape of one input."""
        ones = torch.ones(self.shape, dtype=like.dtype, device=like.device)
        if self.kind == "image":
            return self.from_pixels(0 * ones[None])[0], self.from_pixels(ones[None])[0]
        low, high = -np.inf * ones, np.inf * ones
        for column in self.columns:
            for index, position in enumerate(column.positions):
                values = [code[index] for code in column.codes] or [column.low, column.high]
                low[position], high[position] = min(values), max(values)
        return low, high


def _per_channel(values: tuple[float, ...], x: Tensor, default: float) -> Tensor:
    chosen = values or (default,)
    return torch.tensor(chosen, dtype=x.dtype, device=x.device).reshape(-1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Records as the model gets them, with the raw columns that a split may need."""

    name: str
    x: Tensor  # [records, *space.shape] float32
    y: Tensor  # [records] int64 for classes, float32 for a regression target
    space: Space
    raw: Mapping[str, np.ndarray] = field(default_factory=dict)  # raw columns, as long as x
    owner: Tensor | None = None  # [records] int64: the natural client of a record (writer, airline, state)
    owners: tuple[str, ...] = ()  # the names of owner 0, 1, ..., where they have any
    subject: Tensor | None = None  # [records] int64: the person of each, where some have several records
    private: bool = False  # a user's own data: contents are never shown unless asked for
    note: str = ""  # for readers of a report: synthetic, stand-in, source
    remarks: tuple[str, ...] = ()  # on how a user's own file was read, for a dry run

    def __len__(self) -> int:
        """Number of records."""
        return int(self.x.shape[0])

    def records(self, index: Tensor) -> Records:
        """The records at these indices [n], in their order."""
        return Records(self.x, self.y, self.subject).take(index)

    def __repr__(self) -> str:
        """Name, sizes and names of columns; no value of a record."""
        owners = "" if self.owner is None else f", owners={len(self.owners) or len(self.owner.unique())}"
        return f"Dataset({self.name!r}, records={len(self)}, space={self.space!r}{owners})"


@dataclass(frozen=True)
class Records:
    """Some records as a client, an adversary or the scoring holds them: inputs and targets."""

    x: Tensor  # [records, ...]
    y: Tensor  # [records]
    subject: Tensor | None = setting(None, "The person of each record [records], for scoring only.", later=True)

    def __len__(self) -> int:
        """Number of records."""
        return int(self.x.shape[0])

    def __repr__(self) -> str:
        """Number of records and shape of one input; no value of a record."""
        return f"Records({len(self)} of shape {list(self.x.shape[1:])})"

    def take(self, index: Tensor) -> Records:
        """The records at these indices [n], in their order."""
        return Records(self.x[index], self.y[index], None if self.subject is None else self.subject[index])


def union(parts: tuple[Records, ...]) -> Records:
    """The records of several parts in one, in their order."""
    people = [part.subject for part in parts if part.subject is not None]
    subject = torch.cat(people) if len(people) == len(parts) else None
    return Records(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]), subject)


# The use of each record by a node: trained on, held out, or public (of no client)

USE = "use of the record"  # its name among the raw columns
USES = ("train", "holdout", "public")
SAY_USE = 'Say "train", "holdout" or "public" for each record.'


def check_uses(path: Path, name: str, values: NDArray[Any], count: int) -> NDArray[Any]:
    """The values of a column or array of uses [count], refused where one is not a word of `USES`."""
    where = f"{name} of {shown(str(path), longest=400)}"
    if values.shape != (count,) or values.dtype.kind != "U":
        got = f"{values.dtype} of shape {values.shape}"
        raise BadInput(where, expected=f"one word for each of {count} records", got=got, remedy=SAY_USE)
    for row in np.flatnonzero(~np.isin(values, USES))[:1]:
        expected, remedy = f"one of {', '.join(USES)}", SAY_USE
        raise BadInput(where, expected=expected, got=f"{shown(str(values[row]))} for record {row}", remedy=remedy)
    if not (values == "train").any():
        raise BadInput(where, expected="records that were trained on", got="none", remedy=SAY_USE)
    return values


def rows_by_use(use: NDArray[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of the records to train on, held out, and public, each [records] int64."""
    every = torch.arange(len(use), device="cpu")
    train, held, public = (every[torch.from_numpy(np.asarray(use == word))] for word in USES)
    return train, held, public
