"""Cost of recording for a Flower client: a round of training with and without the mod, for three sizes of network.

Medians over rounds, with and without in turns. `training waits` is the CPU time of the training's own thread inside the
mod. `CPU` is the additional CPU time of the process, with the writer's thread; `wall` is the additional wall time where
the next round waits until the last byte is written. All are percentages of the round without the mod.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import torch
from torch import nn

ROUNDS = 12
# hidden units of a network of two dense layers, and local steps of a round
SIZES = {"0.1 M parameters": (100, 200), "1 M parameters": (700, 150), "10 M parameters": (2900, 60)}
INPUTS, BATCH = 784, 32


def network(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def client(hidden: int, steps: int, mods: list[Any]) -> Any:
    """Return a ClientApp that trains for `steps` steps."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp(mods=mods)
    x, y = torch.randn(steps, BATCH, INPUTS), torch.randint(10, (steps, BATCH))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = network(hidden)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        for step in range(steps):
            loss = nn.functional.cross_entropy(model(x[step]), y[step])
            with torch.no_grad():
                for value, slope in zip(
                    model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
                ):
                    value -= 0.01 * slope
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    return app


def message(hidden: int, round: int) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    config = ConfigRecord({"server-round": round})
    content = RecordDict({"arrays": ArrayRecord(network(hidden).state_dict()), "config": config})
    return Message(content, dst_node_id=7, message_type="train")


def timed(work: Callable[[], object]) -> tuple[float, float, float]:
    """Return CPU seconds of this thread, of all threads, and wall seconds."""
    before = time.thread_time(), time.process_time(), time.perf_counter()
    work()
    after = time.thread_time(), time.process_time(), time.perf_counter()
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def measure(hidden: int, steps: int, folder: Path) -> list[tuple[float, float, float]]:
    """Return the medians without and with the recorder."""
    from flwr.app import Context, RecordDict

    from fedxray.integrations.flower import record

    recorder = record(folder)
    apps = [client(hidden, steps, []), client(hidden, steps, [recorder])]
    times: list[list[tuple[float, float, float]]] = [[], []]
    for round in range(ROUNDS + 1):
        for index, app in enumerate(apps):
            asked, context = message(hidden, round + 1), Context(1, 7, {}, RecordDict(), {})

            def train(app: Any = app, asked: Any = asked, context: Any = context, index: int = index) -> None:
                app(asked, context)
                if index:
                    recorder.writer.wait()

            if round:  # the first one warms up
                times[index].append(timed(train))
            else:
                train()
    assert recorder.writer.stopped is None
    return [tuple(statistics.median(values) for values in zip(*side, strict=True)) for side in times]  # type: ignore[misc]


def waiting_seconds(hidden: int, folder: Path) -> float:
    """Return the CPU seconds of the training's own thread that the mod takes for one message."""
    from flwr.app import Context, RecordDict

    from fedxray.integrations.flower import record

    recorder = record(folder)
    asked, context = message(hidden, 1), Context(1, 7, {}, RecordDict(), {})
    reply = client(hidden, 0, [])(asked, context)
    times = []
    for _ in range(ROUNDS):
        times.append(timed(lambda: recorder(asked, context, lambda *_: reply))[0])
        recorder.writer.wait()
    return statistics.median(times)


def import_seconds() -> float:
    """Return the CPU seconds that importing the recorder adds to a client with torch and flwr loaded."""
    code = (
        "import time, torch, flwr.clientapp\nbefore = time.process_time()\n"
        "import fedxray.integrations.flower\nprint(time.process_time() - before)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return min(times)


def main() -> None:
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ModuleNotFoundError:
        print("needs Flower: pip install 'fedxray[flower]'")
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    torch.set_num_threads(1)
    print(f"importing the recorder: {1000 * import_seconds():.0f} ms, once for each process")
    print(f"{'network':<20}{'round':>9}{'training waits':>22}{'CPU':>10}{'wall':>16}")
    for name, (hidden, steps) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            plain, recorded = measure(hidden, steps, Path(folder) / "whole")
            waited = waiting_seconds(hidden, Path(folder) / "mod")
        shares = [100 * (with_ / without - 1) for without, with_ in zip(plain, recorded, strict=True)]
        share = f"{1000 * waited:.2f} ms = {100 * waited / plain[0]:.3f} %"
        print(f"{name:<20}{plain[2]:>7.2f} s{share:>22}{shares[1]:>8.1f} %{shares[2]:>14.1f} %")


if __name__ == "__main__":
    main()
