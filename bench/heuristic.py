"""Time of the heuristic reconstruction of a local model at the size of Driouich et al.: 158,725 parameters.

The network is that of Leaf Synthetic (100 columns, three layers of 256 units, five classes), the regressor has two
layers of 32 units, and there are 100 synthetic messages: models along a random walk, and updates that pull to a fixed
point, with noise. All four variants run with the settings of the reproductions and with the attack's defaults. One
thread, wall time and CPU time of each, and the peak of memory above the view. The plain reference is Adam with as many
steps as the slowest variant takes, on a quadratic of the same number of parameters. The last line is
`slowest/plain descent: R (X s of CPU), memory: Y MB`.
"""

from __future__ import annotations

import argparse
import time

import torch
from common.measure import peak_megabytes
from torch import nn

from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.local_model.heuristic import LocalModelHeuristic
from fedxray.data.dataset import Space
from fedxray.params import Params, element_count, parameters_of
from fedxray.seeds import fork, normal_like

COLUMNS, CLASSES = 100, 5
SETTINGS = {"as reproduced": {"fit_steps": 400, "fit_lr": 3e-3, "steps": 400}, "defaults": {}}
LIMIT_SECONDS, LIMIT_MEGABYTES = 600, 2000


def make_view(width: int, messages: int) -> View:
    """Return the view of a client whose updates pull towards a fixed point."""
    draw = fork(0, "heuristic bench")
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for wide in (COLUMNS, width, width):
        layers += [nn.Linear(wide, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))

    def moved(params: Params, size: float) -> dict[str, torch.Tensor]:
        return {name: value + size * normal_like(value, draw) for name, value in params.items()}

    start = parameters_of(model)
    optimum, seen = moved(start, 0.1), []
    for number in range(messages):
        pull = {name: 0.02 * (optimum[name] - value) for name, value in start.items()}
        update = moved(pull, 1e-4)
        seen.append(Observation(round=10 * number, start=start, update=update, kind="weights", contributors=(0,),
                                examples=None))  # fmt: skip
        start = moved(start, 0.01)
    return View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model, loss="cross-entropy",
        space=Space(kind="table", shape=(COLUMNS,), target="classification", classes=tuple("01234")),
        grants=Grants(names=()),
    )  # fmt: skip


def plain_descent(parameters: int, steps: int) -> float:
    """Return CPU seconds of Adam on a quadratic of one vector."""
    vector = torch.ones(parameters, requires_grad=True)
    optimiser = torch.optim.Adam([vector], lr=1e-3)
    begin = time.process_time()
    for _ in range(steps):
        optimiser.zero_grad()
        (vector * vector).sum().backward()
        optimiser.step()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--messages", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    view = make_view(options.width, options.messages)
    parameters = element_count(parameters_of(view.model))
    print(f"{parameters} parameters, {options.messages} messages")
    before, slowest, steps = peak_megabytes(), 0.0, 1
    for name, more in SETTINGS.items():
        for reading in ("norm-descent", "follow-update"):
            for restrict in ("none", "span"):
                attack = LocalModelHeuristic(reading=reading, restrict=restrict, **more)  # type: ignore[arg-type]
                wall, cpu = time.perf_counter(), time.process_time()
                evidence = attack.run(view, generator=fork(1))
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                slowest, steps = max((slowest, steps), (cpu, attack.fit_steps + attack.steps))
                print(f"{name}, {reading}, restrict {restrict}: {cpu:.1f} s of CPU, {wall:.1f} s, {evidence.status}")
    memory = peak_megabytes() - before
    ratio = slowest / plain_descent(parameters, steps)
    print(f"slowest/plain descent: {ratio:.1f} ({slowest:.1f} s of CPU), memory: {memory:.0f} MB")
    if slowest > LIMIT_SECONDS or memory > LIMIT_MEGABYTES:
        raise SystemExit("slower or larger than the limits")


if __name__ == "__main__":
    main()
