"""The writer of a recording: what it does when something goes wrong, and how it keeps what it writes."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedxray.errors import BadInput
from fedxray.federation.recording import writer as writer_module
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.writer import RecordingWriter, open_folder
from fedxray.files import NoSpaceError
from tests.federation.messages import training_message

ROOT = Path(__file__).parents[2]


def notes(folder: Path) -> list[str]:
    return [one.read_text() for one in sorted(folder.glob("stopped-*.txt"))]


def test_a_disk_that_holds_the_note_does_not_hold_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, real = threading.Event(), writer_module.write_whole

    def slow(path: Path, *more: Any, **settings: Any) -> None:
        if path.name.startswith("stopped"):
            assert go_on.wait(30)
        real(path, *more, **settings)

    monkeypatch.setattr(writer_module, "write_whole", slow)
    writer = RecordingWriter(tmp_path, "client")
    with writer.guarded():
        raise ValueError("a fault\nof two lines")
    writer.submit(lambda: training_message(1), 0)  # returns at once, as does the guard
    assert notes(tmp_path) == []
    go_on.set()
    writer.wait()
    assert writer.stopped == "ValueError: a fault of two lines"
    assert [note.splitlines()[0] for note in notes(tmp_path)] == [writer.stopped]


def test_too_much_that_waits_ends_a_recording_but_is_written(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def held() -> Any:
        begun.set()
        assert go_on.wait(30)
        return training_message(1)

    writer = RecordingWriter(tmp_path, "client", most_waiting=13)
    writer.submit(held, 6)
    assert begun.wait(30)
    for round in (2, 3, 4):
        writer.submit(lambda round=round: training_message(round), 6)  # type: ignore[misc]
    go_on.set()
    writer.wait()
    assert [one.round for one in read_recording(tmp_path).messages] == [1, 2]
    assert notes(tmp_path)[0].startswith("the disk is slower than the training: 12 bytes wait")


def test_written_messages_leave_the_queue_and_one_large_message_is_accepted(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, "client", most_waiting=13)
    for round, size in ((1, 6), (2, 6), (3, 6), (4, 99)):
        writer.submit(lambda round=round: training_message(round), size)  # type: ignore[misc]
        writer.wait()
    assert [one.round for one in read_recording(tmp_path).messages] == [1, 2, 3, 4] and notes(tmp_path) == []


def test_messages_that_come_at_once_are_let_in_together(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, "server", most_waiting=13)
    with writer.burst():
        for node in range(12):
            writer.submit(lambda node=node: training_message(1, node=str(node)), 6)  # type: ignore[misc]
    writer.wait()
    assert len(read_recording(tmp_path).messages) == 12 and notes(tmp_path) == []


def test_a_full_disk_does_not_hide_that_the_recording_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes, what: str, **_: Any) -> None:
        raise NoSpaceError(f"no space left for {what} ({os.strerror(errno.ENOSPC)}).")

    writer = RecordingWriter(tmp_path, "client")
    writer.submit(lambda: training_message(1), 0)
    writer.wait()
    assert read_recording(tmp_path).stops == ()
    monkeypatch.setattr(writer_module, "write_whole", full)
    writer.submit(lambda: training_message(2), 0)
    writer.wait()
    found = read_recording(tmp_path)
    assert [one.round for one in found.messages] == [1] and notes(tmp_path) == []
    assert found.stops == (str(writer.stopped),) and "no space left for" in found.stops[0]


HANGS = """
import os, sys, threading
from fedxray.federation.recording import writer as writer_module
from tests.federation.messages import training_message
writer_module.EXIT_SECONDS = 0.5
writer = writer_module.RecordingWriter(sys.argv[1], "client")
writer.submit(lambda: training_message(1), 0)
writer.wait()
writer.submit(lambda: threading.Event().wait(), 0)
"""


def test_a_disk_that_hangs_keeps_no_process_alive_and_the_cut_is_noted(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS, str(tmp_path)], cwd=ROOT, timeout=60, capture_output=True, text=True
    )
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    found = read_recording(tmp_path)
    assert len(found.messages) == 1
    assert found.stops == ("the disk took nothing for 0.5 s when the program ended",)


SLOW = """
import sys, threading
from fedxray.federation.recording import writer as writer_module
from tests.federation.messages import training_message
writer_module.EXIT_SECONDS = 2.0
writer = writer_module.RecordingWriter(sys.argv[1], "client")
pause = threading.Event()
for round in range(1, 31):
    writer.submit(lambda round=round: pause.wait(0.1) or training_message(round), 0)
"""


def test_a_process_that_ends_waits_for_a_slow_disk(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SLOW, str(tmp_path)], cwd=ROOT, timeout=60, check=True)
    found = read_recording(tmp_path)
    assert [one.round for one in found.messages] == list(range(1, 31)) and found.stops == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders")
def test_a_pipe_in_place_of_the_head_stops_the_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recording.json")
    writer = RecordingWriter(tmp_path, "client")
    writer.submit(lambda: training_message(1), 0)
    assert writer._thread is None or writer._thread.join(30) is None  # type: ignore[func-returns-value]
    assert "expected a plain file" in str(writer.stopped)


def test_a_stop_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = RecordingWriter(tmp_path, "client")
    with caplog.at_level(logging.WARNING, logger="fedxray.recorder"):
        for text in ("first", "second"):
            with writer.guarded():
                raise ValueError(text)
    writer.wait()
    assert len(caplog.records) == 1 and len(notes(tmp_path)) == 1
    assert "Traceback" in notes(tmp_path)[0]


def test_a_computer_without_threads_stops_the_recording_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    writer = RecordingWriter(tmp_path, "client")
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with writer.guarded():
        writer.submit(lambda: training_message(1), 0)
    assert "can't start new thread" in str(writer.stopped)
    writer.wait()


def test_no_note_is_written_to_the_other_side(tmp_path: Path) -> None:
    open_folder(tmp_path, "server")
    writer = RecordingWriter(tmp_path, "client")
    writer.submit(lambda: training_message(1), 0)
    writer.wait()
    assert "Give each side its own folder" in str(writer.stopped) and notes(tmp_path) == []


def test_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(BadInput, match="folder: expected a home that exists, got ~no-such-user/recording"):
        RecordingWriter("~no-such-user/recording", "client")


@pytest.mark.skipif(os.name != "posix", reason="modes of folders are of POSIX")
@pytest.mark.parametrize("there", [False, True])
def test_a_recording_is_readable_by_its_owner_alone(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "r"
    before = os.umask(0)
    try:
        if there:
            folder.mkdir(mode=0o755)
        open_folder(folder, "client")
    finally:
        os.umask(before)
    modes = [one.stat().st_mode & 0o777 for one in (folder, folder / "messages", folder / "arrays")]
    assert modes == [0o755 if there else 0o700, 0o700, 0o700]
    assert (folder / "recording.json").stat().st_mode & 0o777 == (0o644 if there else 0o600)
