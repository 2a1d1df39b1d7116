"""The Ray engine: on every free core of a cluster a host, which keeps one worker process and gives it tasks.

Tasks read and write the audit's folder, which every node must see. The worker is a process of its own, so that its
exit is reported with signal and memory, as on a single computer.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from fedxray.audit.workers import engines
from fedxray.errors import BadInput, FedxrayError, missing_extra

# Starting a cluster of this computer alone, and connecting to an existing one

OBJECT_STORE = 80 * 2**20  # bytes, near the least that Ray takes: only tasks and the plan are sent
CONNECT_TIMEOUT = 10.0  # seconds in which a cluster must answer
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default; without it Ray warns
}
LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system, in spite of its name: listen to this computer only
    "RAY_memory_monitor_refresh_ms": "0",  # where memory runs out, the worker dies, not its host
}


def check(address: str | None) -> None:
    """Refuse where Ray is not installed, or where this is no address of a cluster."""
    if address is not None and (address == "local" or "://" in address):
        raise _no_cluster(address)
    if importlib.util.find_spec("ray") is None:
        raise missing_extra("--engine", "Ray", "ray", "use --engine processes")


def start_cluster(cpus: int, folder: str) -> None:
    """Start a cluster of this computer alone: no dashboard, no statistics, nothing beyond the loopback."""
    import ray
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False  # as LOCAL says
    try:
        ray.init(
            num_cpus=cpus,
            num_gpus=0,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            object_store_memory=OBJECT_STORE,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(Path(folder, "ray")),  # Ray opens it to everybody, the folder around it stays ours
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
    if not ip_address(ray.util.get_node_ip_address()).is_loopback:
        ray.shutdown()
        raise FedxrayError("this version of Ray listens to other computers; use --engine processes.")


def find_cluster(address: str) -> None:
    """Connect to an existing cluster."""
    import ray

    try:
        if address != "auto":  # Ray itself tries for a minute and more
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as problem:
        raise _no_cluster(f"{address}: {last_line(problem)}") from problem


def _no_cluster(got: str) -> BadInput:
    remedy = "Start one with `ray start --head`, and use the address that it prints."
    return BadInput("--address", expected="HOST:PORT of a Ray cluster, or auto", got=got, remedy=remedy)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings about files and processes that Ray leaves to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def last_line(problem: Exception) -> str:
    """Return the last line of a message, in which Ray states what happened."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(problem).__name__


MOST_LOSSES = 3  # hosts that a task may lose, and hosts in a row that may fail to start
MUST_AGREE = ("fedxray", "torch", "numpy")  # other versions give other digits
PREFIX = "FEDXRAY_"  # of environment variables that are sent along with the tasks


@dataclass
class Host:
    """The actor that Ray starts on a node: it has one worker process, and lives as long as the engine."""

    paths: Sequence[str]
    variables: Mapping[str, str]
    worker: engines.Processes = field(default_factory=lambda: engines.Processes(1, forking=False))
    shared: engines.Shared = ()

    def __post_init__(self) -> None:
        """Take over the module paths and settings of the driver."""
        sys.path += [path for path in self.paths if path not in sys.path]
        os.environ.update(self.variables)

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries on this node."""
        return own_versions()

    def work(self, task: engines.Task, changed: engines.Shared | None) -> FedxrayError | str | None:
        """Run a task; returns its error, or how its worker died; `changed` are new shared arguments."""
        self.shared = self.shared if changed is None else changed
        try:
            failures = self.worker.run_waiting(deque([task]), lambda task: None, jobs=1, shared=self.shared)
        except FedxrayError as error:
            return error
        return failures[0].reason if failures else None


def own_versions() -> dict[str, str]:
    """Return the versions that must be the same on every node."""
    return {name: version(name) for name in MUST_AGREE}


@dataclass
class RemoteHost:
    """A host as the driver sees it, and the shared arguments that it holds."""

    actor: Any
    shared: engines.Shared = ()

    def give(self, task: engines.Task, shared: engines.Shared) -> Any:
        """Send a task, and the shared arguments where the host holds others; returns Ray's future answer."""
        changed = None if shared is self.shared else shared
        self.shared = shared
        return self.actor.work.remote(task, changed)


