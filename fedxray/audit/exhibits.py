"""What an attack says of single records beside what they are: pictures, guessed values, rebuilt rows.

Of a user's own data this is private and goes into a report only where it is asked for: a good guess is the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.disclose import attribute_order, attribute_rows
from fedxray.attacks.evidence import Evidence
from fedxray.audit.gallery import pictures
from fedxray.data.space import Column, Dataset, Space
from fedxray.federation.truth import Truth
from fedxray.imaging import assignment
from fedxray.metrics.rows import values_told

MOST_RECORDS, MOST_COLUMNS = 8, 12
NO_GUESS = "no guess"


def exhibit(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """The first few records of a client with the guess about each; None where an attack does not guess records."""
    if client is not None and evidence.kind == "attributes":
        return _attributes(evidence, truth, client, dataset)
    if client is not None and evidence.kind == "rows":
        return _rows(evidence, truth, client, dataset)
    return pictures(evidence, truth, client, dataset)


def _attributes(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any] | None:
    column, codes = truth.space.column(truth.space.sensitive or ""), evidence.tensors["codes"]
    own = truth.train[client].x
    if len(codes) != len(own):  # about all clients at once
        return None
    real = attribute_rows(truth, client).x
    guess = real.clone()
    guess[:, list(column.positions)] = codes.to(real)
    asked = attribute_order(truth, client, len(own)).tolist()  # where each stands in the client's own order
    shown = [
        _record(index, guess[place], real[place], [column])
        for index, place in sorted(zip(asked, range(len(own)), strict=True))[:MOST_RECORDS]
    ]
    title = f"client {client}, {len(real)} records"
    return {"title": title, "private": dataset.private, "records": shown}


def _rows(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any]:
    real, columns = truth.train[client].x, truth.space.columns
    guess = evidence.tensors["inputs"].to(real).flatten(1)
    told = values_told(guess, real, columns).sum(-1)  # [guesses, records]
    partner = dict(zip(*(one.tolist() for one in assignment(told.double())[::-1]), strict=True))
    nothing = torch.full_like(real[0], torch.nan)
    shown = [
        _record(
            index, guess[partner[index]] if index in partner else nothing, real[index], columns[:MOST_COLUMNS]
        )
        for index in range(min(len(real), MOST_RECORDS))
    ]
    title = f"client {client}, {len(real)} records{_hidden(truth.space)}"
    return {"title": title, "private": dataset.private, "records": shown}


def _hidden(space: Space) -> str:
    more = len(space.columns) - MOST_COLUMNS
    return f", {more} more columns not shown" if more > 0 else ""


def _record(place: int, guess: Tensor, real: Tensor, columns: Sequence[Column]) -> dict[str, Any]:
    """One record: column, its value, the guessed one, and whether that counts as told."""
    right = values_told(guess[None], real[None], columns)[0, 0].tolist()
    values = [
        [column.name, spoken(column, real), spoken(column, guess), hit]
        for column, hit in zip(columns, right, strict=True)
    ]
    return {"record": place, "values": values}


def spoken(column: Column, row: Tensor) -> str:
    """The value of a column in a row [width] as a reader sees it; numbers as a share of their range."""
    value = row[list(column.positions)]
    if not bool(torch.isfinite(value).all()):
        return NO_GUESS
    if column.kind == "continuous":
        return f"{100 * (float(value[0]) - column.low) / (column.high - column.low):.0f} % of the range"
    apart = ((column.candidates(value) - value) ** 2).sum(-1)
    return column.categories[int(apart.argmin())]
