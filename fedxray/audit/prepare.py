"""From a plan to a federation: data, split, network, recipe. The same plan and seed always give the same one."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedxray.audit.plan import DataPart, Plan
from fedxray.audit.plan.arguments import arguments, loader_options, partition_options
from fedxray.data import Dataset, Split, load, split
from fedxray.data.records import Records
from fedxray.federation.round_loop import Federation
from fedxray.losses import default_loss
from fedxray.seeds import fork

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything about one run but what is said in it."""

    dataset: Dataset
    split: Split
    federation: Federation
    seed: int


def prepare(plan: Plan, defence: str, seed: int) -> Prepared:
    """The federation of one defence and one seed."""
    dtype = DTYPES[plan.federation.dtype]
    dataset = load_data(plan, seed)
    parts = divide(plan, dataset, seed)
    model = plan.model.make(dataset.space, fork(seed, "model"), plan.folder).to(dtype)

    def records(index: torch.Tensor) -> Records:
        return _as_type(Records(dataset.x[index], dataset.y[index]), dtype)

    record = plan.federation.record
    federation = Federation(
        space=dataset.space,
        clients=tuple(records(index) for index in parts.train),
        holdout=tuple(records(index) for index in parts.holdout),
        public=records(parts.public),
        model=model,
        recipe=plan.federation.recipe(default_loss(dataset.space.target)),
        rounds=plan.federation.rounds,
        participation=plan.federation.participation,
        defence=plan.defence_of(defence).make(plan.folder),
        secure_aggregation=plan.federation.secure_aggregation,
        record=tuple(record) if isinstance(record, list) else record,
    )
    return Prepared(dataset=dataset, split=parts, federation=federation, seed=seed)


def load_data(plan: Plan, seed: int) -> Dataset:
    """The data set of a plan; what is generated is generated anew for every seed."""
    data = plan.data
    options = dict(arguments(data, loader_options(data)))
    if data.name is not None and "clients" in loader_options(data):
        options["clients"] = data.clients
    path = None if data.path is None else (plan.folder / data.path).resolve()
    return _load(
        _frozen(options),
        data.name,
        path,
        data.target,
        data.sensitive,
        tuple(data.categorical),
        tuple(data.drop),
        data.scale_target,
        seed,
    )


@functools.lru_cache(maxsize=2)
def _load(
    options: tuple[tuple[str, Any], ...],
    name: str | None,
    path: Path | None,
    target: str | None,
    sensitive: str | None,
    categorical: tuple[str, ...],
    drop: tuple[str, ...],
    scale_target: bool | None,
    seed: int,
) -> Dataset:
    return load(
        name,
        path=path,
        target=target,
        sensitive=sensitive,
        categorical=categorical,
        drop=drop,
        scale_target=scale_target,
        seed=seed,
        **dict(options),
    )


def _frozen(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (key, tuple(value) if isinstance(value, list) else value) for key, value in sorted(options.items())
    )


def divide(plan: Plan, dataset: Dataset, seed: int) -> Split:
    """Who holds which record."""
    data: DataPart = plan.data
    return split(
        dataset,
        clients=data.clients,
        partition=data.partition,
        holdout=data.holdout,
        public=data.public,
        limit=data.limit,
        seed=seed,
        **arguments(data, partition_options(data)),
    )


def _as_type(records: Records, dtype: torch.dtype) -> Records:
    y = records.y.to(dtype) if records.y.is_floating_point() else records.y
    return replace(records, x=records.x.to(dtype), y=y)
