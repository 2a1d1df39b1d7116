"""Where tasks are worked on: here, in spawned workers, or on a Ray cluster; what comes out is the same."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from fedxray.errors import BadInput, unknown_name
from fedxray.naming import load

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
        from fedxray.audit.ray_cluster import check
        from fedxray.audit.ray_engine import RayCluster

        check(address)
        return RayCluster(jobs=jobs, address=address)
    if name == "inline":
        if jobs not in (None, 1):
            raise BadInput(
                "--jobs", expected="1 with --engine inline", got=jobs, remedy="Use --engine processes."
            )
        return Inline()
    from fedxray.audit.workers import Processes

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
