"""Cost of one iteration of a gradient inversion (FedSGD), in units of one training step on the same images.

One thread, CPU time, interleaved, medians. An iteration is that of inverting-gradients: the gradient with its graph,
one minus its cosine with the observed one, total variation, the gradient in the images, the step of Adam on signs, the
projection onto valid pixels. `plain` is the same iteration with the update as minus the gradient and torch's own
derivative of the cosine. Counting products the ratio would be 2.33. Freed memory is kept as in an audit; `--return`
leaves the allocator as it is. `--breaching` also times an iteration of breaching's attack of the same name, where that
package is installed. The last line is `iteration/training: X` of the largest ratio.

    python bench/fedsgd.py [--repeats 15] [--return] [--breaching]
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from common.measure import cpu_seconds
from torch import Tensor, nn

from fedxray.attacks.inversion.distance import DistanceTo, distance_to
from fedxray.attacks.inversion.replay import Replay, replay, straight_schedule
from fedxray.audit.workers.engines import keep_freed_memory
from fedxray.data.dataset import Space
from fedxray.federation.recipe import Recipe
from fedxray.models import build
from fedxray.optim import SignedAdam, Stairs
from fedxray.params import Params, is_finite, parameters_of
from fedxray.priors import clip, total_variation
from fedxray.seeds import fork

CLASSES, WEIGHT, RATE = 100, 1e-4, 0.1
SPACE = Space(
    kind="image",
    shape=(3, 32, 32),
    target="classification",
    classes=tuple(str(number) for number in range(CLASSES)),
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
)


def eight_convolutions() -> nn.Module:
    """Return eight convolutions of 32 to 128 channels and a head."""
    torch.manual_seed(0)
    channels = (3, 32, 32, 64, 64, 128, 128, 128, 128)
    layers: list[nn.Module] = []
    for place, (inside, outside) in enumerate(pairwise(channels)):
        layers += [nn.Conv2d(inside, outside, 3, stride=2 if place in (2, 4, 6) else 1, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, CLASSES))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "cnn-cifar": lambda: build("cnn-cifar", SPACE, generator=fork(0, "model")),
    "8-conv": eight_convolutions,
    "resnet18": lambda: build("resnet18", SPACE, generator=fork(0, "model")),
}
WORK = (("cnn-cifar", 1), ("cnn-cifar", 8), ("8-conv", 1), ("8-conv", 8), ("resnet18", 1))


def plain_cosine(seen: Params, guess: Params) -> Tensor:
    """Return one minus the cosine by torch's own derivatives, with both norms computed anew."""

    def inner(left: Params, right: Params) -> Tensor:
        return torch.stack([torch.dot(left[name].reshape(-1), right[name].reshape(-1)) for name in left]).sum()

    return 1 - inner(guess, seen) / (inner(guess, guess).sqrt() * inner(seen, seen).sqrt())


def iteration(client: Replay, distance: DistanceTo, y: Tensor) -> Callable[[], None]:
    """Return one step of the descent, on images of its own."""
    method = SignedAdam(steps=2400, lr=RATE, decay=Stairs())
    point = {"inputs": torch.randn(len(y), *SPACE.shape, generator=fork(0, "start"))}
    state = {"point": point, "memory": method.fresh(point)}

    def step() -> None:
        x = state["point"]["inputs"].detach().requires_grad_()
        value = distance(client.update(x, y)) + WEIGHT * total_variation(x)
        gradient = {"inputs": torch.autograd.grad(value, x)[0]}
        assert is_finite(gradient)
        with torch.no_grad():
            moved, state["memory"] = method.move(state["point"], gradient, state["memory"], 0)
            state["point"] = {"inputs": clip(moved["inputs"], -2.0, 2.0)}

    return step


def training(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return one step of torch.optim.SGD."""
    own, measure = copy.deepcopy(model), nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(own.parameters(), lr=1e-6)

    def step() -> None:
        optimiser.zero_grad()
        measure(own(x), y).backward()
        optimiser.step()

    return step


def breaching_iteration(model: nn.Module, seen: Params, y: Tensor) -> Callable[[], None]:
    """Return one step of breaching's inverting gradients with the same losses, optimiser and projection."""
    from breaching.attacks.auxiliaries.objectives import CosineSimilarity
    from breaching.attacks.auxiliaries.regularizers import TotalVariation

    setup = {"device": torch.device("cpu"), "dtype": torch.float32}
    measure, network = nn.CrossEntropyLoss(), copy.deepcopy(model).eval()
    objective = CosineSimilarity(scale=1.0, task_regularization=0.0)
    objective.initialize(measure, type("Implementation", (), {"mixed_precision": False, "JIT": ""})(), None)
    smooth = TotalVariation(setup, scale=WEIGHT, inner_exp=1, outer_exp=1, double_opponents=False)
    x = torch.randn(len(y), *SPACE.shape, generator=fork(0, "start")).requires_grad_()
    optimiser, gradients = torch.optim.Adam([x], lr=RATE), [-value for value in seen.values()]

    def step() -> None:  # as its OptimizationBasedAttacker does, without logging
        optimiser.zero_grad()
        network.zero_grad()
        value, _ = objective(network, gradients, x, y)
        (value + smooth(x)).backward()
        assert x.grad is not None
        x.grad.sign_()
        optimiser.step()
        with torch.no_grad():
            x.data = torch.max(torch.min(x, torch.tensor(2.0)), torch.tensor(-2.0))

    return step


def measured(name: str, images: int, repeats: int, breaching: bool) -> float:
    model, source, recipe = NETWORKS[name](), fork(0, "images"), Recipe(algorithm="fedsgd")
    x = torch.randn(images, *SPACE.shape, generator=source)
    y = torch.randint(CLASSES, (images,), generator=source)
    client = replay(model, parameters_of(model), recipe, straight_schedule(images, recipe))
    seen = {key: value.detach() for key, value in client.update(x, y).items()}
    quick, aim = client.as_gradient(seen)
    ways = {
        "training": training(model, x, y),
        "iteration": iteration(quick, distance_to(aim, "cosine"), y),
        "plain": iteration(client, partial(plain_cosine, seen), y),
    }
    if breaching:
        ways["breaching"] = breaching_iteration(model, seen, y)
    took = cpu_seconds(ways, repeats, of=statistics.median)
    ratios = {way: seconds / took["training"] for way, seconds in took.items() if way != "training"}
    words = ", ".join(f"{way} {ratio:.2f}" for way, ratio in ratios.items())
    print(f"{name}, {images} images: training {took['training'] * 1e3:.1f} ms; in units of it: {words}", flush=True)
    return ratios["iteration"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--return", dest="returned", action="store_true", help="let freed memory go back to the system")
    parser.add_argument("--breaching", action="store_true", help="also time breaching, where it is installed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.returned:
        keep_freed_memory()
    most = max(measured(name, images, options.repeats, options.breaching) for name, images in WORK)
    print(f"iteration/training: {most:.2f}")


if __name__ == "__main__":
    main()
