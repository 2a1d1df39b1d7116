"""The truth behind a run: the records of every client and the order of their use; for disclosure and scoring only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedxray.data.dataset import Records, Space, union
from fedxray.defences.base import Defence, Kept, Sampling, Work
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe, Schedule, draw_by_chance, draw_schedule
from fedxray.federation.transcript import Parts
from fedxray.models.inspect import batch_norm_layers, batch_statistics
from fedxray.params import Params, each
from fedxray.seeds import derive_seed, fork, spell

MOST_SHOWN = 10  # clients in a repr
COLUMNS = 1024  # of the table of numbers that a checksum adds up


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """Everything that an auditor knows and an adversary does not; compared by identity, so that it can key a cache."""

    space: Space
    model: nn.Module
    recipe: Recipe
    defence: Defence
    train: tuple[Records, ...]  # by client
    holdout: tuple[Records, ...]  # by client, never trained on
    public: Records  # of no client
    seed: int
    rounds: int
    others: tuple[Records, ...] = ()  # by client, set aside of people trained on and held out; empty for none
    blocks: tuple[Records, ...] = ()  # where records of clients are parts of a few blocks, these

    def __repr__(self) -> str:
        """Numbers of records and names of the settings; no value of a record."""
        sizes = ", ".join(str(len(records)) for records in self.train[:MOST_SHOWN])
        sizes += ", ..." if len(self.train) > MOST_SHOWN else ""
        defence = type(self.defence).__name__
        return f"Truth(train=[{sizes}], public={len(self.public)}, rounds={self.rounds}, defence={defence})"

    def in_blocks(self) -> Truth:
        """The same truth with the records of all clients in a block each of train, holdout and others.

        A checksum reads blocks at once: every case asks for one, and there may be thousands of clients.
        """
        parts = self.train, self.holdout, self.others
        blocks = [union(part) if part else None for part in parts]
        train, holdout, others = (
            () if block is None else _cut(block, list(map(len, part)))
            for block, part in zip(blocks, parts, strict=True)
        )
        held = tuple(block for block in blocks if block is not None)
        return replace(self, train=train, holdout=holdout, others=others, blocks=held)

    def checksum(self) -> str:
        """A text that changes with any record, parameter or buffer, so that a change in place is noticed."""
        records = (*(self.blocks or self.in_blocks().blocks), self.public)
        held = [value for part in records for value in (part.x, part.y, part.subject) if value is not None]
        digest = hashlib.sha256()
        for value in (*held, *self.model.parameters(), *self.model.buffers()):
            for sums in _sums(value):
                digest.update(sums.data)
        return digest.hexdigest()

    @cached_property
    def secret(self) -> int:
        """A seed for draws that no adversary may repeat: it depends on all records, which none of them holds."""
        return derive_seed(self.seed, "secret", spell((self.train, self.holdout)))

    @cached_property
    def public_text(self) -> str:
        """The public records as granted, as canonical text."""
        return spell(Records(self.public.x, self.public.y))

    @cached_property
    def public_images_text(self) -> str:
        """The inputs of the public records as granted, as canonical text."""
        return spell(self.public.x)

    def work(self, client: int) -> Work:
        """The facts about a client's work that a defence may use."""
        return work_of(len(self.train[client]), self.recipe, self.rounds, self.space, self.model)

    def kept(self) -> Kept:
        """The parameters and statistics that clients keep to themselves."""
        return kept_of(self.defence, self.work(0), self.recipe)

    def schedule(self, client: int, round: int) -> Schedule:
        """The batches that this client used in that round."""
        sampling = self.defence.hooks(self.work(client)).sampling
        return client_schedule(len(self.train[client]), self.recipe, self.seed, client, round, sampling)


def _sums(value: Tensor) -> tuple[NDArray[Any], ...]:
    """A tensor's memory as a table of whole numbers: sums of its columns and of its rows, and the bytes left over.

    Ten times as fast as a digest of all bytes. An entry that changes, or changes places, changes some sum; only four
    or more changes can cancel out.
    """
    memory = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    rows = len(memory) // (8 * COLUMNS)
    table = memory[: rows * 8 * COLUMNS].view(np.int64).reshape(rows, COLUMNS)
    return table.sum(0), table.sum(1), memory[table.nbytes :]


def _cut(block: Records, sizes: list[int]) -> tuple[Records, ...]:
    """The parts of a block with these sizes, which share its memory."""
    people = [None] * len(sizes) if block.subject is None else block.subject.split(sizes)
    return tuple(map(Records, block.x.split(sizes), block.y.split(sizes), people))


def kept_of(defence: Defence, work: Work, recipe: Recipe) -> Kept:
    """The parameters and statistics that clients keep to themselves, by the recipe or by the defence."""
    by_defence, local = defence.hooks(work).kept, recipe.batch_norm == "local"
    if by_defence is None:
        return Kept(statistics=local)
    return replace(by_defence, statistics=by_defence.statistics or local)


def work_of(examples: int, recipe: Recipe, rounds: int, space: Space, model: nn.Module) -> Work:
    """The facts about the work of a client with that number of examples, for a defence."""
    norms = batch_norm_layers(model)
    return Work(
        examples=examples,
        batch_size=recipe.batch_length(examples),
        steps=recipe.steps(examples),
        rounds=rounds,
        classes=space.outputs if space.target == "classification" else None,
        norm_params=tuple(
            name for name, value in model.named_parameters() if value.requires_grad and name.rpartition(".")[0] in norms
        ),
    )


def client_schedule(
    examples: int,
    recipe: Recipe,
    seed: int,
    client: int,
    round: int,
    sampling: Sampling | None = None,
    tampered: tuple[object, ...] = (),
) -> Schedule:
    """The batches of one client in one round; an order drawn `once` is the same in every round.

    Poisson batches are drawn anew for the parameters `tampered` that a tampering server sent: a client's privacy
    guarantee depends on their randomness.
    """
    if sampling is not None:
        return draw_by_chance(
            recipe.steps(examples), examples, sampling, fork(seed, "chance", client, round, *tampered)
        )
    when = "always" if recipe.shuffle == "once" else round
    return draw_schedule(examples, recipe, fork(seed, "schedule", client, when))


def statistics_of_round(
    model: nn.Module, recipe: Recipe, records: Records, sent: Parts, schedule: Schedule
) -> dict[str, Tensor]:
    """BatchNorm statistics of a client's batches in one round: mean and unbiased variance, each [steps, channels].

    Keys are "<layer>.mean" and "<layer>.var"; the running statistics are averages of these. No defence is applied.
    """
    statistics, evaluate = batch_statistics(model), objective(model, recipe.loss)
    by_step: list[dict[str, Tensor]] = []

    def watched(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            by_step.append(each(torch.detach, statistics(params, buffers, batch.x)))
        return evaluate(params, buffers, batch)

    batches = [Batch(x=records.x[used], y=records.y[used]) for used in schedule.rows()]
    local_update(sent.params, sent.buffers, batches, recipe, watched)
    return {name: torch.stack([step[name] for step in by_step]) for name in by_step[0]}
