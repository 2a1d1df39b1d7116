"""Do ordinary audits decide? Twelve plans: four tables, four image sets, two recordings, two schemas.

python bench/decide/run.py [NAME ...] [--jobs N]    run them one after the other, print a table, write decide.json

The plans use data on which the rule of verdicts was not developed. Data sets are read from FEDXRAY_DATA; own tables and
recordings are made below bench/decide/data from files there and from scikit-learn. An audit has decided when every
primary row is "leaks", "small" or "no leak found".
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
BOOKINGS = 900  # rows of the 50,000
NODES = 3
PLANS = (
    "adult", "medical", "bookings", "tumours", "fashion", "photos", "faces", "letters",
    "wine-node", "digit-node", "bank", "scans",
)  # fmt: skip


def make_bookings() -> None:
    """Write a sample of the bookings without its 800 routes and 100 origins."""
    source = Path(os.environ["FEDXRAY_DATA"]) / "flights" / "ba_customer_booking.csv.gz"
    with gzip.open(source, "rt", encoding="latin-1") as file:
        rows = list(csv.DictReader(file))
    picks = np.random.default_rng(0).choice(len(rows), BOOKINGS, replace=False)
    columns = [name for name in rows[0] if name not in ("route", "booking_origin")]
    with (DATA / "bookings.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows[index] for index in picks)


def make_tumours() -> None:
    """Write the breast-cancer table of scikit-learn as a CSV file."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    with (DATA / "tumours.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(str(name).replace(" ", "_") for name in table.feature_names), "diagnosis"])
        writer.writerows([*row, table.target_names[label]] for row, label in zip(table.data, table.target, strict=True))


