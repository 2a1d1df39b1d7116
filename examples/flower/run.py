"""Runs the Flower app on this computer: a SuperLink, three SuperNodes, the recorder, then the audit of one node.

    .venv/bin/python examples/flower/run.py [--out FOLDER] [--rounds 3] [--no-audit] [--secure]

With --secure the clinics use SecAgg+; printed is what the server saw in the clear, and how far the sum that it got is
from the mean of the replies that the clinics recorded. Everything is written to one new folder; nothing is installed,
nothing leaves this computer, and every process that is started is ended.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(sys.executable).parent
NODES = 3
TIMEOUT = 300.0  # seconds until the SuperLink must answer


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("fedxray-out", "flower"))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--no-audit", action="store_true")
    options.add_argument("--secure", action="store_true", help="use SecAgg+")
    chosen = options.parse_args()
    folder = prepare(chosen.out.absolute())
    if chosen.secure:
        use_secure_aggregation(folder)
    federate(folder, chosen.rounds)
    print("\n".join(seen(folder)) if chosen.secure else f"Bit-equal on both sides: {compare(folder)} replies.")
    if not chosen.no_audit:
        audit = [PROGRAMS / "fedxray", "audit", folder / "flower-node.toml", "--out", folder / "audit"]
        sys.exit(subprocess.run([str(word) for word in audit], check=False).returncode)


def prepare(folder: Path) -> Path:
    """Make a new folder with a copy of the app and one folder for each node with its records."""
    if folder.exists():
        sys.exit(f"{folder} exists already: remove it, or choose another --out.")
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__", "run.py"))
    for name in ("server", "home", *(f"node-{node}" for node in range(NODES))):
        (folder / name).mkdir(mode=0o700)
    for node in range(NODES):
        write_records(folder / f"node-{node}" / "records.npz", [node])
    write_records(folder / "everyone.npz", range(NODES))  # only for flower-simulated.toml
    return folder


def use_secure_aggregation(folder: Path) -> None:
    """Let the copied app be the one with SecAgg+."""
    path = folder / "pyproject.toml"
    text = (
        path.read_text().replace("server_app:app", "secure_app:server").replace("client_app:app", "secure_app:client")
    )
    path.write_text(text)


def write_records(path: Path, nodes: Sequence[int]) -> None:
    """Write synthetic visits to these clinics; a real node has a file of its own here."""
    from fedxray import load, split

    data = load("clinic", clients=NODES, records=200, seed=0)
    parts = split(data, clients=NODES, partition="as-given", holdout=0.4, seed=0)
    uses = [("public", parts.public, nodes[0])]
    uses += [("train", parts.train[node], node) for node in nodes]
    uses += [("holdout", parts.holdout[node], node) for node in nodes]
    np.savez(
        path,
        x=np.concatenate([data.x[rows].numpy() for _, rows, _ in uses]),
        y=np.concatenate([data.y[rows].numpy() for _, rows, _ in uses]),
        part=np.concatenate([np.full(len(rows), word) for word, rows, _ in uses]),
        client=np.concatenate([np.full(len(rows), node) for _, rows, node in uses]),
    )


def federate(folder: Path, rounds: int) -> None:
    """Run the app once over the local network."""
    link, environment = f"127.0.0.1:{free_port()}", environment_of(folder)
    connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{link}"\ninsecure = true\n'
    (folder / "home" / "config.toml").write_text(connection)
    server = ["flower-superlink", "--insecure", "--port", link.partition(":")[2]]
    with started([*server, "--disable-runtime-dependency-installation"], folder / "server", environment) as process:
        wait_for(link, process)
        nodes = [
            ["flower-supernode", "--insecure", "--superlink", link, "--port", str(free_port()),
             "--node-config", f"partition-id={node}"]
            for node in range(NODES)
        ]  # fmt: skip
        with (
            started(nodes[0], folder / "node-0", environment),
            started(nodes[1], folder / "node-1", environment),
            started(nodes[2], folder / "node-2", environment),
        ):
            run = ["flwr", "run", str(folder), "here", "--stream", "--run-config", f"num-rounds={rounds}"]
            subprocess.run([str(PROGRAMS / run[0]), *run[1:]], env=environment, check=True)


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of Flower's programs: no telemetry, no installs, its own home, our programs first."""
    return {
        **os.environ,
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the address accepts connections."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"the SuperLink ended with code {process.returncode}; see server/flower-superlink.log")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    sys.exit("the SuperLink does not answer; see server/flower-superlink.log")


@contextmanager
def started(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a folder until the block ends; it and its children are ended by their process group."""
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROGRAMS / command[0]), *command[1:]],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process group, and kill it after ten seconds."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def compare(folder: Path) -> int:
    """Return the number of replies that both sides recorded; exits if a single bit differs."""
    from fedxray.federation.recording.reader import read_recording

    def replies(side: Path) -> set[tuple[str, int | None, str, str]]:
        messages = read_recording(side).messages
        return {(m.node, m.round, m.sent.sha256, m.reply.sha256) for m in messages if m.reply}

    clients = set().union(*(replies(folder / f"node-{node}" / "recording") for node in range(NODES)))
    server = replies(folder / "server" / "recording")
    if clients != server:
        sys.exit(f"the two sides differ in {len(clients ^ server)} replies")
    return len(server)


def seen(folder: Path) -> list[str]:
    """Return what the server saw of each clinic and round, and how exact each sum is; exits if it saw a reply."""
    from fedxray.federation.recording.reader import read_recording

    server = read_recording(folder / "server" / "recording")
    trained = [message for message in server.messages if message.what == "train"]
    if any(message.reply or not message.secure for message in trained):
        sys.exit("the server recorded a single reply")
    lines = [
        f"Round {message.round}, node {message.node}: {message.examples} examples, training loss "
        f"{message.config['metric loss']:.4f}, no reply"
        for message in trained
    ]
    own = [read_recording(folder / f"node-{node}" / "recording") for node in range(NODES)]
    after = {message.round: server.arrays(message.sent) for message in server.messages if message.what == "evaluate"}
    for number in sorted(after):
        replies = [
            (one.arrays(m.reply), m.examples) for one in own for m in one.messages if m.reply and m.round == number
        ]
        total = sum(examples for _, examples in replies)
        means = {name: sum(arrays[name] * (examples / total) for arrays, examples in replies) for name in after[number]}
        error = max(float((means[name] - value).abs().max()) for name, value in after[number].items())
        lines.append(f"Round {number}: the sum differs from the mean of {len(replies)} replies by at most {error:.1e}")
    return lines


if __name__ == "__main__":
    main()
