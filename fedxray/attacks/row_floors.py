"""Floors of guessed rows: what the columns of the public records say, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, granted, public_records
from fedxray.attacks.evidence import Evidence, Kind, of_rows
from fedxray.attacks.floors import categories_of, known_records, rounded_to
from fedxray.data.space import Column
from fedxray.seeds import fork, permutation


@dataclass(frozen=True, kw_only=True)
class MajorityRow(Attack):
    """One row for everyone: in each column the value that tells most of the public records."""

    name: ClassVar[str] = "majority"
    kind: ClassVar[Kind] = "rows"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public records, and how many rows are in question."""
        return (granted("examples"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """One row, repeated."""
        public, count = known_records(view).x, view.grants.examples
        assert count is not None
        row = public.mean(0)
        for column in view.space.columns:
            row[list(column.positions)] = _likeliest(public, column)
        return of_rows(row.expand(count, -1).clone(), facts={"public_records": len(public)})


@dataclass(frozen=True, kw_only=True)
class MarginalRows(Attack):
    """Rows whose columns, one by one, hold values in the proportions of the public records, put together at random."""

    name: ClassVar[str] = "marginals"
    kind: ClassVar[Kind] = "rows"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("examples", "public-records")

    def needs(self) -> tuple[Need, ...]:
        """Public records, and how many rows are in question."""
        return (granted("examples"), public_records())

    def attack(self, view: View, context: Context) -> Evidence:
        """Each column shared out by itself, then mixed."""
        public, count = known_records(view).x, view.grants.examples
        assert count is not None
        rows = public.mean(0).expand(count, -1).clone()
        for column in view.space.columns:
            mixed = permutation(count, fork(context.generator, "column", column.name)).to(public.device)
            rows[:, list(column.positions)] = _in_proportion(public, column, count)[mixed]
        return of_rows(rows, facts={"public_records": len(public)})


def _likeliest(public: Tensor, column: Column) -> Tensor:
    """The encoded value that counts as right for most public records, shape [positions]."""
    if column.kind == "categorical":
        return column.candidates(public)[torch.bincount(categories_of(public, column)).argmax()]
    values = public[:, list(column.positions)]
    near = (values - values.T).abs() <= column.tolerance
    return values[near.sum(1).argmax()]


def _in_proportion(public: Tensor, column: Column, count: int) -> Tensor:
    """So many encoded values in the proportions of the public records, shape [count, positions]."""
    if column.kind == "continuous":
        places = (
            torch.arange(count, dtype=torch.float64, device="cpu").add(0.5).mul(len(public) / count).long()
        )
        return public[:, list(column.positions)].sort(0).values[places.to(public.device)]
    codes = column.candidates(public)
    shares = torch.bincount(categories_of(public, column), minlength=len(codes)).double() / len(public)
    return codes.repeat_interleave(rounded_to(shares * count, count), 0)
