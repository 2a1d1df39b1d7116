"""NVFlare under fault: a job whose recorders fail ends as without them, and a killed site leaves a recording."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("nvflare")

from fedxray.federation.recording.reader import read_recording
from tests.integrations.test_nvflare import simulated

KILLED = """
import os, signal, sys
from tests.integrations.test_nvflare import MODEL, Recorder, context, message, recorders
recorder = Recorder(sys.argv[1])
for task in ("first", "second"):
    for direction in ("in", "out"):
        recorder.process(message(dict(MODEL)), context(direction, task))
    if task == "first":
        recorders._held.writers[sys.argv[1]].wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_site_leaves_what_was_written(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "held")], check=False)
    assert ended.returncode == -signal.SIGKILL
    held = read_recording(tmp_path / "held")
    assert len(held.messages) in (1, 2) and held.messages[0].reply is not None and not held.stops


def final_model(folder: Path) -> dict[str, torch.Tensor]:
    (path,) = (folder / "workspace").rglob("FL_global_model.pt")
    model: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["model"]
    return {name: torch.as_tensor(value) for name, value in model.items()}


@pytest.mark.slow
def test_a_job_whose_recorders_fail_ends_as_without_them(tmp_path: Path) -> None:
    plain, broken = (simulated(tmp_path / how, how) for how in ("plain", "broken"))
    assert (plain.returncode, broken.returncode) == (0, 0), broken.stderr[-2000:]
    assert "fedxray" in broken.stdout + broken.stderr and "fedxray" not in plain.stdout + plain.stderr
    models = [final_model(tmp_path / how) for how in ("plain", "broken")]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
