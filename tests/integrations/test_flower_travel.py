"""Recorders that are copied to other processes, as Flower's simulation engine does with a ClientApp."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cloudpickle")

import cloudpickle

from fedxray.federation.recipe import Recipe
from fedxray.federation.recording.reader import read_recording
from fedxray.integrations.flower import record, record_grid
from tests.integrations.flower_run import NODES, InProcessGrid, client_app, records, run

RECIPE = Recipe(batch_size=4, learning_rate=0.1)
CLIENTS = tuple(records(4, seed) for seed in range(3))


def passing(message: Any, context: Any, call_next: Any) -> Any:
    """A mod that changes nothing."""
    return call_next(message, context)


def test_an_app_with_a_recorder_travels(tmp_path: Path) -> None:
    mine = record(tmp_path)
    release = threading.Event()

    def held() -> Any:
        release.wait()
        raise OSError("the original is not used any more")

    mine.writer.submit(held, 0)  # a lock, a thread and something that waits
    sent = cloudpickle.dumps(client_app(CLIENTS, RECIPE, mods=[passing, mine, passing]))
    release.set()
    mine.writer.wait()
    for round in (1, 2):  # a new copy with each message
        app = cloudpickle.loads(sent)
        run(InProcessGrid(app), rounds=1, config={"server-round": round})
    arrived = app._mods[1].writer
    arrived.wait()
    assert arrived is not mine.writer and arrived is cloudpickle.loads(sent)._mods[1].writer
    assert arrived.stopped is None
    recording = read_recording(tmp_path)
    assert {one.node for one in recording.messages} == {str(node) for node in NODES}
    assert all((one.inside, one.outside) == (["passing"], ["passing"]) for one in recording.messages)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: cloudpickle.loads(cloudpickle.dumps(one))])
def test_a_grid_with_a_recorder_can_be_copied(tmp_path: Path, copied: Any) -> None:
    grid: Any = record_grid(InProcessGrid(client_app(CLIENTS, RECIPE)), tmp_path)
    duplicate = copied(grid)
    assert list(duplicate.get_node_ids()) == list(NODES)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = duplicate.nothing_of_the_kind
    run(duplicate, rounds=1)
    duplicate.writer.wait()
    assert len(read_recording(tmp_path).messages) == 6
