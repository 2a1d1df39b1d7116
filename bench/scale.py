"""Growth of an audit with its clients: 20 records each, 5 rounds, one seed, an attribute and a membership attack.

Every size is the complete command in its own process, start-up included; CPU time and peak memory are those of that
process. The exponent is the slope of log CPU time in log clients over the sizes from 100 clients on. The last line is
`exponent: X, 10,000 clients: Y min (extrapolated from N)`, N the largest size.

    python bench/scale.py [clients ...]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from math import log
from pathlib import Path

SCHEMA = """
records = 20
target = "score"
columns.income = { low = 0, high = 200000 }
columns.years = { low = 0, high = 40, whole = true }
columns.housing = { values = ["own", "rent", "other"] }
columns.defaulted = { values = ["no", "yes"], shares = [0.8, 0.2] }
columns.score = { low = 300, high = 850 }
"""
PLAN = """
seeds = [0]
data = {{ schema = "schema.toml", clients = {clients}, sensitive = "defaulted", holdout = 0.2 }}
model = {{ name = "mlp", hidden = [16] }}
federation = {{ rounds = 5, learning_rate = 0.05 }}
attack = [{{ name = "attribute-from-model" }}, {{ name = "membership-series" }}]
"""
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
SMALLEST, ASKED = 100, 10_000  # clients from which the exponent counts, and those extrapolated to


def measured(folder: Path, clients: int) -> tuple[float, float]:
    """Return CPU seconds and peak megabytes of one audit."""
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    (folder / "plan.toml").write_text(PLAN.format(clients=clients), encoding="utf-8")
    command = ["-m", "fedxray", "audit", str(folder / "plan.toml"), "--out", str(folder / "out")]
    command = [sys.executable, *command, "--engine", "inline", "--quiet"]
    child = os.posix_spawn(sys.executable, command, os.environ | ONE_THREAD)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the audit of {clients} clients ended with {os.waitstatus_to_exitcode(status)}")
    peak = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return usage.ru_utime + usage.ru_stime, peak


def main(sizes: list[int]) -> None:
    took: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, clients in enumerate(sizes):
            took[clients], peak = measured(Path(folder) / str(number), clients)
            print(f"{clients} clients: {took[clients]:.1f} s of CPU, {peak:.0f} MB", flush=True)
    large = [clients for clients in took if clients >= SMALLEST]
    if len(large) < 2:
        return
    logs = [[log(value) for value in values] for values in (large, [took[clients] for clients in large])]
    slope = statistics.linear_regression(*logs).slope
    minutes = took[max(large)] * (ASKED / max(large)) ** slope / 60
    print(f"exponent: {slope:.2f}, {ASKED:,} clients: {minutes:.0f} min (extrapolated from {max(large):,})")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 300, 1000, 3000])
