"""Worker processes forked from a server that has imported fedxray once for all of them; Linux only.

The server is a new Python process (not a fork of the audit, which holds data and may have threads). It imports the
module of fedxray that tasks need, no code of the user's, and has one thread. A worker forked from it then takes over
the environment, paths and main module of the audit, as a spawned one does. The server ends when the audit's end of its
socket is closed, however the audit ends; the system kills its workers when it ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait

FORK = b"f"  # the order to the server
NUMBER = struct.Struct("!i")  # its answers about a worker: the process id, later the exit code
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl.h
MAIN_FILE = "init_main_from_path"  # of multiprocessing: the file of the main module
OURS = "fedxray."  # modules that the server may import
GRACE = 5.0  # seconds that the server may take to report a killed worker; code of the user's may have stopped it


# The audit's side


class Server:
    """The server of one engine."""

    def __init__(self, function: str) -> None:
        """Start it; it imports the module of `function` ("module:function") where that is fedxray's."""
        self.control, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {[str(path) for path in sys.path]}; "
        code += f"from {__name__} import serve; serve({theirs.fileno()}, {function!r})"
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as spawn does
        with theirs:
            self.process = subprocess.Popen(
                [os.fsdecode(spawn.get_executable()), *flags, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it, and its workers."""
        self.control.close()
        self.process.kill()
        self.process.wait()

    def fork(self, pipe: Connection) -> Forked:
        """Return a new worker that serves the pipe; where the server has died, one that is dead."""
        sentinel, report = os.pipe()
        worker = Forked(sentinel, self.process)
        try:
            try:
                with suppress(BrokenPipeError, ConnectionResetError):
                    socket.send_fds(self.control, [FORK], [pipe.fileno(), report])
            finally:
                os.close(report)
            worker.pid = worker.read_number()
        except BaseException:
            worker.close()
            raise
        return worker


class Forked:
    """A forked worker, with what an engine uses of multiprocessing's Process."""

    pid: int | None = None
    exitcode: int | None = None

    def __init__(self, sentinel: int, server: subprocess.Popen[bytes]) -> None:
        """`sentinel` can be read when the worker has ended, also with its server."""
        self.sentinel, self.server = sentinel, server

    def read_number(self) -> int | None:
        """Return the next number from the server, None where it is dead."""
        content = os.read(self.sentinel, NUMBER.size)
        return int(NUMBER.unpack(content)[0]) if len(content) == NUMBER.size else None

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        self.join(0)
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most that number of seconds."""
        if self.sentinel < 0:
            raise ValueError("process object is closed")
        if self.exitcode is None and wait([self.sentinel], timeout):
            code = self.read_number()
            self.exitcode = self.server.wait() if code is None else code  # it died with the server, or was not forked

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and a server that does not report its end."""
        self._send(signal.SIGKILL)
        self.join(GRACE)
        if self.exitcode is None:
            self.server.kill()

    def _send(self, number: signal.Signals) -> None:
        if self.is_alive() and self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the handle."""
        os.close(self.sentinel)
        self.sentinel = -1


def introduction() -> tuple[dict[str, str], dict[str, object]]:
    """Return what a forked worker takes over: the environment, and what multiprocessing gives a spawned process."""
    preparation = spawn.get_preparation_data("ForkedWorker")
    if not os.path.isfile(preparation.get(MAIN_FILE, "")):  # a program read from the standard input has none
        preparation.pop(MAIN_FILE, None)
    return dict(os.environ), preparation | {"authkey": bytes(preparation["authkey"])}


# The server's side


def serve(handle: int, function: str) -> None:
    """Import what the function needs, then fork a worker for every order until the audit's end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # started in a thread it has not inherited that
    from fedxray.audit.workers.engines import importing, serve_tasks
    from fedxray.lookup import load

    if function.startswith(OURS):
        with importing():
            load(function)
            import torch
        torch.set_num_threads(1)  # and by the environment, before any library was loaded
    pipe = _fork_workers(socket.socket(fileno=handle))
    try:
        introduced = pipe.recv()
    except (EOFError, ConnectionResetError):  # the audit has died
        return
    _take_over(*introduced)
    serve_tasks(pipe)


def _fork_workers(control: socket.socket) -> Connection:
    """Fork workers; returns in a worker alone, with its pipe."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # the audit may have blocked it
    server, workers = os.getpid(), dict[int, int]()  # process id -> where its exit code is written
    while True:
        ready = wait([control, woken])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 64)
            _report_ended(workers)
        if control not in ready:
            continue
        order, handles, *_ = socket.recv_fds(control, 1, 2)
        if order != FORK:
            os._exit(0)
        pipe, report = handles
        pid = os.fork()
        if pid == 0:
            _die_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inner in (report, *workers.values(), woken, wake, control.detach()):
                os.close(inner)
            os.set_inheritable(pipe, False)
            return Connection(pipe)
        os.close(pipe)
        os.set_inheritable(report, False)
        workers[pid] = report
        with suppress(OSError):  # the audit is gone
            os.write(report, NUMBER.pack(pid))


def _report_ended(workers: dict[int, int]) -> None:
    """Write the exit codes of workers that have ended."""
    for pid, report in list(workers.items()):
        ended, state = os.waitpid(pid, os.WNOHANG)
        if ended:
            del workers[pid]
            with suppress(OSError):
                os.write(report, NUMBER.pack(os.waitstatus_to_exitcode(state)))
            os.close(report)


def _die_with(parent: int) -> None:
    """Let the system kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _take_over(variables: dict[str, str], preparation: dict[str, object]) -> None:
    """Take over what the audit's `introduction` states; random draws of numpy without a seed are not the server's."""
    os.environ.clear()
    os.environ.update(variables)
    process = multiprocessing.current_process()
    process._inheriting = True  # type: ignore[attr-defined]  # so that a main module which starts workers is refused
    try:
        spawn.prepare(preparation)
    finally:
        del process._inheriting  # type: ignore[attr-defined]
    process.daemon = True
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed()
