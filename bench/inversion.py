"""Cost of one iteration of an inversion, in units of the client's own training.

One thread, CPU time, interleaved, medians: the FEMNIST network, 50 images, batches of 5, 1 and 5 epochs. An iteration
is that of dlf: its loss through all local steps, the gradient in all images, the step of Adam. The reference is an
ordinary nn.Module with torch.optim.SGD on the same batches, sliced beforehand. `--long` also times rounds of 50, 100
and 500 steps with all steps in the graph and with a segment at a time, with the peak memory of each in a process of its
own. The last line is `iteration/training: X`.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from common.measure import cpu_seconds, peak_megabytes
from torch import Tensor, nn
from torch.nn import functional

from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.base import Context, compute
from fedxray.attacks.inversion.dlf import Dlf, Objective, method_of, objective, simulation, what_is_known
from fedxray.attacks.inversion.replay import segment_length
from fedxray.data.dataset import Space
from fedxray.federation.recipe import Recipe
from fedxray.models import build
from fedxray.params import is_finite, parameters_of
from fedxray.priors import EPOCH_PRIORS
from fedxray.progress import silent
from fedxray.seeds import fork

IMAGES, BATCH, CLASSES, RATE = 50, 5, 62, 0.004
SPACE = Space(
    kind="image",
    shape=(1, 28, 28),
    target="classification",
    classes=tuple(str(number) for number in range(CLASSES)),
    mean=(0.9642384,),
    std=(0.1576784,),
)


def client(epochs: int, batch: int) -> tuple[nn.Module, Recipe, list[tuple[Tensor, Tensor]]]:
    """Return the network, the recipe and the batches of one round."""
    source = fork(0, "bench", epochs)
    x, y = (torch.randn(IMAGES, *SPACE.shape, generator=source), torch.randint(CLASSES, (IMAGES,), generator=source))
    orders = [torch.randperm(IMAGES, generator=source) for _ in range(epochs)]
    batches = [(x[rows], y[rows]) for order in orders for rows in order.split(batch)]
    recipe = Recipe(epochs=epochs, batch_size=batch, learning_rate=RATE)
    return build("cnn-femnist", SPACE, generator=fork(0, "model")), recipe, batches


def train(own: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> nn.Module:
    """Train as the client does, in place."""
    optimiser = torch.optim.SGD(own.parameters(), lr=RATE)
    for x, y in batches:
        optimiser.zero_grad()
        functional.cross_entropy(own(x), y).backward()
        optimiser.step()
    return own


def attacked(model: nn.Module, recipe: Recipe, batches: list[tuple[Tensor, Tensor]]) -> tuple[Dlf, Objective]:
    """Return dlf and its loss on this client's update."""
    start, end = parameters_of(model), parameters_of(train(copy.deepcopy(model), batches))
    update = {name: value - start[name] for name, value in end.items()}
    labels = torch.cat([y for _, y in batches])[:IMAGES]
    seen = Observation(round=0, start=start, update=update, kind="weights", contributors=(0,), examples=IMAGES)
    view = View(
        role="server", target=0, observations=(seen,), globals=(), model=model, space=SPACE, loss="cross-entropy",
        grants=Grants(names=("labels", "recipe"), recipe=recipe, labels=labels),
    )  # fmt: skip
    attack = Dlf()
    context = Context(generator=fork(0), root=fork(0), memo=compute, report=silent)
    known = what_is_known(view, attack, context)
    simulated = simulation(view, attack, known, recipe, by_epoch=True)
    return attack, objective(view, attack, simulated, lambda x: 1000 * EPOCH_PRIORS["l2-mean"](x, None))


def iteration(attack: Dlf, loss: Objective) -> Callable[[], float]:
    """Return one step of the descent, on images of its own."""
    shape = (loss.simulation.sets, IMAGES, *SPACE.shape)
    state = {"point": {"inputs": torch.randn(shape, generator=fork(0, "start"))}, "memory": {}}
    method = method_of(attack)
    state["memory"] = method.fresh(state["point"])

    def step() -> float:
        leaves = {"inputs": state["point"]["inputs"].detach().requires_grad_()}
        value = loss.value(leaves, 0)
        gradient = {"inputs": torch.autograd.grad(value, leaves["inputs"])[0]}
        assert is_finite(gradient)
        with torch.no_grad():
            state["point"], state["memory"] = method.move(state["point"], gradient, state["memory"], 0)
        return float(value.detach())

    return step


def ratio(epochs: int, repeats: int, *, batch: int = BATCH, segment: int | None = None) -> float:
    model, recipe, batches = client(epochs, batch)
    attack, loss = attacked(model, recipe, batches)
    simulated = replace(loss.simulation, client=replace(loss.simulation.client, segment=segment))
    copies = iter([copy.deepcopy(model) for _ in range(repeats + 1)])  # made before the clock starts
    before = peak_megabytes()
    step = iteration(attack, replace(loss, simulation=simulated))
    ways = {"training": lambda: train(next(copies), batches), "iteration": step}
    took = cpu_seconds(ways, repeats, of=statistics.median)
    times = took["iteration"] / took["training"]
    graph = "all steps" if segment is None else f"{segment} steps at a time"
    print(
        f"U = {len(batches)}, {graph} in the graph: training {took['training']:.4f} s, "
        f"iteration {took['iteration']:.4f} s, {times:.2f} times; peak {peak_megabytes() - before:.0f} MB more",
        flush=True,
    )
    return times


def long_rounds() -> None:
    """Time every round in a process of its own, since a peak never falls."""
    parameters = parameters_of(client(1, BATCH)[0])
    limit = next(steps for steps in range(1, 100_000) if segment_length(steps, parameters) is not None)
    print(f"segments are used from U = {limit} on for this network")
    for epochs, batch, segment in ((5, 5, 0), (5, 5, 8), (10, 5, 0), (10, 5, 10), (10, 1, 0), (10, 1, 23)):
        subprocess.run([sys.executable, __file__, "--one", f"{epochs},{batch},{segment}"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--long", action="store_true", help="also time long rounds and segments")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        epochs, batch, segment = (int(part) for part in options.one.split(","))
        ratio(epochs, 3, batch=batch, segment=segment or None)
        return
    if options.long:
        long_rounds()
    print(f"iteration/training: {max(ratio(epochs, options.repeats) for epochs in (1, 5)):.2f}")


if __name__ == "__main__":
    main()
