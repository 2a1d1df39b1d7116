"""Growth of an audit with its clients, rounds, records per client or defences; an attribute and a membership attack.

Every size is the complete command in its own process; CPU time and peak memory are those of that process. By clients
(20 records each, 5 rounds, one seed) the exponent is the slope of log CPU time in log clients over the sizes from 100
on, and the last line is `exponent: X, 10,000 clients: Y min (extrapolated from N)`, N the largest size. By anything
else there are 20 clients, the CPU time of an audit of four clients and one round is subtracted as start-up, and the
last line is `exponent: X, of the last two sizes: Y`.

    python bench/scale.py [--by clients|rounds|records|defences] [--attacks NAME,NAME] [sizes ...]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from math import log
from pathlib import Path

SCHEMA = """
records = {records}
target = "score"
columns.income = {{ low = 0, high = 200000 }}
columns.years = {{ low = 0, high = 40, whole = true }}
columns.housing = {{ values = ["own", "rent", "other"] }}
columns.defaulted = {{ values = ["no", "yes"], shares = [0.8, 0.2] }}
columns.score = {{ low = 300, high = 850 }}
"""
PLAN = """
seeds = [0]
data = {{ schema = "schema.toml", clients = {clients}, sensitive = "defaulted", holdout = 0.2 }}
model = {{ name = "mlp", hidden = [16] }}
federation = {{ rounds = {rounds}, learning_rate = 0.05 }}
attack = [{attacks}]
defence = [{others}]
"""
ATTACKS = "attribute-from-model,membership-series"
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
SMALLEST, ASKED = 100, 10_000  # clients from which the exponent counts, and those extrapolated to
USUAL = {"clients": 20, "rounds": 5, "records": 20, "defences": 1}
TINY = {**USUAL, "clients": 4, "rounds": 1}  # start-up: floors with all they import, hardly a case
SIZES = {"clients": "100 300 1000 3000", "rounds": "5 10 20 40", "records": "20 40 80 160 320", "defences": "1 3 9"}


def measured(folder: Path, size: Mapping[str, int], attacks: str = ATTACKS) -> tuple[float, float]:
    """Return CPU seconds and peak megabytes of one audit of this size."""
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA.format(**size), encoding="utf-8")
    named = ", ".join(f'{{ name = "{name}" }}' for name in attacks.split(","))
    noises = [f'{{ name = "gaussian-noise", label = "noise-{n}", scale = 0.0{n} }}' for n in range(1, size["defences"])]
    others = ", ".join(['{ name = "none", deployed = true }', *noises])
    (folder / "plan.toml").write_text(PLAN.format(**size, attacks=named, others=others), encoding="utf-8")
    command = ["-m", "fedxray", "audit", str(folder / "plan.toml"), "--out", str(folder / "out")]
    command = [sys.executable, *command, "--engine", "inline", "--quiet"]
    child = os.posix_spawn(sys.executable, command, os.environ | ONE_THREAD)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the audit of {dict(size)} ended with {os.waitstatus_to_exitcode(status)}")
    peak = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return usage.ru_utime + usage.ru_stime, peak


def exponent(took: Mapping[int, float]) -> float:
    """Return the slope of log time in log size."""
    logs = [[log(value) for value in values] for values in (took.keys(), took.values())]
    return statistics.linear_regression(*logs).slope


def main(by: str, sizes: list[int], attacks: str) -> None:
    usual = USUAL if by != "clients" else {**USUAL, "clients": 0}
    took: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = 0.0
        if by != "clients":
            start, peak = measured(Path(folder) / "start", TINY, attacks)
            print(f"start-up: {start:.1f} s of CPU, {peak:.0f} MB", flush=True)
        for size in sizes:
            total, peak = measured(Path(folder) / str(size), usual | {by: size}, attacks)
            took[size] = total - start
            print(f"{size} {by}: {total:.1f} s of CPU, {peak:.0f} MB", flush=True)
    if by != "clients":
        if len(took) > 1:
            last = exponent(dict(list(took.items())[-2:]))
            print(f"exponent: {exponent(took):.2f}, of the last two sizes: {last:.2f}")
        return
    large = {clients: seconds for clients, seconds in took.items() if clients >= SMALLEST}
    if len(large) < 2:
        return
    minutes = large[max(large)] * (ASKED / max(large)) ** exponent(large) / 60
    print(f"exponent: {exponent(large):.2f}, {ASKED:,} clients: {minutes:.0f} min (extrapolated from {max(large):,})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--by", choices=SIZES, default="clients")
    parser.add_argument("--attacks", default=ATTACKS)
    chosen = parser.parse_args()
    main(chosen.by, chosen.sizes or [int(size) for size in SIZES[chosen.by].split()], chosen.attacks)
