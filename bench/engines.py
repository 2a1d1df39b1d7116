"""Throughput of an audit on two cores: the same inversions inline, in two processes and on a local Ray cluster.

Every engine runs the complete command twice, in turns with the others and with one thread for every case: on two of
the clients, and on all. The difference is the time of the equal cases of the other clients, without start-up and
simulation. The last lines are `ray/inline: X` (where Ray is installed) and `processes/inline: X`: the throughput of
two workers relative to the inline engine on these cases, and in brackets that of the complete commands.

    python bench/engines.py [clients] [steps] [repeats]
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAN = """
format = 1
name = "engines"
seeds = [0]

[data]
name = "digits"
clients = {clients}
limit = 50
public = 0.1

[model]
name = "cnn-femnist"

[federation]
rounds = 1
epochs = 5
batch_size = 5
learning_rate = 0.004

[[attack]]
name = "dlf"
steps = {steps}
grants = ["recipe", "examples", "label-counts"]
controls = ["held-out"]
targets = {targets}
"""
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
FEW = 2  # clients attacked in the short command, one for every worker


def seconds(plan: Path, folder: Path, *engine: str) -> float:
    """Return the wall-clock seconds of one audit."""
    command = [sys.executable, "-m", "fedxray", "audit", str(plan), "--out", str(folder), *engine]
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | ONE_THREAD)
    return time.perf_counter() - begun


def main(clients: int = 18, steps: int = 20, repeats: int = 1) -> None:
    ways = {"inline": ("--engine", "inline"), "processes": ("--engine", "processes", "--jobs", "2")}
    if importlib.util.find_spec("ray") is not None:
        ways["ray"] = ("--engine", "ray", "--jobs", "2")
    took: dict[tuple[str, int], list[float]] = {(name, size): [] for name in ways for size in (FEW, clients)}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            for name, size in took:
                plan = Path(folder) / f"{size}.toml"
                plan.write_text(PLAN.format(clients=clients, steps=steps, targets=list(range(size))), encoding="utf-8")
                took[name, size].append(seconds(plan, Path(folder) / f"{name}{size}-{repeat}", *ways[name]))
                print(f"{name}, {size} clients: {took[name, size][-1]:.1f} s", flush=True)
    middle = {key: statistics.median(values) for key, values in took.items()}
    alone = {name: middle[name, clients] - middle[name, FEW] for name in ways}
    for name in [name for name in ("ray", "processes") if name in ways]:
        complete = middle["inline", clients] / middle[name, clients]
        print(f"{name}/inline: {alone['inline'] / alone[name]:.2f} ({complete:.2f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
