"""Speed-up of training the clients of a round together over one after the other, and its limits.

One thread, CPU time, repetitions of all ways interleaved, medians. The last line has the speed-up for 10 clients of
1,440 examples with 54 features, an MLP with 128 hidden units and batches of 32. `--where` also times other networks
stacked and one by one, on which the rule in `federation/cohort.py` is based.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
from collections.abc import Sequence
from functools import partial

import torch
from common.measure import cpu_seconds
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedxray.defences.base import IDENTITY
from fedxray.federation.cohort import ClientJob, train_one, train_together
from fedxray.federation.local import stacked_layers
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.params import element_count, parameters_of
from fedxray.seeds import fork

RATE = 0.05
CLASSES = 10


def make_jobs(model: nn.Module, shape: tuple[int, ...], clients: int, examples: int, recipe: Recipe) -> list[ClientJob]:
    jobs = []
    for client in range(clients):
        source = fork(0, "bench", client)
        jobs.append(
            ClientJob(
                client=client,
                start=parameters_of(model),
                buffers={},
                x=torch.randn(examples, *shape, generator=source),
                y=torch.randint(CLASSES, (examples,), generator=source),
                schedule=draw_schedule(examples, recipe, source),
                hooks=IDENTITY,
                generator=source,
            )
        )
    return jobs


def with_loader(model: nn.Module, jobs: Sequence[ClientJob], recipe: Recipe) -> list[dict[str, Tensor]]:
    """Train by the usual loop: for every client a module, an optimiser and a DataLoader."""
    ends = []
    for job in jobs:
        order = job.schedule.index[job.schedule.index >= 0].tolist()
        loader = DataLoader(TensorDataset(job.x, job.y), batch_size=int(recipe.batch_size), sampler=order)
        ends.append(_loop(model, loader))
    return ends


def with_slices(model: nn.Module, jobs: Sequence[ClientJob], recipe: Recipe) -> list[dict[str, Tensor]]:
    """Train by the lean loop: records are ordered once, batches are slices."""
    ends = []
    for job in jobs:
        order = job.schedule.index[job.schedule.index >= 0]
        x, y = job.x[order], job.y[order]
        ends.append(_loop(model, zip(x.split(int(recipe.batch_size)), y.split(int(recipe.batch_size)), strict=True)))
    return ends


def _loop(model: nn.Module, batches: object) -> dict[str, Tensor]:
    own = copy.deepcopy(model)
    optimiser = torch.optim.SGD(own.parameters(), lr=RATE)
    for x, y in batches:  # type: ignore[attr-defined]
        optimiser.zero_grad()
        nn.functional.cross_entropy(own(x), y).backward()
        optimiser.step()
    return {name: value.detach() for name, value in own.named_parameters()}


def stacked(model: nn.Module, jobs: Sequence[ClientJob], recipe: Recipe) -> list[dict[str, Tensor]]:
    layers = stacked_layers(model)
    assert layers is not None
    results = train_together(model, layers, jobs, recipe)
    return [_end(job, result.update) for job, result in zip(jobs, results, strict=True)]


def alone(model: nn.Module, jobs: Sequence[ClientJob], recipe: Recipe) -> list[dict[str, Tensor]]:
    return [_end(job, train_one(model, job, recipe).update) for job in jobs]


def _end(job: ClientJob, update: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: job.start[name] + value for name, value in update.items()}


def largest_difference(left: Sequence[dict[str, Tensor]], right: Sequence[dict[str, Tensor]]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for a, b in zip(left, right, strict=True) for name in a)


def speed_up(repeats: int) -> str:
    recipe = Recipe(batch_size=32, learning_rate=RATE)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(54, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    jobs = make_jobs(model, (54,), 10, 1440, recipe)
    ways = {
        "loader": lambda: with_loader(model, jobs, recipe),
        "slices": lambda: with_slices(model, jobs, recipe),
        "stacked": lambda: stacked(model, jobs, recipe),
        "one by one": lambda: alone(model, jobs, recipe),
    }
    reference = ways["loader"]()
    for name, way in ways.items():
        difference = largest_difference(reference, way())
        assert difference < 1e-4, f"{name} ends {difference} away from the loop with a DataLoader"
        print(f"{name}: largest difference of weights to the DataLoader loop {difference:.1e}")
    took = cpu_seconds(ways, repeats, of=statistics.median)
    print(", ".join(f"{name} {value:.4f} s" for name, value in took.items()))
    loader, slices = took["loader"] / took["stacked"], took["slices"] / took["stacked"]
    return f"speed-up over loader: {loader:.1f}, over slices: {slices:.1f}"


def mlp(features: int, *hidden: int) -> nn.Module:
    pairs = itertools.pairwise((features, *hidden))
    layers = [layer for left, right in pairs for layer in (nn.Linear(left, right), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear((features, *hidden)[-1], CLASSES))


def where(repeats: int) -> None:
    """Print stacked against one by one, for some networks, numbers of clients and batches."""
    networks = {
        "linear 54": (54,),
        "mlp 54-128": (54, 128),
        "mlp 54-1024": (54, 1024),
        "mlp 784-256": (784, 256),
        "mlp 54-256-256-256": (54, 256, 256, 256),
    }
    print(f"{'network':20} clients batch  work/client  stacked s  alone s  gain")
    for (name, sizes), clients, batch in itertools.product(networks.items(), (2, 10, 50), (1, 8, 32, 128, 512)):
        recipe = Recipe(batch_size=batch, learning_rate=RATE)
        model = mlp(*sizes)
        jobs = make_jobs(model, sizes[:1], clients, 4 * batch, recipe)
        ways = {"stacked": partial(stacked, model, jobs, recipe), "alone": partial(alone, model, jobs, recipe)}
        took = cpu_seconds(ways, repeats, of=statistics.median)
        work = element_count(jobs[0].start) * batch / 1e6
        gain = took["alone"] / took["stacked"]
        print(f"{name:20} {clients:7} {batch:5} {work:11.2f}M {took['stacked']:10.4f} {took['alone']:8.4f} {gain:5.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--where", action="store_true", help="also time other networks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.where:
        where(max(3, options.repeats // 3))
    print(speed_up(options.repeats))


if __name__ == "__main__":
    main()
