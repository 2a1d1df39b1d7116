"""What defines a run but its seed, and who takes part in which round."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import nn

from fedxray.data.records import Records
from fedxray.data.space import Space
from fedxray.defences.base import Defence, Kept, NoDefence, Work
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.checks import (
    check_batches,
    check_example_gradients,
    check_kept,
    check_records,
    check_seams,
)
from fedxray.federation.recipe import Recipe
from fedxray.federation.truth import Truth, kept_of, work_of
from fedxray.seeds import fork, permutation

Recorded = Literal["all", "last"] | str | tuple[int, ...]
DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everything that defines a run but its seed: who holds what, the network, the recipe, the protocol.

    Clients train the network in train mode, whatever mode it is handed over in, and leave it as it was.
    """

    space: Space
    clients: tuple[Records, ...]
    model: nn.Module
    recipe: Recipe = field(default_factory=Recipe)
    rounds: int = 1
    participation: float = 1.0
    defence: Defence = field(default_factory=NoDefence)
    secure_aggregation: bool = False
    record: Recorded = "all"
    holdout: tuple[Records, ...] = ()
    public: Records | None = None

    def __post_init__(self) -> None:
        """Check what can be checked before anything runs."""
        check_records(self.model, self.clients, self.holdout)
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            expected, remedy = "a whole number of at least 1", "Try rounds = 10."
            raise BadInput("rounds", expected=expected, got=repr(self.rounds), remedy=remedy)
        if not 0 < self.participation <= 1:
            expected, remedy = "a share above 0 and up to 1", "Try 1.0."
            raise BadInput("participation", expected=expected, got=self.participation, remedy=remedy)
        recorded_rounds(self.record, self.rounds)
        sizes = [len(records) for records in self.clients]
        seams = check_seams(self.defence.seams(self.work(0)))
        check_batches(self.model, self.clients[0].x[:1], sizes, self.recipe, seams.mixed)
        check_example_gradients(self.model, seams)
        check_kept(self.model, seams)

    def work(self, client: int) -> Work:
        """What a defence may know of a client's job."""
        return work_of(len(self.clients[client]), self.recipe, self.rounds, self.space, self.model)

    def kept(self) -> Kept:
        """What clients keep to themselves."""
        return kept_of(self.defence, self.work(0), self.recipe)

    def truth(self, seed: int) -> Truth:
        """What really happens in the run of this seed."""
        empty = Records(self.clients[0].x[:0], self.clients[0].y[:0])
        return Truth(
            space=self.space,
            model=self.model,
            recipe=self.recipe,
            defence=self.defence,
            train=self.clients,
            holdout=self.holdout or (empty,) * len(self.clients),
            public=self.public if self.public is not None else empty,
            seed=seed,
            rounds=self.rounds,
        )


def in_dtype(federation: Federation, name: str) -> Federation:
    """The same federation with network and records in another floating-point type."""
    if name not in DTYPES:
        raise unknown_name("dtype", name, DTYPES)
    dtype = DTYPES[name]
    return replace(
        federation,
        model=copy.deepcopy(federation.model).to(dtype),
        clients=tuple(_cast(records, dtype) for records in federation.clients),
        holdout=tuple(_cast(records, dtype) for records in federation.holdout),
        public=None if federation.public is None else _cast(federation.public, dtype),
    )


def _cast(records: Records, dtype: torch.dtype) -> Records:
    return Records(records.x.to(dtype), records.y.to(dtype) if records.y.is_floating_point() else records.y)


def recorded_rounds(record: Recorded, rounds: int) -> set[int]:
    """The rounds that a setting of `record` keeps; the last one is always kept."""
    if isinstance(record, tuple):
        if any(not 0 <= round < rounds for round in record):
            expected, remedy = f"rounds from 0 to {rounds - 1}", "Leave out what is beyond."
            raise BadInput("record", expected=expected, got=list(record), remedy=remedy)
        return {*record, rounds - 1}
    if record == "all":
        return set(range(rounds))
    if record == "last":
        return {rounds - 1}
    gap = record.removeprefix("every-")
    if record.startswith("every-") and gap.isascii() and gap.isdigit() and int(gap) > 0:
        return {*range(0, rounds, int(gap)), rounds - 1}
    expected = '"all", "last", "every-10" or a list of rounds'
    raise BadInput("record", expected=expected, got=repr(record), remedy='Try "all".')


def participants(federation: Federation, seed: int, round: int) -> list[int]:
    """The clients of a round, ascending."""
    order = permutation(len(federation.clients), fork(seed, "participation", round))
    return sorted(order[: participant_count(federation)].tolist())


def participant_count(federation: Federation) -> int:
    """How many clients take part in every round, at least one."""
    return share_of(federation.participation, len(federation.clients))


def share_of(participation: float, clients: int) -> int:
    """How many of so many clients a share of them is, at least one."""
    return max(1, int(participation * clients + 0.5))


def rounds_worked(federation: Federation, seed: int) -> list[int]:
    """In how many rounds of the run each client takes part."""
    found = [0] * len(federation.clients)
    for round in range(federation.rounds):
        for client in participants(federation, seed, round):
            found[client] += 1
    return found
