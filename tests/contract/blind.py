"""The same world for whoever sits in a seat, and noise wherever that seat cannot look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from fedxray.data.dataset import Records
from fedxray.federation.truth import Truth
from fedxray.seeds import fork
from tests.contract.worlds import World, noise_like

WHOLE_RECORDS = {"target-records", "oracle-records", "oracle-groups", "oracle-loss", "metrics"}
LABELS = {"labels", "label-counts", "batch-labels"}


def hidden_from(world: World, reader: str) -> list[str]:
    """The keys of all tensors that this reader can see in no message."""
    messages = world.transcript.messages
    visible = {message.parts for message in messages if reader in message.readers}
    return sorted({message.parts for message in messages} - visible)


def blind_truth(world: World, names: Collection[str], *, client: int, seats: Sequence[int] = ()) -> World:
    """The world with every record of its truth that these grants do not describe replaced by noise."""
    truth, draw = world.truth, fork(17, "blind truth")
    column = () if truth.space.sensitive is None else truth.space.column(truth.space.sensitive).positions
    whole = bool(set(names) & WHOLE_RECORDS)
    labels = whole or bool(set(names) & LABELS) or "public-attributes" in names

    def spoilt(records: Records, *, x: bool = True, y: bool = True) -> Records:
        return Records(
            noise_like(records.x, draw) if x else records.x, _other_targets(truth, records.y, draw) if y else records.y
        )

    def target(records: Records) -> Records:
        found = spoilt(records, x=not whole and "public-attributes" not in names, y=not labels)
        if not whole and "public-attributes" in names:
            found = Records(_without(found.x, column, draw), found.y)
        return found

    def train(owner: int, records: Records) -> Records:
        if owner in seats or {"oracle-groups", "source-records"} & set(names):
            return records
        return target(records) if owner == client else spoilt(records)

    kept = "target-records" in names
    blind = replace(
        truth,
        train=tuple(train(owner, records) for owner, records in enumerate(truth.train)),
        holdout=tuple(
            records if kept and owner == client else spoilt(records) for owner, records in enumerate(truth.holdout)
        ),
        public=truth.public if {"public-records", "public-images"} & set(names) else spoilt(truth.public),
    )
    return replace(world, truth=blind)


def _without(x: torch.Tensor, positions: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Records with noise in these positions."""
    found = x.clone()
    found[:, list(positions)] = noise_like(x[:, list(positions)], generator) + 3.0
    return found


def _other_targets(truth: Truth, y: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Noise for a regression target, random classes otherwise."""
    if y.is_floating_point():
        return noise_like(y, generator)
    return torch.randint(len(truth.space.classes), y.shape, generator=generator)
