"""Engines, which run tasks in this process, in worker processes or on a Ray cluster, with the same results.

Every task is called with the same shared arguments (the plan and the store of an audit). The inline engine passes
these objects as they are; a worker process receives them once, before its first task.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from fedxray.audit.workers import forks
from fedxray.errors import BadInput, FedxrayError, unknown_name
from fedxray.lookup import harmless_output, load

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Progress = Callable[[int, int, str], None]  # done, total, label of the task that ended
Deadline = Callable[[], bool]  # whether it has passed
Shared = tuple[Any, ...]  # the first arguments of every task
DEADLINE_PASSED = "the time of --budget was over"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ENGINES = ("inline", "processes", "ray")


@runtime_checkable
class StartProgress(Protocol):
    """Progress that also takes note of tasks that start."""

    def start(self, label: str) -> None:
        """Take note that a task has started."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Take note that a task has ended."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A piece of work: a function by its name and the item it works on; its result goes to the store.

    The function is called as `function(*shared, item)` with the shared arguments of `Engine.run`.
    """

    label: str
    function: str  # "module:function": a node that only passes the task on need not import it
    item: Any


@dataclass(frozen=True, kw_only=True)
class TaskFailure:
    """A task whose worker process died twice, the second time alone, or that was cut off at the deadline."""

    task: Task
    reason: str
    cut_off: bool = False  # whether the deadline had passed


def run_task(task: Task, shared: Shared) -> None:
    """Run a task in this process; fedxray prints nothing there, networks and defences of the user's may."""
    with harmless_output():
        load(task.function)(*shared, task.item)


@contextmanager
def importing() -> Iterator[None]:
    """Import without collecting garbage, and leave what was imported out of all later collections.

    For processes of our own: torch alone is half a million objects that live as long as the process. Freed memory is
    kept for the next step too.
    """
    keep_freed_memory()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of malloc.h
FREE_MEMORY, LARGE_TENSOR = 256 << 20, 32 << 20  # bytes; malloc allows no larger threshold for the second


def keep_freed_memory() -> None:
    """Let the allocator of glibc keep freed memory; elsewhere nothing is done.

    By default tensors of some megabytes go back to the system, which then clears their pages again for every step: a
    third of the CPU time of an inversion with a large dense layer (bench/peers.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE_TENSOR)
        mallopt(TRIM_THRESHOLD, FREE_MEMORY)


def no_deadline() -> bool:
    """A deadline that never passes."""
    return False


def report_start(progress: Progress, task: Task) -> None:
    """Report that a task starts, where the progress takes note of it."""
    if isinstance(progress, StartProgress):
        progress.start(task.label)


def no_report(task: Task) -> None:
    """Report nothing."""


def cut_off(tasks: Iterable[Task]) -> list[TaskFailure]:
    """The failures of tasks that did not end before the deadline."""
    return [TaskFailure(task=task, reason=DEADLINE_PASSED, cut_off=True) for task in tasks]


class Engine(ABC):
    """Runs tasks; used in a with-block, which stops its workers."""

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop all workers."""
        self.stop_workers()

    def planned_workers(self) -> int | None:
        """Return how many tasks run at a time; None where that is not known before the first."""
        return 1

    def stop_workers(self) -> None:  # noqa: B027  (an engine may have none)
        """Stop all workers; others start when there are tasks for them."""

    @abstractmethod
    def run(
        self, tasks: Sequence[Task], progress: Progress, deadline: Deadline = no_deadline, shared: Shared = ()
    ) -> list[TaskFailure]:
        """Run all tasks until every one has ended or the deadline has passed; returns those that failed.

        A FedxrayError of a task is raised here. `shared` are the first arguments of every task.
        """


def make_engine(name: str, jobs: int | None, address: str | None = None) -> Engine:
    """Return the engine of that name with `jobs` workers (default: one per core); `address` is a Ray cluster's."""
    if name not in ENGINES:
        raise unknown_name("--engine", name, ENGINES)
    if address is not None and name != "ray":
        raise BadInput("--address", expected="none", got=address, remedy="It needs --engine ray.")
    if name == "ray":
        from fedxray.audit.workers.ray import RayCluster, check

        check(address)
        return RayCluster(jobs=jobs, address=address)
    if name == "inline":
        if jobs not in (None, 1):
            raise BadInput("--jobs", expected="1 with --engine inline", got=jobs, remedy="Use --engine processes.")
        return Inline()

    return Processes(jobs or cores())


