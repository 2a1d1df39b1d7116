"""Tasks for the engines, by name, so that workers can import them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput


def note(argument: Mapping[str, Any]) -> None:
    """Write down who did it."""
    Path(argument["folder"], f"{argument['name']}.txt").write_text(str(os.getpid()))


def count_threads(argument: Mapping[str, Any]) -> None:
    """Write down how many threads the numerical libraries use."""
    import scipy.linalg  # noqa: F401
    import torch
    from threadpoolctl import threadpool_info

    threads = {torch.get_num_threads(), *(one["num_threads"] for one in threadpool_info())}
    Path(argument["folder"], f"{argument['name']}.txt").write_text(str(sorted(threads)))


def count_frozen(argument: Mapping[str, Any]) -> None:
    """Write down how many objects garbage collections leave out."""
    Path(argument["folder"], f"{argument['name']}.txt").write_text(str(gc.get_freeze_count()))


def die(argument: Mapping[str, Any]) -> None:
    """Be killed, as by the kernel when memory runs out; `times` says how often before it goes well."""
    tries = Path(argument["folder"], f"{argument['name']}.tries")
    before = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(before + 1))
    if before < argument["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    note(argument)


def swell(argument: Mapping[str, Any]) -> None:
    """Take memory, stay a while, and be killed for it."""
    import time

    held = bytearray(argument["megabytes"] * 10**6)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def lose_the_host(argument: Mapping[str, Any]) -> None:
    """Kill the parent as a lost node would; `times` says how often before it goes well."""
    import time

    tries = Path(argument["folder"], f"{argument['name']}.tries")
    before = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(before + 1))
    if before < argument["times"]:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    note(argument)


def describe_parent(argument: Mapping[str, Any]) -> None:
    """Write down the parent's id and number of threads, and what this process had imported before."""
    threads = len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))
    imported = [name for name in ("torch", "fedxray.audit.run.execute", "tests.audit.plans") if name in sys.modules]
    Path(argument["folder"], f"{argument['name']}.txt").write_text(f"{os.getppid()} {threads} {' '.join(imported)}")


def kill_parent(argument: Mapping[str, Any]) -> None:
    """Kill the parent, once; the process then waits for its own end."""
    tries = Path(argument["folder"], f"{argument['name']}.tries")
    if not tries.exists():
        tries.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    note(argument)


def interrupt(argument: Mapping[str, Any]) -> None:
    """Send Ctrl-C to this process and, with `parent`, to the one that forked it."""
    for pid in [os.getpid(), *([os.getppid()] if argument["parent"] else [])]:
        os.kill(pid, signal.SIGINT)
    tries = Path(argument["folder"], f"{argument['name']}.tries")
    tries.write_text(f"{tries.read_text() if tries.exists() else ''}{os.getppid()} ")
    note(argument)


def leave_a_process(argument: Mapping[str, Any]) -> None:
    """End without a word; a forked process lives on and holds all that was open, until it is killed."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
    with Path(argument["folder"], f"{argument['name']}.left").open("a") as left:
        left.write(f"{pid}\n")
    os._exit(7)


def speak(argument: Mapping[str, Any]) -> None:
    """Print to both streams, and write down a variable and a draw without a seed."""
    import numpy as np

    print(f"out of {argument['name']}")
    print(f"err of {argument['name']}", file=sys.stderr)
    text = f"{os.environ.get('FEDXRAY_SPOKEN')} {os.getcwd()} {np.random.random()}"
    Path(argument["folder"], f"{argument['name']}.txt").write_text(text)


def leave(argument: Mapping[str, Any]) -> None:
    """End the process without a word."""
    os._exit(7)


def refuse(argument: Mapping[str, Any]) -> None:
    """Find something that the user can mend."""
    raise BadInput("x", expected="y", got="z", remedy="Fix it.")


def sleep(argument: Mapping[str, Any]) -> None:
    """Say that it began, then take very long."""
    import time

    Path(argument["folder"], f"{argument['name']}.began").write_text(str(os.getpid()))
    time.sleep(600)
