"""The clients of one round, trained side by side where that is faster, one by one otherwise.

Stacked clients share every step: parameters are [clients, ...], schedules are padded to [steps, clients, width]. A
client with fewer steps or smaller batches gets padding of weight zero, and is frozen when it has no step left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedxray.defences.base import IDENTITY, Hooks, entered, sent
from fedxray.federation.local import (
    Batch,
    Layer,
    LocalResult,
    local_update,
    objective,
    stacked_layers,
    stacked_objective,
)
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.params import Params, add, each, element_count, stack, subtract, unstack

# Measured on one core (docs/performance.md): stacking is faster while the parameters and activations of a step fit
# into the processor's caches, and up to half slower beyond that.
MOST_STACKED = 64  # clients side by side
MOST_ENTRIES = 3_000_000  # parameters, all stacked clients together
MOST_WORK = 60_000_000  # parameters times examples of a step, all stacked clients together
LEAST_STACKED = 4  # a network of which fewer fit under these limits is not stacked


@dataclass(frozen=True, kw_only=True)
class ClientJob:
    """One client's work in one round: its initial weights, its records and the order in which it uses them."""

    client: int
    start: Params  # the model that the client was sent
    buffers: Params
    x: Tensor  # [examples, ...]
    y: Tensor  # [examples]
    schedule: Schedule
    hooks: Hooks  # hooks of the defence
    generator: torch.Generator  # for the draws of the defence and of dropout


def train(model: nn.Module, jobs: Sequence[ClientJob], recipe: Recipe) -> list[LocalResult]:
    """The result of every job, in the order given; which clients are stacked depends on their sizes alone."""
    layers = stacked_layers(model) if stacking_pays(jobs) else None
    if layers is None:
        return [train_one(model, job, recipe) for job in jobs]
    return train_together(model, layers, jobs, recipe)


def stacking_pays(jobs: Sequence[ClientJob]) -> bool:
    """Whether these clients may be stacked and are faster so: several of them, with little work in a step.

    Buffers and hooks inside the steps belong to one client, so such clients are trained one by one.
    """
    if len(jobs) < 2 or any(job.hooks.inside_steps or job.buffers for job in jobs):
        return False
    return _most_side_by_side(jobs) >= LEAST_STACKED


def _most_side_by_side(jobs: Sequence[ClientJob]) -> int:
    """The largest number of these clients in one stack."""
    entries = max(1, element_count(jobs[0].start))
    work = entries * max(job.schedule.width for job in jobs)
    return min(MOST_STACKED, MOST_ENTRIES // entries, MOST_WORK // work)


def train_one(model: nn.Module, job: ClientJob, recipe: Recipe) -> LocalResult:
    """One client's work by itself."""
    batches = (Batch(x=job.x[used], y=job.y[used]) for used in job.schedule.rows())
    with _own_draws(job):
        return local_update(
            job.start,
            job.buffers,
            batches,
            recipe,
            objective(model, recipe.loss),
            hooks=job.hooks,
            generator=job.generator,
        )


@contextmanager
def _own_draws(job: ClientJob) -> Iterator[None]:
    """Seed torch's global generator, which dropout draws from, by the job, and restore it afterwards."""
    device = job.x.device
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices, device_type="cuda" if device.type == "cpu" else device.type):
        if devices:
            torch.manual_seed(job.generator.initial_seed())
        else:  # not torch.manual_seed, which would reseed accelerators that are not restored here
            torch.default_generator.manual_seed(job.generator.initial_seed())
        yield


def train_together(
    model: nn.Module, layers: list[Layer], jobs: Sequence[ClientJob], recipe: Recipe
) -> list[LocalResult]:
    """The result of every job, with clients of similar length stacked side by side."""
    results: dict[int, LocalResult] = {}
    for group in _groups(jobs):
        members = [jobs[index] for index in group]
        group_results = (
            [train_one(model, members[0], recipe)] if len(members) == 1 else _train_group(layers, members, recipe)
        )
        results.update(zip(group, group_results, strict=True))
    return [results[index] for index in range(len(jobs))]


