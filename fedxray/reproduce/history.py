"""What made a folder's numbers: every command that computed something in it, with its code and its time."""

from __future__ import annotations

import json
import math
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedxray.files import read_json, write_whole

NAME = "history.json"


@contextmanager
def noted(folder: Path, command: str) -> Iterator[None]:
    """Note a command before it computes something, and how long it took once it ends in any way.

    A command that was killed keeps 0 seconds.
    """
    mark, before = begin(folder, command), time.perf_counter()
    try:
        yield
    finally:
        end(folder, mark, time.perf_counter() - before)


def begin(folder: Path, command: str) -> str:
    """Add a command that is about to compute something; the mark by which its end is noted."""
    past = history(folder)
    again, mark = " --resume" if past else "", uuid.uuid4().hex
    _write(folder, [*past, {"id": mark, "command": command + again, "commit": commit(), "seconds": 0.0}])
    return mark


def end(folder: Path, mark: str, seconds: float) -> None:
    """Note how long the command of that mark took."""
    took = {"seconds": round(seconds, 1)}
    _write(folder, [{**one, **took} if one.get("id") == mark else one for one in history(folder)])


def _write(folder: Path, past: list[dict[str, Any]]) -> None:
    text = json.dumps(past, indent=1, allow_nan=False) + "\n"
    write_whole(folder / NAME, text.encode("ascii"), "history")


def history(folder: Path) -> list[dict[str, Any]]:
    """All commands so far."""
    path = folder / NAME
    found: list[dict[str, Any]] = read_json(path) if path.is_file() else []
    return found


def told(folder: Path) -> dict[str, Any]:
    """The commands in one line, the commits of the code that ran, and the seconds that the commands took together."""
    past = history(folder)
    once: dict[str, str] = {}  # going on with a command is no other command
    for one in past:
        once.setdefault(one["command"].removesuffix(" --resume"), one["command"])
    commits = list(dict.fromkeys(one["commit"] for one in past if one["commit"]))
    return {
        "command": " && ".join(once.values()),
        "commit": ", ".join(commits) or None,
        "seconds": math.fsum(one["seconds"] for one in past),
    }


def commit() -> str | None:
    """The commit of the checkout that this code lies in, marked where files differ; None outside of one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
