"""Where tasks are worked on: here, in spawned workers, or on a Ray cluster; what comes out is the same."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from fedxray.errors import BadInput, FedxrayError, unknown_name
from fedxray.lookup import load

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Progress = Callable[[int, int, str], None]  # done, total, label of the task that ended
Over = Callable[[], bool]  # whether the time is over
TIME_IS_OVER = "the time of --budget was over"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ENGINES = ("inline", "processes", "ray")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A piece of work in plain values: a function by name and its argument; its result goes to the store."""

    label: str
    function: str  # "module:function"
    argument: Mapping[str, Any]

    def work(self) -> None:
        """Do it here, with one thread."""
        load(self.function)(self.argument)


@dataclass(frozen=True, kw_only=True)
class Death:
    """A task whose worker died, and how (of a whole run: twice, the second time alone), or that was cut off."""

    task: Task
    reason: str
    cut: bool = False  # whether the time was over


def never() -> bool:
    """There is time."""
    return False


def cut_off(tasks: Iterable[Task]) -> list[Death]:
    """Tasks for which there was no time."""
    return [Death(task=task, reason=TIME_IS_OVER, cut=True) for task in tasks]


class Engine(Protocol):
    """Works on tasks; used in a with-block, which ends its workers."""

    def __enter__(self) -> Self:
        """Start."""

    def __exit__(self, *error: object) -> None:
        """End all workers."""

    def run(self, tasks: Sequence[Task], progress: Progress, over: Over = never) -> list[Death]:
        """Work on all tasks until every one has ended or the time is over; an exception of a task is raised here."""


def make_engine(name: str, jobs: int | None, address: str | None = None) -> Engine:
    """The engine of that name; `jobs` workers, one per core unless told; `address` is that of a Ray cluster."""
    if name not in ENGINES:
        raise unknown_name("--engine", name, ENGINES)
    if address is not None and name != "ray":
        raise BadInput("--address", expected="none", got=address, remedy="It needs --engine ray.")
    if name == "ray":
        from fedxray.audit.run.ray import RayCluster, check

        check(address)
        return RayCluster(jobs=jobs, address=address)
    if name == "inline":
        if jobs not in (None, 1):
            raise BadInput(
                "--jobs", expected="1 with --engine inline", got=jobs, remedy="Use --engine processes."
            )
        return Inline()

    return Processes(jobs or cores())


def hands_of(engine: str, jobs: int | None) -> int:
    """How many tasks are worked on at a time, as far as can be told beforehand."""
    return 1 if engine == "inline" else jobs or cores()


def cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only: cores that a container leaves us
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Inline:
    """One task after the other in this process."""

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def run(self, tasks: Sequence[Task], progress: Progress, over: Over = never) -> list[Death]:
        """Work on all tasks here; one that has begun is not cut off."""
        with one_thread():
            for done, task in enumerate(tasks):
                if over():
                    return cut_off(tasks[done:])
                task.work()
                progress(done + 1, len(tasks), task.label)
        return []


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that sums have one order everywhere; put back afterwards."""
    import scipy.linalg  # noqa: F401  (its library must be loaded to be told)
    import sklearn.utils  # noqa: F401
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


def try_twice(
    tasks: Sequence[Task],
    progress: Progress,
    *,
    attempt: Callable[[deque[Task], Callable[[Task], None]], list[Death]],
    attempt_alone: Callable[[deque[Task], Callable[[Task], None]], list[Death]],
) -> list[Death]:
    """Work on all tasks; those whose worker died are repeated at the end, each alone; returns what died again."""
    ended: list[Task] = []

    def note(task: Task) -> None:
        ended.append(task)
        progress(len(ended), len(tasks), task.label)

    deaths: list[Death] = []
    for first in attempt(deque(tasks), note):
        for second in [first] if first.cut else attempt_alone(deque([first.task]), note):
            again = "" if second.cut else ", also when tried again alone"
            deaths.append(replace(second, reason=f"{second.reason}{again}"))
            if not second.cut:
                note(second.task)
    return deaths


# --- Spawned workers, one task each at a time; a task whose worker dies is tried again alone, once.


SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 5.0  # seconds that a worker gets to end by itself
GLANCE = 0.2  # seconds between two looks at the memory of those who work


@dataclass
class Worker:
    """One process and the pipe to it; `task` is what it works on, `peak` the most bytes it was seen to hold."""

    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    peak: int = 0

    def give(self, task: Task) -> None:
        """Hand over a task; a worker that is dead already is noticed when it is waited for."""
        self.task = task
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(task)

    def finished(self) -> bool:
        """Whether the task is done; its error is raised here; False where the process died on it."""
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return False
        self.task = None
        if isinstance(answer, FedxrayError):
            raise answer
        return True

    def look(self) -> None:
        """Note how much memory it has taken, while there is somebody to ask."""
        if self.process.pid is not None:
            self.peak = max(self.peak, peak_memory(self.process.pid))

    def obituary(self) -> str:
        """How the process ended, and the most memory that it was seen to hold."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        held = f" (it held up to {self.peak / 1e6:,.0f} MB of memory)" if self.peak else ""
        if code is not None and code < 0:
            return f"its process was killed by {_signal_name(-code)}{held}"
        return f"its process ended with code {code}{held}"

    def end(self) -> None:
        """Stop the process, by force if need be."""
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()
        self.process.close()