def _groups(jobs: Sequence[ClientJob]) -> list[list[int]]:
    """Indices of the jobs of each stack: at least half as many steps as its longest job, longest first."""
    order = sorted(range(len(jobs)), key=lambda index: (-jobs[index].schedule.steps, index))
    most = max(1, _most_side_by_side(jobs))
    groups: list[list[int]] = []
    for index in order:
        longest = jobs[groups[-1][0]].schedule.steps if groups else 0
        if groups and len(groups[-1]) < most and 2 * jobs[index].schedule.steps >= longest:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _train_group(layers: list[Layer], jobs: Sequence[ClientJob], recipe: Recipe) -> list[LocalResult]:
    """Several clients at once: stacked parameters, padded batches, zero weight for padding."""
    origins = [_enter(job) for job in jobs]
    starts = stack(origins)  # [clients, ...] by name
    evaluate = stacked_objective(layers, recipe.loss)
    result = local_update(starts, {}, _stacked_batches(jobs, starts), recipe, evaluate, hooks=IDENTITY)
    updates = unstack(result.update)
    return [_leave(job, origin, update, recipe) for job, origin, update in zip(jobs, origins, updates, strict=True)]


def _stacked_batches(jobs: Sequence[ClientJob], starts: Params) -> Iterator[Batch]:
    """The batches of all clients step by step, x [clients, width, ...], taken from one table of all records."""
    steps = max(job.schedule.steps for job in jobs)
    width = max(job.schedule.width for job in jobs)
    # [steps, clients, width], -1 is padding
    index = torch.stack([_padded(job.schedule.index, steps, width) for job in jobs], dim=1)
    unpadded = bool((index >= 0).all())
    like = next(iter(starts.values()))
    weight = (index >= 0).to(device=like.device, dtype=like.dtype)
    sizes = torch.tensor([job.x.shape[0] for job in jobs], device=index.device, dtype=index.dtype)
    # A client's own indices plus where its records begin in the table of all clients.
    rows = (index.clamp(min=0) + (sizes.cumsum(0) - sizes)[None, :, None]).to(like.device)
    x, y = torch.cat([job.x for job in jobs]), torch.cat([job.y for job in jobs])
    for step in range(steps):
        chosen = rows[step]
        counts = None if unpadded else weight[step]  # [clients, width]
        active = None if counts is None else counts.amax(-1)  # [clients]
        yield Batch(x=x[chosen], y=y[chosen], weight=counts, active=active)


def _padded(index: Tensor, steps: int, width: int) -> Tensor:
    """A schedule padded with -1 to [steps, width]."""
    full = torch.full((steps, width), -1, dtype=index.dtype, device=index.device)
    full[: index.shape[0], : index.shape[1]] = index
    return full


def _enter(job: ClientJob) -> Params:
    """The model from which the client trains: what it was sent, after the incoming hook of its defence."""
    if job.hooks.incoming is None:
        return job.start
    with _own_draws(job):
        return entered(job.hooks, job.start, job.generator)


def _leave(job: ClientJob, origin: Params, update: dict[str, Tensor], recipe: Recipe) -> LocalResult:
    """One client's reply, measured from the model that it was sent, as `local_update` does."""
    if job.hooks.incoming and recipe.kind == "weights":
        reply = add(update, subtract(origin, job.start))
    else:
        reply = each(torch.clone, update)  # a view of the stack would keep all clients' updates in memory
    if job.hooks.outgoing is None:
        return LocalResult(update=reply, buffers=dict(job.buffers))
    with _own_draws(job):  # a user's own defence may draw from torch's global generator
        return LocalResult(update=sent(job.hooks, reply, job.generator), buffers=dict(job.buffers))
