"""Cost of recording for a Flower client or an NVFlare site: a round with and without, for three sizes of network.

    python bench/recorder.py [flower | nvflare]

Medians over rounds, with and without in turns. `training waits` is the CPU time of the training's own thread inside the
recorder. `CPU` is the additional CPU time of the process, with the writer's thread; `wall` is the additional wall time
where the next round waits until the last byte is written. All are percentages of the round without it. NVFlare's
filters and events are called as its client calls them, in this process.
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
from torch import Tensor, nn

ROUNDS = 12
# hidden units of a network of two dense layers, and local steps of a round
SIZES = {"0.1 M parameters": (100, 200), "1 M parameters": (700, 150), "10 M parameters": (2900, 60)}
INPUTS, BATCH = 784, 32


def network(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def batches(steps: int) -> tuple[Tensor, Tensor]:
    return torch.randn(steps, BATCH, INPUTS), torch.randint(10, (steps, BATCH))


def descend(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train for a step on every batch."""
    for inputs, targets in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        with torch.no_grad():
            for value, slope in zip(
                model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                value -= 0.01 * slope


def client(hidden: int, steps: int, mods: list[Any]) -> Any:
    """Return a ClientApp that trains for `steps` steps."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp(mods=mods)
    x, y = batches(steps)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = network(hidden)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        descend(model, x, y)
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


def site_round(hidden: int, x: Tensor, y: Tensor, round: int, recorder: Any, work: bool = True) -> float:
    """Run a round of an NVFlare site, and return the CPU seconds of this thread inside the recorder."""
    from nvflare.apis.dxo import DXO
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey
    from nvflare.apis.fl_context import FLContext

    facts = FLContext()
    for key, value in {
        ReservedKey.IDENTITY_NAME: "site-1", FLContextKey.TASK_ID: str(round), FLContextKey.CURRENT_RUN: "run",
        FLContextKey.PROCESS_TYPE: "CJ",
    }.items():  # fmt: skip
        facts.set_prop(key, value)
    spent = 0.0

    def passed(call: Callable[[], object]) -> None:
        nonlocal spent
        spent += timed(call)[0] if recorder is not None else 0.0

    def shareable(model: nn.Module) -> Any:
        made = DXO("WEIGHTS", data={name: value.numpy() for name, value in model.state_dict().items()}).to_shareable()
        made.set_header("current_round", round)
        return made

    model = network(hidden)
    sent = shareable(model)
    facts.set_prop(FLContextKey.FILTER_DIRECTION, FilterKey.IN)
    passed(lambda: recorder.process(sent, facts))
    if work:
        descend(model, x, y)
    reply = shareable(model)
    facts.set_prop(FLContextKey.FILTER_DIRECTION, FilterKey.OUT)
    facts.set_prop(FLContextKey.TASK_RESULT, reply)
    passed(lambda: recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, facts))
    passed(lambda: recorder.process(reply, facts))
    passed(lambda: recorder.handle_event(EventType.AFTER_TASK_RESULT_FILTER, facts))
    if recorder is not None:
        from fedxray.integrations.nvflare import _held

        for writer in _held.writers.values():
            writer.wait()
            assert writer.stopped is None
    return spent


def measure_site(hidden: int, steps: int, folder: Path) -> tuple[list[tuple[float, ...]], float]:
    """Return the medians without and with the recorder, and the CPU seconds inside it."""
    from fedxray.integrations.nvflare import Recorder

    (x, y), recorder = batches(steps), Recorder(str(folder))
    times: list[list[tuple[float, float, float]]] = [[], []]
    for round in range(ROUNDS + 1):
        for index, used in enumerate((None, recorder)):
            taken = timed(lambda used=used, round=round: site_round(hidden, x, y, round, used))  # type: ignore[misc]
            if round:  # the first one warms up
                times[index].append(taken)
    waited = [site_round(hidden, x, y, 100 + number, recorder, work=False) for number in range(ROUNDS)]
    medians = [tuple(statistics.median(values) for values in zip(*side, strict=True)) for side in times]
    return medians, statistics.median(waited)


def import_seconds(framework: str) -> float:
    """Return the CPU seconds that importing the recorder adds to a client with torch and the framework loaded."""
    loaded = {"flower": "flwr.clientapp", "nvflare": "nvflare.apis.dxo, nvflare.apis.filter"}[framework]
    code = (
        f"import time, torch, {loaded}\nbefore = time.process_time()\n"
        f"import fedxray.integrations.{framework}, fedxray.federation.recording.writer\n"
        "print(time.process_time() - before)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return min(times)


def main() -> None:
    framework = sys.argv[1] if len(sys.argv) > 1 else "flower"
    if framework == "flower":
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    torch.set_num_threads(1)
    print(f"importing the recorder: {1000 * import_seconds(framework):.0f} ms, once for each process")
    print(f"{'network':<20}{'round':>9}{'training waits':>22}{'CPU':>10}{'wall':>16}")
    for name, (hidden, steps) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            if framework == "flower":
                plain, recorded = measure(hidden, steps, Path(folder) / "whole")
                waited = waiting_seconds(hidden, Path(folder) / "mod")
            else:
                (plain, recorded), waited = measure_site(hidden, steps, Path(folder) / "whole")  # type: ignore[assignment]
        shares = [100 * (with_ / without - 1) for without, with_ in zip(plain, recorded, strict=True)]
        share = f"{1000 * waited:.2f} ms = {100 * waited / plain[0]:.3f} %"
        print(f"{name:<20}{plain[2]:>7.2f} s{share:>22}{shares[1]:>8.1f} %{shares[2]:>14.1f} %")


if __name__ == "__main__":
    main()