@dataclass
class Processes:
    """At most `jobs` workers, started when there is work for them."""

    jobs: int
    workers: list[Worker] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Workers start later, when it is known how many are needed."""
        return self

    def __exit__(self, *error: object) -> None:
        """End all workers."""
        while self.workers:
            self.workers.pop().end()

    def run(self, tasks: Sequence[Task], progress: Progress, over: Over = never) -> list[Death]:
        """Work on all tasks; those whose worker died are repeated at the end, each alone."""
        return try_twice(
            tasks,
            progress,
            attempt=partial(self.work_off, jobs=self.jobs, over=over),
            attempt_alone=partial(self._work_off_alone, over=over),
        )

    def work_off(
        self, waiting: deque[Task], note: Callable[[Task], None], *, jobs: int, over: Over = never
    ) -> list[Death]:
        """Let at most `jobs` workers work until nothing waits; returns the tasks whose worker died."""
        deaths: list[Death] = []
        while waiting or self._busy():
            if over():
                begun = [worker.task for worker in self._busy() if worker.task is not None]
                self.__exit__()
                return deaths + cut_off([*begun, *waiting])
            self._hand_out(waiting, jobs)
            for worker in _ready(self._busy()):
                task = worker.task
                assert task is not None
                if worker.finished():
                    note(task)
                else:
                    deaths.append(Death(task=task, reason=worker.obituary()))
                    self.workers.remove(worker)
                    worker.end()
        return deaths

    def _work_off_alone(
        self, waiting: deque[Task], note: Callable[[Task], None], *, over: Over
    ) -> list[Death]:
        self.__exit__()  # nobody else takes memory while it is tried again
        return self.work_off(waiting, note, jobs=1, over=over)

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.task is not None]

    def _hand_out(self, waiting: deque[Task], jobs: int) -> None:
        """Give every idle worker a task, and start workers while there are too few."""
        while waiting:
            idle = next((worker for worker in self.workers if worker.task is None), None)
            if idle is None:
                if len(self.workers) >= jobs:
                    return
                idle = start_worker()
                self.workers.append(idle)
            idle.give(waiting.popleft())


def start_worker() -> Worker:
    """A new worker to which Ctrl-C says nothing; the variables give every library in it one thread."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(there,), daemon=True)
    with environment(dict.fromkeys(ONE_THREAD, "1")), _deaf_to_interrupts():
        process.start()
    there.close()
    return Worker(process=process, pipe=here)


def _serve(pipe: Connection) -> None:
    """A worker's life: take a task, do it, say that it is done."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:  # nobody has work any more
            return
        try:
            task.work()
            pipe.send(None)
        except FedxrayError as error:
            pipe.send(error)


def _follow_parent() -> None:
    """Leave at once when the parent has died, so that nobody computes for nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _ready(workers: list[Worker]) -> list[Worker]:
    """Wait until a worker answers or dies, or a moment has passed."""
    signs: list[Connection | int] = [worker.pipe for worker in workers]
    signs += [worker.process.sentinel for worker in workers]
    found = wait(signs, GLANCE)
    for worker in workers:
        worker.look()
    return [worker for worker in workers if worker.pipe in found or worker.process.sentinel in found]


def _signal_name(number: int) -> str:
    """What a signal is called; most real-time signals have no name."""
    return next((one.name for one in signal.Signals if one == number), f"signal {number}")


def peak_memory(pid: int) -> int:
    """The most bytes that a living process has held so far; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    told = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(told[0]) * 1024 if told else 0


@contextlib.contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """Variables that a new process inherits; put back afterwards."""
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
def _deaf_to_interrupts() -> Iterator[None]:
    """A process started here inherits that it ignores Ctrl-C; its parent ends it instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