def worker_count(engine: str, jobs: int | None) -> int:
    """Return how many tasks run at a time, as far as is known before the engine starts."""
    return 1 if engine == "inline" else jobs or cores()


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only: cores that a container leaves us
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Inline(Engine):
    """Runs one task after the other in this process."""

    def run(
        self, tasks: Sequence[Task], progress: Progress, deadline: Deadline = no_deadline, shared: Shared = ()
    ) -> list[TaskFailure]:
        """Run all tasks here; a task that has begun is not cut off."""
        with one_thread():
            for done, task in enumerate(tasks):
                if deadline():
                    return cut_off(tasks[done:])
                report_start(progress, task)
                run_task(task, shared)
                progress(done + 1, len(tasks), task.label)
        return []


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that sums have one order everywhere; restore the setting afterwards."""
    import torch
    from threadpoolctl import threadpool_limits

    if any(os.environ.get(name) != "1" for name in ONE_THREAD):  # else a library that is loaded later starts with one
        import sklearn.utils  # noqa: F401
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


class Pool(Engine):
    """An engine of several workers, which may die; a task whose worker died is retried once at the end, alone."""

    @abstractmethod
    def worker_count(self) -> int:
        """Return the largest number of workers at a time."""

    @abstractmethod
    def run_waiting(
        self,
        waiting: deque[Task],
        on_done: Callable[[Task], None],
        *,
        jobs: int,
        deadline: Deadline = no_deadline,
        shared: Shared = (),
        on_start: Callable[[Task], None] = no_report,
    ) -> list[TaskFailure]:
        """Let at most `jobs` workers run until no task waits; returns the tasks whose worker died."""

    def run(
        self, tasks: Sequence[Task], progress: Progress, deadline: Deadline = no_deadline, shared: Shared = ()
    ) -> list[TaskFailure]:
        """Run all tasks; returns those that died twice or were cut off."""
        done: list[Task] = []

        def on_done(task: Task) -> None:
            done.append(task)
            progress(len(done), len(tasks), task.label)

        on_start = partial(report_start, progress)
        attempt = partial(self.run_waiting, deadline=deadline, shared=shared, on_start=on_start)
        failures: list[TaskFailure] = []
        for first in attempt(deque(tasks), on_done, jobs=self.worker_count()):
            if first.cut_off:
                failures.append(first)
                continue
            self.stop_workers()  # no other worker takes memory during the retry
            for second in attempt(deque([first.task]), on_done, jobs=1):
                note = "" if second.cut_off else ", also when tried again alone"
                failures.append(replace(second, reason=f"{second.reason}{note}"))
                if not second.cut_off:
                    on_done(second.task)
        return failures


# Worker processes: each runs one task at a time

SPAWN = multiprocessing.get_context("spawn")
# Whether workers of the engine `processes` are forked from a server; the program of a frozen application runs no `-c`.
FORKS = sys.platform == "linux" and not getattr(sys, "frozen", False)
EXIT_TIMEOUT = 5.0  # seconds that a worker gets to exit by itself
POLL_INTERVAL = 0.2  # seconds between two samples of the memory of busy workers


@dataclass
class Worker:
    """One process and the pipe to it; `task` is what it runs, `peak` the most bytes it was seen to hold."""

    process: SpawnProcess | forks.Forked
    pipe: Connection
    task: Task | None = None
    peak: int = 0
    shared: Shared = ()  # the shared arguments that the process holds

    def give(self, task: Task, shared: Shared) -> None:
        """Send a task, and the shared arguments where the process holds others.

        A worker that is dead already is noticed when it is waited for.
        """
        self.task = task
        message = (task, None if shared is self.shared else shared)
        self.shared = shared
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def finished(self) -> bool:
        """Return whether the task is done, False where the process died on it; its error is raised here."""
        try:
            if not self.pipe.poll():  # dead, and not closed: see `_ready`
                return False
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return False
        self.task = None
        if isinstance(answer, FedxrayError):
            raise answer
        return True

    def sample_memory(self) -> None:
        """Note how much memory the process has held, while it is alive."""
        if self.process.pid is not None:
            self.peak = max(self.peak, peak_memory(self.process.pid))

    def exit_reason(self) -> str:
        """Return how the process ended, and the most memory that it was seen to hold."""
        self.process.join(EXIT_TIMEOUT)
        code = self.process.exitcode
        held = f" (it held up to {self.peak / 1e6:,.0f} MB of memory)" if self.peak else ""
        if code is not None and code < 0:
            return f"its process was killed by {signal_name(-code)}{held}"
        return f"its process ended with code {code}{held}"

    def stop(self) -> None:
        """Stop the process, by force if need be."""
        self.process.terminate()
        self.process.join(EXIT_TIMEOUT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()
        self.process.close()


@dataclass
class Processes(Pool):
    """At most `jobs` workers, started when there are tasks for them; with `forking` from a server, else spawned."""

    jobs: int
    workers: list[Worker] = field(default_factory=list)
    forking: bool = field(default_factory=lambda: FORKS)
    server: forks.Server | None = None

    def stop_workers(self) -> None:
        """Stop all workers and the server that they were forked from."""
        while self.workers:
            self.workers.pop().stop()
        self._stop_server()

    def _stop_server(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def planned_workers(self) -> int | None:
        """Return how many tasks run at a time."""
        return self.jobs

    def worker_count(self) -> int:
        """Return the largest number of workers at a time."""
        return self.jobs

    def run_waiting(
        self,
        waiting: deque[Task],
        on_done: Callable[[Task], None],
        *,
        jobs: int,
        deadline: Deadline = no_deadline,
        shared: Shared = (),
        on_start: Callable[[Task], None] = no_report,
    ) -> list[TaskFailure]:
        """Let at most `jobs` workers run until no task waits; returns the tasks whose worker died."""
        failures: list[TaskFailure] = []
        while waiting or self._busy():
            if deadline():
                begun = [worker.task for worker in self._busy() if worker.task is not None]
                self.stop_workers()
                return failures + cut_off([*begun, *waiting])
            self._assign(waiting, jobs, shared, on_start)
            for worker in _ready(self._busy()):
                task = worker.task
                assert task is not None
                if worker.finished():
                    on_done(task)
                else:
                    failures.append(TaskFailure(task=task, reason=worker.exit_reason()))
                    self.workers.remove(worker)
                    worker.stop()
        return failures

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.task is not None]

    def _assign(self, waiting: deque[Task], jobs: int, shared: Shared, on_start: Callable[[Task], None]) -> None:
        """Give every idle worker a task, and start workers while there are fewer than `jobs`."""
        while waiting:
            idle = next((worker for worker in self.workers if worker.task is None), None)
            if idle is None:
                if len(self.workers) >= jobs:
                    return
                idle = self._fork_worker(waiting[0].function) if self.forking else start_worker(serve_tasks)
                self.workers.append(idle)
            on_start(waiting[0])
            idle.give(waiting.popleft(), shared)

    def _fork_worker(self, function: str) -> Worker:
        """Fork a worker from a server, which is started where none is alive; it ignores Ctrl-C."""
        with environment(dict.fromkeys(ONE_THREAD, "1")), _ignoring_interrupts():
            introduction = forks.introduction()
            if self.server is None or not self.server.is_alive():
                self._stop_server()
                self.server = forks.Server(function)
        here, there = SPAWN.Pipe()
        with there:
            worker = Worker(process=self.server.fork(there), pipe=here)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # dead already, as in `Worker.give`
            here.send(introduction)
        return worker


def start_worker(serve: Callable[..., None], *arguments: Any) -> Worker:
    """Start a worker, which calls `serve` with its pipe and the arguments, and ignores Ctrl-C.

    The environment gives every library in it one thread.
    """
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=serve, args=(there, *arguments), daemon=True)
    with environment(dict.fromkeys(ONE_THREAD, "1")), _ignoring_interrupts():
        process.start()
    there.close()
    return Worker(process=process, pipe=here)


def serve_tasks(pipe: Connection) -> None:
    """Run tasks from the pipe until it is closed, and answer each with None or its error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # started in a thread it has not inherited that
    threading.Thread(target=follow_parent, daemon=True).start()
    shared: Shared = ()
    while True:
        try:
            task, changed = pipe.recv()
        except (EOFError, ConnectionResetError):  # the parent has closed it or died
            return
        shared = shared if changed is None else changed
        answer: FedxrayError | None = None
        try:
            if not gc.get_freeze_count():
                with importing():
                    load(task.function)
            run_task(task, shared)
        except FedxrayError as error:
            answer = error
        try:
            pipe.send(answer)
        except BrokenPipeError:  # the parent has died
            return


def follow_parent() -> None:
    """Exit at once when the parent has died."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _ready(workers: list[Worker]) -> list[Worker]:
    """Wait until a worker answers or dies, or the poll interval has passed; return those that did."""
    signs: list[Connection | int] = [worker.pipe for worker in workers]
    signs += [worker.process.sentinel for worker in workers]
    ready = wait(signs, POLL_INTERVAL)
    for worker in workers:
        worker.sample_memory()
    # A process that a dead worker has started may hold its ends of the pipe and of a spawned one's sentinel.
    return [worker for worker in workers if worker.pipe in ready or not worker.process.is_alive()]


def signal_name(number: int) -> str:
    """Return the name of a signal; most real-time signals have none."""
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def peak_memory(pid: int) -> int:
    """Return the most bytes that a living process has held so far; 0 where the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0


@contextlib.contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """Set variables that a new process inherits; restore them afterwards."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let a process started here ignore Ctrl-C; its parent stops it instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
