"""The division of a data set: a public share, and for each client records to train on and to hold out.

Order of draws: the public share first, then the partition of the rest among clients, then the held-out records of each
client. So a larger `limit` only adds training records. Where records have subjects, all draws are of people: each
stands for all of its records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedxray.data.checks import plain_name, share, whole_number
from fedxray.data.dataset import USE, Dataset, rows_by_use
from fedxray.data.encode import spell_category
from fedxray.data.partition import PARTITIONS, Division, as_ranges, by_number, raw_column, too_many_clients
from fedxray.data.subjects import check_one_client_each, check_one_use_each, records_by_subject, set_aside
from fedxray.errors import BadInput, some, unknown_key, unknown_name
from fedxray.lookup import load
from fedxray.seeds import fork, permutation

MOST_VALUES = 5  # of a column that the name of one client lists


@dataclass(frozen=True, kw_only=True)
class Split:
    """Indices of records by use; no record has two uses, only `att-faces` gives one record to several clients.

    No person is on two sides: `others` are records of people of the client, trained on or held out, that are left out.
    """

    train: tuple[Tensor, ...]  # one [records] int64 per client
    holdout: tuple[Tensor, ...]  # one [records] int64 per client, never trained on
    public: Tensor  # [records] int64, belongs to no client
    names: tuple[str, ...] = ()  # one per client, empty where the data has none for it
    dropped: int = 0  # records without a use: beyond a limit, or left out by the partition
    others: tuple[Tensor, ...] = ()  # one [records] int64 per client, where a share of every person's is set aside


def split(
    dataset: Dataset,
    *,
    clients: int,
    partition: str = "iid",
    holdout: float = 0.1,
    public: float = 0.1,
    limit: int | None = None,
    distinct_classes: bool = False,
    subject_holdout: float = 0.0,
    seed: int,
    **options: Any,
) -> Split:
    """Divide a data set among clients.

    `holdout` is the share of each client's records that is never trained on, `public` the share of all records that
    goes to no client, `limit` the largest number of training records of a client; with `distinct_classes` it is exact,
    and a client has one record of each of as many classes. Where records have subjects, both are shares of the people,
    and `subject_holdout` is the share of every person's records that is set aside. `options` are those of the
    partition.
    """
    clients = whole_number("clients", clients)
    shares = share("holdout", holdout), share("public", public), share("subject_holdout", subject_holdout)
    subject = dataset.subject
    if subject is None and subject_holdout:
        remedy = "Name the column of the person with subject, or leave it out."
        raise BadInput("subject_holdout", expected="data with a subject", got=subject_holdout, remedy=remedy)
    if limit is not None:
        whole_number("limit", limit)
    if distinct_classes:
        _check_distinct(dataset, limit)
    if USE in dataset.raw:
        return _as_used(dataset, clients, partition, limit)
    least = 2 if shares[0] > 0 else 1
    drawn = _drawn_units(dataset, partition, clients, least)
    common, rest = _take_public(len(drawn), shares[1], seed)
    task = Division(dataset=dataset, members=drawn[rest], clients=clients, least=least, seed=seed)
    parts = _divide(partition, task, options)
    train, held = _take_holdout(parts, shares[0], seed)
    if distinct_classes:
        train = tuple(_of_distinct_classes(dataset, part, limit, client) for client, part in enumerate(train))
    elif subject is None:
        train = tuple(part[:limit] for part in train)
    divided = Split(train=train, holdout=held, public=drawn[common])
    if subject is not None:
        divided = _with_all_records(divided, subject, limit, shares[2], seed)
    used = torch.unique(torch.cat([divided.public, *divided.train, *divided.holdout, *divided.others]))
    names = client_names(dataset, partition, parts, options.get("column"))
    return replace(divided, names=names, dropped=len(dataset) - len(used))


def _drawn_units(dataset: Dataset, partition: str, clients: int, least: int) -> Tensor:
    """What is drawn and divided, as indices of records: all of them, or the first of every person."""
    subject = dataset.subject
    if subject is None:
        if clients > len(dataset):
            raise too_many_clients(clients, len(dataset), "the number of records")
        return torch.arange(len(dataset), device="cpu")
    people = records_by_subject(subject)
    if clients * least > len(people):
        of_each = f"{least} of each client's from {len(people):,} people"
        raise too_many_clients(clients, len(people) // least, of_each)
    if partition == "as-given" and dataset.owner is not None:
        check_one_client_each(subject, dataset.owner)
    return torch.stack([rows[0] for rows in people])


def _with_all_records(divided: Split, subject: Tensor, limit: int | None, aside: float, seed: int) -> Split:
    """A division of people by their first records as one of all their records."""
    kept, others = set_aside(records_by_subject(subject), aside, seed)

    def of(people: Tensor, records: list[Tensor]) -> Tensor:
        return torch.cat([people[:0], *(records[person] for person in subject[people].tolist())])

    train = [of(people, kept)[:limit] for people in divided.train]
    both = [torch.cat(sides) for sides in zip(divided.train, divided.holdout, strict=True)]
    return replace(
        divided,
        train=tuple(
            rows[permutation(len(rows), fork(seed, "split", "order", client))] for client, rows in enumerate(train)
        ),
        holdout=tuple(of(people, kept) for people in divided.holdout),
        public=torch.cat([of(divided.public, kept), of(divided.public, others)]).sort().values,
        others=tuple(of(people, others) for people in both) if aside > 0 else (),
    )


def _as_used(dataset: Dataset, clients: int, partition: str, limit: int | None) -> Split:
    """The uses that the data itself states, owner by owner: nothing is drawn, so every seed gets the same records."""
    if dataset.owner is None or partition != "as-given":
        got = f"partition = {partition!r}" if dataset.owner is not None else "records without owners"
        expected = 'owners of the records (an array client) and partition = "as-given", or a [transcript]'
        remedy = "Add them, or leave use out."
        raise BadInput("use", expected=expected, got=got, remedy=remedy)
    train, held, public = rows_by_use(dataset.raw[USE])
    if dataset.subject is not None:
        check_one_use_each(dataset.subject, (train, held, public))
    owners = dataset.owner[train].unique().tolist()
    if len(owners) != clients:
        expected, remedy = f"{len(owners)}, the owners of records for training", f"Set clients = {len(owners)}."
        raise BadInput("clients", expected=expected, got=clients, remedy=remedy)
    by_owner = [by_number(rows, dataset.owner[rows], int(dataset.owner.max()) + 1) for rows in (train, held)]
    parts, held_out = [by_owner[0][owner][:limit] for owner in owners], [by_owner[1][owner] for owner in owners]
    used = len(public) + sum(map(len, [*parts, *held_out]))
    names = client_names(dataset, partition, parts, None)
    return Split(train=tuple(parts), holdout=tuple(held_out), public=public, names=names, dropped=len(dataset) - used)


def _take_public(count: int, public: float, seed: int) -> tuple[Tensor, Tensor]:
    """The public records and the rest, each sorted; at least one is public when any is asked for."""
    size = max(round(public * count), 1) if public > 0 else 0
    order = permutation(count, fork(seed, "split", "public"))
    return order[:size].sort().values, order[size:].sort().values


def _divide(partition: str, task: Division, options: dict[str, Any]) -> list[Tensor]:
    """Indices of the records of every client by the partition of that name, refused where a client has none."""
    if partition not in PARTITIONS:
        raise unknown_name("partition", str(partition), PARTITIONS)
    function: Callable[..., list[Tensor]] = load(PARTITIONS[partition])
    known = [key for key in inspect.signature(function).parameters if key != "task"]
    for key in options:
        if key not in known:
            raise unknown_key(key, key, known, of=f"partition {partition}")
    parts = function(task, **options)
    for client, part in enumerate(parts):
        if len(part) == 0:
            expected = "records for every client"
            remedy = "Use fewer clients, another partition, or smaller holdout and public shares."
            raise BadInput("clients", expected=expected, got=f"none for client {client} of {len(parts)}", remedy=remedy)
    return parts


def _holdout_size(count: int, holdout: float) -> int:
    """Records held out of `count`: at least one if any is asked for, but never all."""
    return min(max(round(holdout * count), 1), count - 1) if holdout > 0 else 0


def _take_holdout(parts: list[Tensor], holdout: float, seed: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Training and held-out records of every client; a record held out by one is trained on by none."""
    ordered = [part[permutation(len(part), fork(seed, "split", "client", client))] for client, part in enumerate(parts)]
    taken = torch.zeros(1 + max(int(part.max()) for part in parts), dtype=torch.bool, device="cpu")  # by record
    held: list[Tensor] = []
    for order in ordered:
        free = order[~taken[order]]
        size = min(_holdout_size(len(order), holdout), len(free))
        held.append(free[len(free) - size :])
        taken[held[-1]] = True
    train = [order[~taken[order]] for order in ordered]
    for client, part in enumerate(train):
        if len(part) == 0:
            expected, remedy = "a training record for every client", "Use fewer clients or a smaller holdout."
            raise BadInput("holdout", expected=expected, got=f"none for client {client}", remedy=remedy)
    return tuple(train), tuple(held)


