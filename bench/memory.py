"""Memory of a simulation that writes its transcript: 1,000 rounds of 150,000 parameters and 10 clients.

Peak resident memory of this process above that just before the run. The plain reference is a transcript in memory,
which needs as much as the folder: about 7 GB, removed at the end; `--rounds` reduces it. The last line is
`peak/transcript: R, X MB of 1000 MB`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import torch
from common.measure import peak_megabytes
from torch import nn

from fedxray.data.dataset import Records, Space
from fedxray.federation.folder import FolderShelf, read_transcript, transcript_bytes, write_transcript
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.params import element_count, parameters_of
from fedxray.progress import Step
from fedxray.seeds import fork

LIMIT = 1000.0
CLASSES = 10


def make(rounds: int) -> Federation:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(54, 512), nn.ReLU(), nn.Linear(512, 234), nn.ReLU(), nn.Linear(234, CLASSES))
    source = fork(0, "memory")
    clients = tuple(
        Records(torch.randn(32, 54, generator=source), torch.randint(CLASSES, (32,), generator=source))
        for _ in range(10)
    )
    space = Space(kind="table", shape=(54,), target="classification", classes=tuple(map(str, range(CLASSES))))
    return Federation(space=space, clients=clients, model=model, recipe=Recipe(batch_size="all"), rounds=rounds)


def print_progress(step: Step) -> None:
    if step.done % 100 == 0:
        print(f"round {step.done} of {step.total}: peak so far {peak_megabytes():.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=None, help="where to record (default: a temporary folder)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=options.folder)) / "run"
    warm, _ = simulate(make(2), shelf=FolderShelf(folder.with_name("warm")))  # modules that are loaded once
    write_transcript(warm, folder.with_name("warm"))
    run = make(options.rounds)
    print(f"{element_count(parameters_of(run.model))} parameters, about {transcript_bytes(run) / 1e9:.2f} GB to write")
    baseline = peak_megabytes()
    try:
        transcript, _ = simulate(run, shelf=FolderShelf(folder), report=print_progress)
        write_transcript(transcript, folder)
        written = sum(path.stat().st_size for path in folder.iterdir())
        recording = peak_megabytes() - baseline
        read = read_transcript(folder, model=run.model, space=run.space)
        for message in read.messages[:: max(1, len(read.messages) // 200)]:
            read.shelf.get(message.parts)
        reading = peak_megabytes() - baseline
    finally:
        shutil.rmtree(folder.parent)
    print(
        f"baseline {baseline:.0f} MB, wrote {written / 1e9:.2f} GB, after reading 200 messages {reading:.0f} MB above"
    )
    print(f"peak/transcript: {1e6 * recording / written:.3f}, {recording:.0f} MB of {LIMIT:.0f} MB")
    if max(recording, reading) > LIMIT:
        raise SystemExit("too much memory")


if __name__ == "__main__":
    main()
