"""Throughput of an audit on two cores: the same inversions inline, in two processes and on a local Ray cluster.

Every engine runs the complete command, start of the workers and simulation included, one thread for every case, in
turns. The last lines are `ray/inline: X` (where Ray is installed) and `processes/inline: X`: the throughput of two
workers relative to the inline engine.

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
"""
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def seconds(plan: Path, folder: Path, *engine: str) -> float:
    """Return the wall-clock seconds of one audit."""
    command = [sys.executable, "-m", "fedxray", "audit", str(plan), "--out", str(folder), *engine]
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | ONE_THREAD)
    return time.perf_counter() - begun


def main(clients: int = 4, steps: int = 25, repeats: int = 2) -> None:
    ways = {"inline": ("--engine", "inline"), "processes": ("--engine", "processes", "--jobs", "2")}
    if importlib.util.find_spec("ray") is not None:
        ways["ray"] = ("--engine", "ray", "--jobs", "2")
    took: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(PLAN.format(clients=clients, steps=steps), encoding="utf-8")
        for repeat in range(repeats):
            for name, engine in ways.items():
                took[name].append(seconds(plan, Path(folder) / f"{name}{repeat}", *engine))
                print(f"{name}: {took[name][-1]:.1f} s", flush=True)
    for name in [name for name in ("ray", "processes") if name in ways]:
        ratio = statistics.median(took["inline"]) / statistics.median(took[name])
        print(f"{name}/inline: {ratio:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
