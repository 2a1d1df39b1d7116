"""How long the heuristic reconstruction of a local model takes at the paper's size: 158,725 parameters, 100 messages.

The network is that of Leaf Synthetic in paper 000 (100 columns, three layers of 256 units, five classes), the regressor
has two layers of 32 units. Messages are made up: models along a random walk, and updates that pull to a point of their
own, with noise. All four variants run with the settings of the reproductions and with the attack's defaults. One
thread, wall time and CPU time of each, and the peak of memory above the view. The last line is
`slowest variant: X s of CPU, memory: Y MB`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import torch
from torch import nn

from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.local_model.heuristic import LocalModelHeuristic
from fedxray.data.dataset import Space
from fedxray.params import Params, element_count, parameters_of
from fedxray.seeds import fork, normal_like

COLUMNS, CLASSES = 100, 5
SETTINGS = {
    "as reproduced": {"fit_steps": 400, "fit_lr": 3e-3, "steps": 400},
    "defaults": {},
}
LIMIT_SECONDS, LIMIT_MEGABYTES = 600, 2000


def peak_megabytes() -> float:
    """The largest resident size so far; Linux tells kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def make_view(width: int, messages: int) -> View:
    """A client whose replies pull towards a point of her own."""
    draw = fork(0, "heuristic bench")
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for wide in (COLUMNS, width, width):
        layers += [nn.Linear(wide, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))

    def moved(params: Params, size: float) -> dict[str, torch.Tensor]:
        return {name: value + size * normal_like(value, draw) for name, value in params.items()}

    start = parameters_of(model)
    own, seen = moved(start, 0.1), []
    for number in range(messages):
        pull = {name: 0.02 * (own[name] - value) for name, value in start.items()}
        update = moved(pull, 1e-4)
        seen.append(Observation(round=10 * number, start=start, update=update, kind="weights", contributors=(0,),
                                examples=None))  # fmt: skip
        start = moved(start, 0.01)
    return View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model, loss="cross-entropy",
        space=Space(kind="table", shape=(COLUMNS,), target="classification", classes=tuple("01234")),
        grants=Grants(names=()),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--messages", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    view = make_view(options.width, options.messages)
    print(f"{element_count(parameters_of(view.model))} parameters, {options.messages} messages")
    before, slowest = peak_megabytes(), 0.0
    for name, more in SETTINGS.items():
        for reading in ("norm-descent", "follow-update"):
            for restrict in ("none", "span"):
                attack = LocalModelHeuristic(reading=reading, restrict=restrict, **more)  # type: ignore[arg-type]
                wall, cpu = time.perf_counter(), time.process_time()
                found = attack.run(view, generator=fork(1))
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                slowest = max(slowest, cpu)
                print(
                    f"{name}, {reading}, restrict {restrict}: {cpu:.1f} s of CPU, {wall:.1f} s, {found.status}"
                )
    memory = peak_megabytes() - before
    print(f"slowest variant: {slowest:.1f} s of CPU, memory: {memory:.0f} MB")
    if slowest > LIMIT_SECONDS or memory > LIMIT_MEGABYTES:
        raise SystemExit("slower or larger than promised")


if __name__ == "__main__":
    main()
