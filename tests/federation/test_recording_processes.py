"""One recording written by several processes: copies of a writer, forks, and unrelated processes."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.writer import RecordingWriter
from tests.federation.messages import training_message

ROUNDS = 15


def test_a_copy_writes_to_the_same_place(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, "client", most_waiting=99)
    other = copy.deepcopy(writer)
    assert other is not writer and (other.folder, other.side) == (writer.folder, "client")
    assert copy.deepcopy(writer) is other, "copies in one process share a thread and a limit"
    for number, one in enumerate((writer, other), start=1):
        one.submit(lambda number=number: training_message(number), 0)  # type: ignore[misc]
        one.wait()
    assert [one.round for one in read_recording(tmp_path).messages] == [1, 2]


def test_processes_that_write_at_once_do_not_clash(tmp_path: Path) -> None:
    code = """
import sys
from fedxray.federation.recording.writer import RecordingWriter
from tests.federation.messages import training_message
writer = RecordingWriter(sys.argv[1], "client")
print("ready", flush=True)
sys.stdin.readline()
for round in range(1, int(sys.argv[3]) + 1):
    writer.submit(lambda round=round: training_message(round, node=sys.argv[2]), 0)
writer.wait()
sys.exit(writer.stopped)
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "r"), node, str(ROUNDS)],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for node in ("7", "8")
    ]  # fmt: skip
    for one in both:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    assert [one.communicate()[0] for one in both] == ["", ""] and [one.returncode for one in both] == [0, 0]
    found = read_recording(tmp_path / "r")
    assert found.cut == ()
    for node in ("7", "8"):
        rounds = [one.round for one in found.messages if one.node == node]
        assert rounds == list(range(1, ROUNDS + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_fork_does_not_wait_for_the_queue_of_its_parent(tmp_path: Path) -> None:
    """At the fork the parent's thread writes and holds the lock; in the child there is no such thread."""
    code = f"""
import os, sys, threading
from fedxray.federation.recording.writer import RecordingWriter
from tests.federation.messages import training_message
writer = RecordingWriter({str(tmp_path)!r}, "client")
go_on = threading.Event()
writer.submit(lambda: go_on.wait() and training_message(1), 0)
writer._lock.acquire()
child = os.fork()
if child == 0:
    writer.submit(lambda: training_message(2), 0)
    writer.wait()
    os._exit(0 if writer.stopped is None else 3)
writer._lock.release()
ended = os.waitpid(child, 0)[1]
go_on.set()
writer.wait()
os._exit(ended)
"""
    finished = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert finished.returncode == 0
    assert sorted(one.round or 0 for one in read_recording(tmp_path).messages) == [1, 2]
