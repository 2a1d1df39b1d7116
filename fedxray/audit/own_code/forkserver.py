"""A process that holds fedxray's code and no data, from which the processes of own attacks are forked.

It is started afresh (not forked) when a process first needs it, so that nothing which that process has read or freed
is in its memory. Every attack then gets a child of its own, in a session of its own, with two pipes to the audit: one
for its work, and one for what it prints. When the child has answered, ended or taken too long, it and what it started
are killed. The server ends when the audit's end of its socket is closed, however the audit ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

from fedxray.lookup import OwnOutput

RUN, KILL = b"r", b"k"  # orders to the server
NUMBER = struct.Struct("!i")  # its answers: the id of a child, later its exit code
ROOM = 1 << 16  # bytes of a pipe
GRACE = 10.0  # seconds that the server may take to kill a child or to end; an attack may have stopped it
WORK = "fedxray.audit.own_code.apart:answer"  # what a child does with its pipe
# Named, not imported: rooms above this one, loaded once so that forks start fast.
PRELOADED = ("fedxray.audit.run.execute", "fedxray.models.factory", "scipy.linalg", "sklearn.utils")


# The audit's side


class Server:
    """The server of this process."""

    def __init__(self) -> None:
        """Start it, with the folders from which this process imports alone, and one thread for every library."""
        from fedxray.audit.workers.engines import ONE_THREAD

        self.owner = os.getpid()
        self.control, theirs = socket.socketpair()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({theirs.fileno()})"],
                env=os.environ | dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": paths},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def stop(self) -> None:
        """End it, and whatever runs in it."""
        if self.owner == os.getpid():
            self.control.close()
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


_server: Server | None = None


def _running() -> Server:
    global _server
    if _server is None or _server.owner != os.getpid() or _server.process.poll() is not None:
        _server = Server()
        atexit.register(_server.stop)
    return _server


def leave() -> None:
    """Close this process's end of a server that its parent uses."""
    if _server is not None and _server.owner != os.getpid():
        _server.control.close()


class Child:
    """A forked child at work, as a with-block: `pipe` leads to it; afterwards `code` and `late` state how it ended."""

    def __init__(self, seconds: float) -> None:
        """Fork it; it is killed after that number of seconds."""
        self.server, self.late, self.code = _running(), False, None
        self.pipe, theirs = Pipe()
        self.printed, printing = os.pipe()
        self.shown = OwnOutput(sys.stderr)
        with theirs:
            socket.send_fds(self.server.control, [RUN], [theirs.fileno(), printing])
        os.close(printing)
        self.pid = _number(self.server.control)
        self.watch = threading.Thread(target=self._watch, args=(seconds,), daemon=True)
        self.watch.start()

    code: int | None

    def _watch(self, seconds: float) -> None:
        """Show what the child prints until it ends, kill it when its time is over, then end all waiting on its pipe."""
        control, end = self.server.control, time.monotonic() + seconds
        sources: list[socket.socket | int] = [control, self.printed]
        while control not in wait(sources, end - time.monotonic()):
            if time.monotonic() > end:
                self.late = True
                self._kill()
                if not wait([control], GRACE):
                    self._kill_all()
                break
            if not self.shown.write(os.read(self.printed, ROOM)):  # closed by the child
                sources.remove(self.printed)
        self.code = _number(control)
        os.set_blocking(self.printed, False)  # what it started may live on where orphans are not found
        with suppress(BlockingIOError):
            self.shown.write(os.read(self.printed, ROOM))
        self.shown.flush()
        hang_up(self.pipe)

    def _kill(self) -> None:
        with suppress(OSError):
            self.server.control.send(KILL)

    def _kill_all(self) -> None:
        """Kill it and a server that does not answer; its exit code is then None."""
        kill_group(self.pid)
        self.server.process.kill()

    def __enter__(self) -> Child:
        """Nothing more: it runs."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill what is left of it."""
        self._kill()
        self.watch.join(GRACE)
        if self.watch.is_alive():
            self._kill_all()
            self.watch.join()
        self.pipe.close()
        os.close(self.printed)
        if self.code is None:  # the server is dead
            kill_group(self.pid)
            self.server.stop()


def _number(control: socket.socket) -> int | None:
    """Return the next number from the server, None where it is dead."""
    with suppress(OSError):
        content = control.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(content) == NUMBER.size:
            return int(NUMBER.unpack(content)[0])
    return None


def hang_up(pipe: Connection) -> None:
    """End all waiting on a pipe, also where another process holds its other end."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as line, suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def kill_group(pid: int | None) -> None:
    """Kill a process and its group; before it has a group of its own, it alone."""
    if pid is not None:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


# The server's side


def serve(handle: int) -> None:
    """Fork a child for every order until the audit's end is closed."""
    import importlib

    import torch

    for module in PRELOADED:
        importlib.import_module(module)
    torch.set_num_threads(1)
    _adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # the audit may have blocked it
    control = socket.socket(fileno=handle)
    while True:
        order, handles, *_ = socket.recv_fds(control, 1, 2)
        if not order:
            os._exit(0)  # there is nothing to tidy up, and to free all of torch takes a quarter of a second
        if order != RUN:  # a child that ended before it was to be killed
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inner in (control, woken, wake):
                os.close(inner if isinstance(inner, int) else inner.detach())
            _be_child(*handles)
        for given in handles:
            os.close(given)
        control.sendall(NUMBER.pack(pid))
        control.sendall(NUMBER.pack(_attend(control, woken, pid)))


def _attend(control: socket.socket, woken: int, pid: int) -> int:
    """Return the exit code of a child; it and its group are dead then, killed where the audit says so or is gone."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        ready = wait([control, woken])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 64)
        if control in ready and control.recv(1) != RUN:
            kill_group(pid)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    kill_group(pid)  # not reaped yet, so that the number is still its own
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while orphans := _children():
        for orphan in orphans:
            kill_group(orphan)
            os.waitpid(orphan, 0)
    return code


def _adopt_orphans() -> None:
    """Become the parent of whatever a child leaves behind, also of what has left its group; Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _be_child(pipe: int, printing: int) -> NoReturn:
    """Do the work; never returns."""
    from fedxray.lookup import load

    try:
        os.setsid()
        for standard in (1, 2):
            os.dup2(printing, standard)
        os.close(printing)
        load(WORK)(Connection(pipe))
    finally:
        os._exit(1)
