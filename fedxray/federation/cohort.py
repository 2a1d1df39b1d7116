"""The clients of one round trained together where that pays, one by one otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedxray.defences.base import IDENTITY, Seams, entered, sent
from fedxray.federation.local import Batch, LocalResult, local_update, objective
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.federation.stacked import Layer, stacked_layers, stacked_objective
from fedxray.params import Params, add, each, element_count, stack, subtract, unstack

# Measured on one core (docs/performance.md): stacking gains while all of a step's parameters and activations stay
# in the processor's caches, and loses up to half beyond that.
MOST_STACKED = 64  # clients side by side
MOST_ENTRIES = 3_000_000  # parameters, all stacked clients together
MOST_WORK = 60_000_000  # parameters times examples of a step, all stacked clients together
LEAST_STACKED = 4  # a network of which fewer fit under these limits gains nothing


@dataclass(frozen=True, kw_only=True)
class Job:
    """One client's work in one round: where it starts, on what, in which order."""

    client: int
    start: Params
    buffers: Params
    x: Tensor
    y: Tensor
    schedule: Schedule
    seams: Seams
    generator: torch.Generator


def train(model: nn.Module, jobs: Sequence[Job], recipe: Recipe) -> list[LocalResult]:
    """The result of every job, in the order given; which clients share a stack depends on their sizes alone."""
    layers = stacked_layers(model) if stacking_pays(jobs) else None
    if layers is None:
        return [train_one(model, job, recipe) for job in jobs]
    return train_together(model, layers, jobs, recipe)


def stacking_pays(jobs: Sequence[Job]) -> bool:
    """Whether these clients may share steps and would gain by it: several of them, with little work in a step."""
    if len(jobs) < 2 or any(job.seams.inside_steps or job.buffers for job in jobs):
        return False
    return _most_side_by_side(jobs) >= LEAST_STACKED


def _most_side_by_side(jobs: Sequence[Job]) -> int:
    """How many of these clients may share a stack."""
    entries = max(1, element_count(jobs[0].start))
    work = entries * max(job.schedule.width for job in jobs)
    return min(MOST_STACKED, MOST_ENTRIES // entries, MOST_WORK // work)


def train_one(model: nn.Module, job: Job, recipe: Recipe) -> LocalResult:
    """One client's work by itself."""
    batches = (Batch(x=job.x[used], y=job.y[used]) for used in job.schedule.rows())
    with _own_draws(job):
        return local_update(
            job.start,
            job.buffers,
            batches,
            recipe,
            objective(model, recipe.loss),
            seams=job.seams,
            generator=job.generator,
        )


@contextmanager
def _own_draws(job: Job) -> Iterator[None]:
    """Let dropout, which asks torch's global generator, draw from the job's seed, and put everything back."""
    device = job.x.device
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices, device_type="cuda" if device.type == "cpu" else device.type):
        if devices:
            torch.manual_seed(job.generator.initial_seed())
        else:  # not torch.manual_seed, which would reseed accelerators that are not put back here
            torch.default_generator.manual_seed(job.generator.initial_seed())
        yield


def train_together(
    model: nn.Module, layers: list[Layer], jobs: Sequence[Job], recipe: Recipe
) -> list[LocalResult]:
    """The result of every job, with clients of similar length stacked side by side."""
    results: dict[int, LocalResult] = {}
    for group in _groups(jobs):
        members = [jobs[place] for place in group]
        outcome = (
            [train_one(model, members[0], recipe)]
            if len(members) == 1
            else _train_group(layers, members, recipe)
        )
        results.update(zip(group, outcome, strict=True))
    return [results[place] for place in range(len(jobs))]


def _groups(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of jobs that share a stack: similar step counts, longest first, within the limits."""
    order = sorted(range(len(jobs)), key=lambda place: (-jobs[place].schedule.steps, place))
    most = max(1, _most_side_by_side(jobs))
    groups: list[list[int]] = []
    for place in order:
        longest = jobs[groups[-1][0]].schedule.steps if groups else 0
        if groups and len(groups[-1]) < most and 2 * jobs[place].schedule.steps >= longest:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _train_group(layers: list[Layer], jobs: Sequence[Job], recipe: Recipe) -> list[LocalResult]:
    """Several clients at once: stacked parameters, padded batches, zero weight for filling."""
    entered = [_enter(job) for job in jobs]
    starts = stack(entered)
    evaluate = stacked_objective(layers, recipe.loss)
    result = local_update(starts, {}, _stacked_batches(jobs, starts), recipe, evaluate, seams=IDENTITY)
    found = zip(jobs, entered, unstack(result.update), strict=True)
    return [_leave(job, start, update, recipe) for job, start, update in found]


def _stacked_batches(jobs: Sequence[Job], starts: Params) -> Iterator[Batch]:
    """The batches of all clients step by step, gathered from one table of everyone's records."""
    steps = max(job.schedule.steps for job in jobs)
    width = max(job.schedule.width for job in jobs)
    index = torch.stack([_padded(job.schedule.index, steps, width) for job in jobs], dim=1)
    whole = bool((index >= 0).all())  # index: [steps, clients, width], -1 is filling
    like = next(iter(starts.values()))
    weight = (index >= 0).to(device=like.device, dtype=like.dtype)
    sizes = torch.tensor([job.x.shape[0] for job in jobs], device=index.device, dtype=index.dtype)
    rows = (index.clamp(min=0) + (sizes.cumsum(0) - sizes)[None, :, None]).to(like.device)
    x, y = torch.cat([job.x for job in jobs]), torch.cat([job.y for job in jobs])
    for step in range(steps):
        chosen = rows[step]
        counts = None if whole else weight[step]
        active = None if counts is None else counts.amax(-1)
        yield Batch(x=x[chosen], y=y[chosen], weight=counts, active=active)


def _padded(index: Tensor, steps: int, width: int) -> Tensor:
    """A schedule with filling up to [steps, width]."""
    full = torch.full((steps, width), -1, dtype=index.dtype, device=index.device)
    full[: index.shape[0], : index.shape[1]] = index
    return full


def _enter(job: Job) -> Params:
    if job.seams.incoming is None:
        return job.start
    with _own_draws(job):
        return entered(job.seams, job.start, job.generator)


def _leave(job: Job, entered: Params, update: dict[str, Tensor], recipe: Recipe) -> LocalResult:
    """One client's reply; like its own round, it is measured from what the client was sent."""
    if job.seams.incoming and recipe.kind == "weights":
        kept = add(update, subtract(entered, job.start))
    else:
        kept = each(torch.clone, update)
    if job.seams.outgoing is None:
        return LocalResult(update=kept, buffers=dict(job.buffers))
    with _own_draws(job):  # an own defence may draw as torch does, without the generator it is given
        return LocalResult(update=sent(job.seams, kept, job.generator), buffers=dict(job.buffers))
