"""examples/flower: run with Flower's processes and in this process, then audited and compared."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from fedxray.audit.plan import make_plan, read_plan
from fedxray.audit.run.audit import run_audit
from fedxray.federation.recording.reader import read_recording
from tests.integrations.flower_run import NODES, RUN, InProcessGrid

SHOWN = ("attack", "metric", "mean", "mean_low", "mean_high", "state")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the app of the example be imported, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "clinics"]:
        del sys.modules[name]


def left_over(home: Path) -> list[str]:
    """Return the processes that still have this Flower home in their environment."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(home) in (process / "environ").read_bytes():
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return commands


def left_over_after_a_while(home: Path) -> list[str]:
    """Return the processes that are left once Flower's own subprocesses have noticed that their parent ended."""
    pause = threading.Event()
    for _ in range(600):
        if not left_over(home):
            break
        pause.wait(0.1)
    return left_over(home)


@pytest.mark.usefixtures("own_modules")
def test_a_real_run_on_this_computer(tmp_path: Path) -> None:
    """SuperLink and SuperNodes as processes; both sides record the same bits, and a node can be audited."""
    out = tmp_path / "out"
    command = [sys.executable, str(EXAMPLE / "run.py"), "--out", str(out), "--rounds", "1", "--no-audit"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Bit-equal on both sides: 3 replies." in ended.stdout
    assert left_over_after_a_while(out / "home") == []
    assert sorted((out / "home").rglob("*venv*")) == [], "nothing was installed"
    node = read_recording(out / "node-0" / "recording").messages
    assert [(one.what, one.round, one.partition, one.examples) for one in node] == [("train", 1, 0, 107)]
    document = tomllib.loads((out / "flower-node.toml").read_text())
    plan = make_plan({**document, "attack": [{"name": "membership-loss"}]}, out)
    assert [case["status"] for case in run_audit(plan, tmp_path / "audit").document["cases"]] == ["ok"]


def test_a_real_run_under_secure_aggregation(tmp_path: Path) -> None:
    """SecAgg+ among three SuperNodes: the server sees counts, metrics and a sum, which is the mean of the replies."""
    out = tmp_path / "out"
    command = [sys.executable, str(EXAMPLE / "run.py"), "--out", str(out), "--rounds", "1", "--no-audit", "--secure"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert left_over_after_a_while(out / "home") == []
    lines = [line for line in ended.stdout.splitlines() if line.startswith("Round ")]
    assert len(lines) == 4 and all(line.endswith("no reply") for line in lines[:3])
    error = float(lines[3].rpartition(" ")[2])
    assert error < 4 / 2**22 * 1000 * 16 / 323, "three stochastic roundings of weights times examples over 1000"
    server = read_recording(out / "server" / "recording").messages
    trained = [one for one in server if one.what == "train"]
    assert sorted(one.examples or 0 for one in trained) == [107, 107, 109]
    assert all(one.secure and one.reply is None and one.config["metric loss"] >= 0 for one in trained)
    assert not any("stage" in key or "srcs" in key for one in trained for key in one.config), (
        "no fields of the protocol"
    )
    own = read_recording(out / "node-0" / "recording").messages
    assert [one.reply is not None for one in own if one.what == "train"] == [True]


def in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the app with its own configuration, without a network."""
    tools = runpy.run_path(str(EXAMPLE / "run.py"))
    tools["prepare"](folder)
    monkeypatch.chdir(folder / "node-0")
    from clinics.client_app import app as client

    recorder: Any = client._mods[0]
    monkeypatch.chdir(folder / "server")
    from clinics.server_app import app as server

    configs = [{"records": str(folder / f"node-{node}" / "records.npz")} for node in range(3)]
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    server(InProcessGrid(client, configs=configs), Context(RUN, 0, {}, RecordDict(), config))
    recorder.writer.wait()
    return folder


@pytest.mark.usefixtures("own_modules")
def test_the_same_app_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = in_this_process(tmp_path / "run", monkeypatch)
    document = tomllib.loads((folder / "flower-node.toml").read_text())
    document["data"]["node"] = str(NODES[0])  # all three nodes ran here, so they share a folder
    ended = run_audit(make_plan(document, folder), tmp_path / "audit").document
    rows = {(row["attack"], row["metric"]): row for row in ended["summary"]}
    row = rows["attribute-from-model", "accuracy"]
    assert row["mean"] > 0.9 and row["low"] > row["margin"] and row["state"] == "suspected"
    row = rows["membership-loss", "auc"]
    assert (row["verdict"], row["test"], row["scope"]) == ("leaks", "split", "these runs")
    assert "if the held-out records are like the others" in row["reason"] and "a recording is one run" in row["reason"]
    assert ended["cases"][0]["ledger"]["recording"]["recipe_heard"] == ["epochs", "batch_size", "learning_rate"]


@pytest.mark.slow
@pytest.mark.usefixtures("own_modules")
def test_recorded_and_simulated_audits_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One recorded run of clinic 0 and ten simulated ones on its records: both leak where a test can tell."""
    folder = in_this_process(tmp_path / "run", monkeypatch)
    simulated = run_audit(read_plan(folder / "flower-simulated.toml"), tmp_path / "simulated").document
    wanted = {(row["attack"], row["metric"]): row for row in simulated["summary"]}
    document = tomllib.loads((folder / "flower-node.toml").read_text())
    document["data"]["node"] = str(NODES[0])
    ended = run_audit(make_plan(document, folder), tmp_path / "audit").document
    rows = [row for row in ended["summary"] if row["unit"] == "record"]
    assert len(rows) == 3
    for row in rows:
        expected = wanted[row["attack"], row["metric"]]
        print(*(row[key] for key in SHOWN), "simulated:", *(expected[key] for key in SHOWN[2:]))
        assert expected["state"] == "leaks"
        assert row["state"] == ("leaks" if row["metric"] == "auc" else "suspected")  # one node has none to swap with
        assert row["mean_low"] <= expected["mean_high"] and expected["mean_low"] <= row["mean_high"]
