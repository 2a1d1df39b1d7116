"""The clients of one round trained together where that pays, one by one otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedxray.defences.base import IDENTITY, Seams
from fedxray.federation.local import Batch, LocalResult, local_update, objective, stacked_objective
from fedxray.federation.recipe import Recipe
from fedxray.federation.schedule import Schedule
from fedxray.params import Params, element_count, stack, unstack

# Layers that cost less stacked; convolutions with a weight per client run slower than a loop on a CPU.
STACKING_PAYS = (
    nn.Linear,
    nn.ReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.LeakyReLU,
    nn.GELU,
    nn.ELU,
    nn.Flatten,
    nn.Identity,
)
MOST_STACKED = 64  # clients side by side
MOST_ENTRIES = 50_000_000  # parameters held side by side, all clients together


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
    if len(jobs) < 2 or not stackable(model) or any(job.seams.inside_steps or job.buffers for job in jobs):
        return [train_one(model, job, recipe) for job in jobs]
    results: dict[int, LocalResult] = {}
    for group in _groups(jobs):
        outcome = _train_group(model, [jobs[place] for place in group], recipe)
        results.update(zip(group, outcome, strict=True))
    return [results[place] for place in range(len(jobs))]


def stackable(model: nn.Module) -> bool:
    """Whether every layer is one that gains from stacking."""
    leaves = [module for module in model.modules() if not list(module.children())]
    frozen = any(not value.requires_grad for value in model.parameters())
    return not frozen and all(isinstance(leaf, STACKING_PAYS) for leaf in leaves)


def train_one(model: nn.Module, job: Job, recipe: Recipe) -> LocalResult:
    """One client's work by itself."""
    batches = (
        Batch(x=job.x[used], y=job.y[used]) for used in map(job.schedule.used, range(job.schedule.steps))
    )
    evaluate = objective(model, recipe.loss)
    with torch.random.fork_rng(devices=[]):  # dropout draws from the ambient generator; keep that inside
        torch.manual_seed(job.generator.initial_seed())
        result = local_update(
            job.start, job.buffers, batches, recipe, evaluate, seams=job.seams, generator=job.generator
        )
    return result


def _groups(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of jobs that share a stack: similar step counts, longest first, within the limits."""
    order = sorted(range(len(jobs)), key=lambda place: (-jobs[place].schedule.steps, place))
    most = min(MOST_STACKED, max(1, MOST_ENTRIES // max(1, element_count(jobs[0].start))))
    groups: list[list[int]] = []
    for place in order:
        longest = jobs[groups[-1][0]].schedule.steps if groups else 0
        if groups and len(groups[-1]) < most and 2 * jobs[place].schedule.steps >= longest:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _train_group(model: nn.Module, jobs: Sequence[Job], recipe: Recipe) -> list[LocalResult]:
    """Several clients at once: stacked parameters, padded batches, zero weight for filling."""
    if len(jobs) == 1:
        return [train_one(model, jobs[0], recipe)]
    starts = [_enter(job) for job in jobs]
    steps = max(job.schedule.steps for job in jobs)
    width = max(int(job.schedule.index.shape[1]) for job in jobs)
    index = torch.stack(
        [_padded(job.schedule.index, steps, width) for job in jobs]
    )  # [clients, steps, width]
    whole = bool((index >= 0).all())
    gathered = [
        (job.x[rows.clamp(min=0)], job.y[rows.clamp(min=0)]) for job, rows in zip(jobs, index, strict=True)
    ]
    x = torch.stack([part for part, _ in gathered], dim=1)  # [steps, clients, width, ...]
    y = torch.stack([part for _, part in gathered], dim=1)
    weight = (
        (index >= 0).transpose(0, 1).to(device=x.device, dtype=jobs[0].start[next(iter(jobs[0].start))].dtype)
    )
    batches = (
        Batch(x=x[step], y=y[step])
        if whole
        else Batch(x=x[step], y=y[step], weight=weight[step], active=weight[step].amax(-1))
        for step in range(steps)
    )
    result = local_update(
        stack(starts), {}, batches, recipe, stacked_objective(model, recipe.loss), seams=IDENTITY
    )
    return [_leave(job, update) for job, update in zip(jobs, unstack(result.update), strict=True)]


def _enter(job: Job) -> Params:
    return job.seams.incoming(dict(job.start), None, job.generator)[0] if job.seams.incoming else job.start


def _leave(job: Job, update: dict[str, Tensor]) -> LocalResult:
    kept = {name: value.clone() for name, value in update.items()}
    sent = job.seams.outgoing(kept, None, job.generator)[0] if job.seams.outgoing else kept
    return LocalResult(update=sent, buffers=dict(job.buffers))


def _padded(index: Tensor, steps: int, width: int) -> Tensor:
    """A schedule with filling up to [steps, width]."""
    full = torch.full((steps, width), -1, dtype=index.dtype, device=index.device)
    full[: index.shape[0], : index.shape[1]] = index
    return full