def _check_distinct(dataset: Dataset, limit: int | None) -> None:
    """Refuse distinct classes without a number of records, and for data without classes, with subjects or uses."""
    trouble = {
        "no limit": limit is None,
        f"a {dataset.space.target} target": dataset.space.target != "classification",
        "data with a subject": dataset.subject is not None,
        "records with a stated use": USE in dataset.raw,
    }
    for got in (words for words, is_so in trouble.items() if is_so):
        expected, remedy = "classes, a limit, and neither subjects nor stated uses", "Leave distinct_classes out."
        raise BadInput("distinct_classes", expected=expected, got=got, remedy=remedy)


def _of_distinct_classes(dataset: Dataset, records: Tensor, limit: int | None, client: int) -> Tensor:
    """The first record of each class among a client's records [n], in their order, `limit` of them."""
    classes, first = np.unique(dataset.y[records].numpy(), return_index=True)
    if limit is None or len(classes) < limit:
        expected = f"at least {limit} classes among the training records of every client"
        got, remedy = f"{len(classes)} of client {client}", "Use a smaller limit, fewer clients or another partition."
        raise BadInput("distinct_classes", expected=expected, got=got, remedy=remedy)
    return records[torch.from_numpy(np.sort(first)[:limit])]


def client_names(dataset: Dataset, partition: str, parts: Sequence[Tensor], column: object = None) -> tuple[str, ...]:
    """One name per client, from the values of a column or the owners; empty where the data has none.

    Ranges of numbers are numbered instead: their ends would be values of records.
    """
    if partition == "by-column":
        values = raw_column(dataset, column)
        members = np.concatenate([part.numpy() for part in parts])
        if as_ranges(values[members], len(parts)):
            return tuple(f"{column}, part {number} of {len(parts)}" for number in range(1, len(parts) + 1))
        return tuple(_joined([spell_category(value) for value in np.unique(values[part.numpy()])]) for part in parts)
    if partition == "as-given" and dataset.owner is not None and dataset.owners:
        return tuple(dataset.owners[int(dataset.owner[part[0]])] for part in parts)
    return ("",) * len(parts)


def _joined(values: list[str]) -> str:
    return some([plain_name(value) for value in values], MOST_VALUES)