@dataclass
class RayCluster(engines.Pool):
    """Hosts on an existing cluster, or on one of this computer alone, which starts with the first task."""

    jobs: int | None = None
    address: str | None = None
    connected: bool = False  # whether this object made the connection, and ends it
    folder: str | None = None  # the temporary folder of a cluster of this computer
    starting: dict[Any, RemoteHost] = field(default_factory=dict)  # first answer -> host
    idle: list[RemoteHost] = field(default_factory=list)
    busy: dict[Any, tuple[RemoteHost, engines.Task]] = field(default_factory=dict)  # answer -> host, task
    losses: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        """Connect to an existing cluster now, so that a wrong address is refused before anything is written."""
        if self.address is not None:
            self._connect()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop all hosts, and the cluster where this object started it."""
        if "ray" not in sys.modules:  # there was nothing to do
            return
        import ray

        with without_warnings():
            self.stop_workers()
            if self.connected:
                ray.shutdown()
                self.connected = False
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def run(
        self,
        tasks: Sequence[engines.Task],
        progress: engines.Progress,
        deadline: engines.Deadline = engines.no_deadline,
        shared: engines.Shared = (),
    ) -> list[engines.TaskFailure]:
        """Run all tasks on the cluster, which is connected to where there are any."""
        if not tasks:
            return []
        self._connect()
        return super().run(tasks, progress, deadline, shared)

    def _connect(self) -> None:
        with engines.environment(QUIET if self.address is not None else QUIET | LOCAL), without_warnings():
            import ray

            if ray.is_initialized():  # by this object before, or by the caller
                return
            self.connected = True  # before it begins: an interrupted start must be ended, too
            if self.address is not None:
                find_cluster(self.address)
            else:
                self.folder = tempfile.mkdtemp(prefix="fedxray-")  # a short path: it holds sockets
                start_cluster(self.jobs or engines.cores(), self.folder)

    def planned_workers(self) -> int | None:
        """Return how many tasks run at a time, as asked; the size of a cluster is not known before the first."""
        return self.jobs

    def worker_count(self) -> int:
        """Return the number of hosts at a time: as asked, or one for each core of the cluster."""
        import ray

        return self.jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run_waiting(
        self,
        waiting: deque[engines.Task],
        on_done: Callable[[engines.Task], None],
        *,
        jobs: int,
        deadline: engines.Deadline = engines.no_deadline,
        shared: engines.Shared = (),
        on_start: Callable[[engines.Task], None] = engines.no_report,
    ) -> list[engines.TaskFailure]:
        """Let at most `jobs` hosts run until no task waits; returns the tasks whose worker died."""
        import ray

        failures: list[engines.TaskFailure] = []
        while waiting or self.busy:
            if deadline():
                begun = [task for _, task in self.busy.values()]
                self.stop_workers()
                return failures + engines.cut_off([*begun, *waiting])
            while waiting and self.idle:
                host, task = self.idle.pop(), waiting.popleft()
                on_start(task)
                self.busy[host.give(task, shared)] = host, task
            present = len(self.starting) + len(self.idle) + len(self.busy)
            for _ in range(min(jobs - present, len(waiting) - len(self.starting))):
                self._start_host()
            for answer in ray.wait([*self.starting, *self.busy], num_returns=1, timeout=engines.POLL_INTERVAL)[0]:
                if answer in self.starting:
                    self._accept_host(answer)
                else:
                    self._collect(answer, waiting, failures, on_done)
        return failures

    def _start_host(self) -> None:
        """Ask for a host; Ray starts it when a core is free."""
        import ray

        variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
        kind: Any = ray.remote(num_cpus=1, max_restarts=0)(Host)
        actor = kind.remote(paths=list(sys.path), variables=variables)
        self.starting[actor.versions.remote()] = RemoteHost(actor)

    def _accept_host(self, answer: Any) -> None:
        """Let a host that has started run tasks, where it computes with the same versions."""
        import ray
        from ray.exceptions import RayError

        host = self.starting.pop(answer)
        try:
            versions = ray.get(answer)
        except RayError as problem:
            self.losses["starting"] += 1
            if self.losses["starting"] >= MOST_LOSSES:
                raise FedxrayError(
                    f"no worker can be started on the Ray cluster: {last_line(problem)}. "
                    "fedxray and what it needs must be installed on every node."
                ) from problem
            return
        if versions != own_versions():
            expected = _spelt(own_versions())
            raise BadInput("--address", expected=expected, got=_spelt(versions), remedy="Install the same.")
        self.losses["starting"] = 0
        self.idle.append(host)

    def _collect(
        self,
        answer: Any,
        waiting: deque[engines.Task],
        failures: list[engines.TaskFailure],
        on_done: Callable[[engines.Task], None],
    ) -> None:
        """Handle the answer to a task; a task whose host was lost waits again."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        host, task = self.busy.pop(answer)
        try:
            ended = ray.get(answer)
        except RayTaskError:  # an error of fedxray itself
            raise
        except RayError as problem:  # the host or its node is gone
            self.losses[task.label] += 1
            if self.losses[task.label] < MOST_LOSSES:
                waiting.appendleft(task)
            else:
                reason = f"its worker was lost {MOST_LOSSES} times ({last_line(problem)})"
                failures.append(engines.TaskFailure(task=task, reason=reason))
            return
        self.idle.append(host)
        if isinstance(ended, FedxrayError):
            raise ended
        if ended is None:
            on_done(task)
        else:
            failures.append(engines.TaskFailure(task=task, reason=ended))

    def stop_workers(self) -> None:
        """Stop all hosts; their worker processes follow them."""
        import ray

        for host in [*self.starting.values(), *self.idle, *(host for host, _ in self.busy.values())]:
            ray.kill(host.actor)
        self.starting.clear()
        self.idle.clear()
        self.busy.clear()


def _spelt(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())
