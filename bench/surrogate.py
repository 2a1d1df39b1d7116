"""Quality per CPU second of `surrogate` against `dlf` (with `together`) and `fedsgd-inversion`, on writers of FEMNIST.

Real FEMNIST where its files are there, 20 characters each in batches of 5, learning rate 0.004, 5, 10 and 20 local
epochs, label counts granted. CPU time is that of the attack alone; `dlf, equal time` has as many steps as fit in the
time of 400 steps of `surrogate`. Prints a line per epochs, writer and attack, as JSON; with `--tables FILE` only the
means of the lines in that file.

    python bench/surrogate.py [--writers 4] [--epochs 5 10 20] [--attacks NAME ...] >> lines.jsonl
    python bench/surrogate.py --tables lines.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from fedxray.adversary.disclose import disclose
from fedxray.adversary.roles import server
from fedxray.attacks.base import Attack
from fedxray.attacks.inversion.dlf import Dlf, FedsgdInversion
from fedxray.attacks.inversion.surrogate import Surrogate
from fedxray.audit.plan import make_plan
from fedxray.audit.run.prepare import prepare
from fedxray.audit.workers.engines import keep_freed_memory
from fedxray.federation.round_loop import simulate
from fedxray.metrics.scoring import score
from fedxray.reproduce.dlf import handwriting, network
from fedxray.seeds import fork

IMAGES, WRITERS = 20, 4  # images of each, writers that can be attacked
ATTACKS: dict[str, Attack] = {
    "fedsgd-inversion, 400 steps": FedsgdInversion(steps=400),
    "surrogate, 100 steps": Surrogate(steps=100),
    "surrogate, 400 steps": Surrogate(steps=400),
    "surrogate at the middle, 400 steps": Surrogate(steps=400, position_rate=0.0),
    "dlf, equal time, together = 0.5": Dlf(steps=1, together=0.5),
    "dlf, 100 steps, together = 0.5": Dlf(steps=100, together=0.5),
}
EQUAL = {5: 50, 10: 33, 20: 15}  # steps of dlf, by epochs, in the time of 400 of `surrogate`


def measure(epochs: int, writer: int, names: list[str]) -> None:
    plan = {
        "name": "surrogate",
        "data": handwriting() | {"limit": IMAGES, "clients": WRITERS},
        "model": network("femnist"),
        "federation": {"rounds": 1, "epochs": epochs, "batch_size": 5, "learning_rate": 0.004},
        "attack": [{"name": "dlf"}],
    }
    federation = prepare(make_plan(plan, Path.cwd()), "none", 0).federation
    transcript, truth = simulate(federation, seed=0)
    grants = disclose(truth, ["recipe", "examples", "label-counts"], client=writer)
    view = server(transcript, client=writer, grants=grants)
    for name in names:
        attack = replace(ATTACKS[name], steps=EQUAL[epochs]) if "equal" in name else ATTACKS[name]  # type: ignore
        begin = time.process_time()
        evidence = attack.run(view, generator=fork(1, "bench", writer))
        seconds = time.process_time() - begin
        line = {"epochs": epochs, "writer": writer, "attack": name, "cpu_seconds": round(seconds, 1)}
        means = score(evidence, truth, client=writer).means
        line |= {"psnr": round(float(means["psnr"]), 2), "rec": round(float(means["rec"]), 3)}
        print(json.dumps(line | {"position": evidence.facts.get("position")}), flush=True)


def tables(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for epochs in sorted({line["epochs"] for line in lines}):
        for name in ATTACKS:
            own = [line for line in lines if (line["epochs"], line["attack"]) == (epochs, name)]
            if own:
                psnr, rec, seconds = (
                    statistics.mean(line[key] for line in own) for key in ("psnr", "rec", "cpu_seconds")
                )
                print(f"| {epochs} | {name} | {psnr:.1f} dB | {100 * rec:.0f} % | {seconds:.0f} s | {len(own)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=4, choices=range(1, WRITERS + 1))
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--tables", type=Path)
    options = parser.parse_args()
    if options.tables is not None:
        return tables(options.tables)
    torch.set_num_threads(1)
    keep_freed_memory()
    for writer in range(options.writers):
        for epochs in options.epochs:
            measure(epochs, writer, options.attacks)
    return None


if __name__ == "__main__":
    main()