def make_recording(name: str, x: np.ndarray, y: np.ndarray, network: nn.Module, loss: nn.Module) -> None:
    """Train three nodes with a plain loop, save checkpoints of node 0, and import them as its recording."""
    draws = np.random.default_rng(1)
    order = draws.permutation(len(x))
    train, rest = order[: len(x) // 2], order[len(x) // 2 :]
    nodes = np.array_split(train, NODES)
    folder = DATA / name
    (folder / "checkpoints").mkdir(parents=True)
    inputs, targets = torch.tensor(x), torch.tensor(y)
    for number in range(1, 11):
        start = {key: value.clone() for key, value in network.state_dict().items()}
        replies = []
        for rows in nodes:
            network.load_state_dict(start)
            _train(network, loss, inputs[rows], targets[rows], draws)
            replies.append({key: value.clone() for key, value in network.state_dict().items()})
        save_file(start, folder / "checkpoints" / f"global-{number}.safetensors")
        save_file(replies[0], folder / "checkpoints" / f"local-{number}.safetensors")
        network.load_state_dict({key: torch.stack([reply[key] for reply in replies]).mean(0) for key in start})
    holdout, public = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    kept = np.concatenate([nodes[0], holdout, public])
    part = ["train"] * len(nodes[0]) + ["holdout"] * len(holdout) + ["public"] * len(public)
    np.savez(folder / "records.npz", x=x[kept], y=y[kept], part=np.array(part))
    command = ["import", "rounds", str(folder / "checkpoints"), "--out", str(folder / "recording")]
    facts = ["--examples", str(len(nodes[0])), "--epochs", "5", "--batch-size", "16", "--learning-rate", "0.1"]
    subprocess.run([sys.executable, "-m", "fedxray", *command, *facts], check=True, stdout=subprocess.DEVNULL)


def _train(network: nn.Module, loss: nn.Module, x: torch.Tensor, y: torch.Tensor, draws: np.random.Generator) -> None:
    """Train five epochs of plain SGD in batches of 16."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(5):
        for batch in torch.tensor(draws.permutation(len(x))).split(16):
            optimizer.zero_grad()
            loss(network(x[batch]).squeeze(-1) if y.is_floating_point() else network(x[batch]), y[batch]).backward()
            optimizer.step()


def make_wine() -> None:
    """Record a node that predicts a wine's proline; whether it is of the first grape is the secret."""
    from networks import wine
    from sklearn.datasets import load_wine

    table = load_wine()
    columns = (table.data - table.data.mean(0)) / table.data.std(0)
    grape = (table.target == 0).astype(float)
    x = np.column_stack([columns[:, :12], grape]).astype(np.float32)
    make_recording("wine", x, columns[:, 12].astype(np.float32), wine(), nn.MSELoss())


def make_digits() -> None:
    """Record a node that classifies 8 x 8 digits."""
    from networks import digits
    from sklearn.datasets import load_digits

    table = load_digits()
    picks = np.random.default_rng(2).choice(len(table.data), 480, replace=False)
    x = (table.images[picks, None] / 16).astype(np.float32)
    make_recording("digits", x, table.target[picks].astype(np.int64), digits(), nn.CrossEntropyLoss())


def make_data() -> None:
    """Make the own tables and recordings that are not there yet."""
    DATA.mkdir(exist_ok=True)
    torch.manual_seed(0)
    makers = {"bookings.csv": make_bookings, "tumours.csv": make_tumours, "wine": make_wine, "digits": make_digits}
    for name, make in makers.items():
        if not (DATA / name).exists():
            make()


def audit(name: str, out: Path, jobs: int) -> dict[str, Any]:
    """Run one audit by the command line; return its primary rows, times and exit code."""
    base = [sys.executable, "-m", "fedxray", "audit", str(HERE / f"{name}.toml"), "--out", str(out / name)]
    dry = subprocess.run([*base, "--dry-run"], capture_output=True, text=True, check=False)
    before = time.perf_counter()
    ended = subprocess.run([*base, "--jobs", str(jobs)], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - before
    told = {"plan": name, "exit": ended.returncode, "seconds": round(seconds), "estimate": _estimate(dry.stdout)}
    if ended.returncode not in (0, 4):
        return told | {"rows": [], "error": (ended.stderr or ended.stdout)[-500:]}
    document = json.loads((out / name / "results.json").read_text(encoding="utf-8"))
    kept = ("attack", "role", "defence", "aware", "metric", "mean", "floor", "difference", "low", "high", "state")
    more = ("verdict", "adapts", "kind", "test", "p_adjusted", "seen", "more_seeds", "reason")
    rows = [{key: row.get(key) for key in kept + more} for row in document["summary"] if row.get("primary")]
    return told | {"rows": rows, "runs": len({case["seed"] for case in document["cases"]})}


def _estimate(text: str) -> str | None:
    """Return the line of a dry run that states the time."""
    return next((line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("time ")), None)


def main() -> int:
    """Run the plans, print one line per primary row, and write decide.json into --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*", default=PLANS, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes of each audit")
    parser.add_argument("--out", type=Path, default=Path("fedxray-out/decide"))
    options = parser.parse_args()
    make_data()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "decide.json"
    ended = {one["plan"]: one for one in json.loads(file.read_text())} if file.exists() else {}
    for name in options.plans:
        if name not in ended:
            ended[name] = audit(name, options.out, options.jobs)
            file.write_text(json.dumps(list(ended.values()), indent=1))
        show(ended[name])
    decided = [name for name in options.plans if is_decided(ended[name])]
    print(f"decided: {len(decided)} of {len(options.plans)}")
    return 0


def is_decided(one: dict[str, Any]) -> bool:
    """Return whether every primary row is decided."""
    counted = [row for row in one["rows"] if row.get("adapts") is not False]  # else it stands for the unaware one
    return bool(counted) and all(row["state"] in ("leaks", "small", "no leak found") for row in counted)


def show(one: dict[str, Any]) -> None:
    """Print how one audit ended."""
    print(f"{one['plan']}: exit {one['exit']}, {one['seconds']} s, {one.get('runs', 0)} runs; {one['estimate']}")
    if "error" in one:
        print(f"  {one['error']}")
    for row in one["rows"]:
        aware = {None: "", True: ", aware", False: ", unaware"}[row["aware"]]
        numbers = [f"{row[key]:.3f}" if row[key] is not None else "-" for key in ("mean", "floor", "low", "high")]
        score = f"{numbers[0]} over {numbers[1]} (gain {numbers[2]} to {numbers[3]})"
        print(f"  {row['attack']}, {row['defence']}{aware}: {row['state']} [{row['test']}] {row['metric']} {score}")


if __name__ == "__main__":
    sys.exit(main())
