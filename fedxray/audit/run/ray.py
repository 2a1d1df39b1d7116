"""Workers on a Ray cluster: on every free core a host, which keeps one worker process of ours and hands it tasks.

Tasks are plain values, and what they read and write is in the audit's folder, which every node must see. The worker is
a process of its own, so that its death is told with signal and memory, as on a single computer.
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
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from fedxray.audit.run.engines import (
    GLANCE,
    Death,
    Over,
    Processes,
    Progress,
    Task,
    cores,
    cut_off,
    environment,
    never,
    try_twice,
)
from fedxray.errors import BadInput, FedxrayError, missing_extra

# --- How a Ray cluster of this computer alone is started, and how somebody else's is found.


OBJECT_STORE = 80 * 2**20  # bytes, near the least that Ray takes: only names travel
PATIENCE = 10.0  # seconds in which a cluster must answer
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do anyway; without it, it warns
}
LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system, in spite of its name: listen to this computer only
    "RAY_memory_monitor_refresh_ms": "0",  # where memory runs out, the worker dies and tells, not its host
}


def check(address: str | None) -> None:
    """Refuse where Ray is not installed, or where this is no address of a cluster."""
    if address is not None and (address == "local" or "://" in address):
        raise _no_cluster(address)
    if importlib.util.find_spec("ray") is None:
        raise missing_extra("--engine", "Ray", "ray", "use --engine processes")


def start_cluster(cpus: int, place: str) -> None:
    """A cluster of this computer alone: no dashboard, no statistics, nothing beyond the loopback."""
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
            _temp_dir=str(Path(place, "ray")),  # Ray opens it to everybody, the folder around it stays ours
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
    if not ip_address(ray.util.get_node_ip_address()).is_loopback:
        ray.shutdown()
        raise FedxrayError("this version of Ray listens to other computers; use --engine processes.")


def find_cluster(address: str) -> None:
    """Connect to a cluster that somebody else started."""
    import ray

    try:
        if address != "auto":  # Ray itself tries for a minute and more
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), PATIENCE).close()
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as problem:
        raise _no_cluster(f"{address}: {last_line(problem)}") from problem


def _no_cluster(got: str) -> BadInput:
    return BadInput(
        "--address",
        expected="HOST:PORT of a Ray cluster, or auto",
        got=got,
        remedy="Start one with `ray start --head`, and use the address that it prints.",
    )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ray leaves files and processes for the garbage collector, of which nobody here can say anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def last_line(problem: Exception) -> str:
    """The last line of a message, in which Ray says what happened."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(problem).__name__


LOSSES = 3  # hosts that a task may lose, and hosts in a row that may fail to start
MUST_AGREE = ("fedxray", "torch", "numpy")  # other versions give other digits
OURS = "FEDXRAY_"  # variables that go with the tasks


@dataclass
class Host:
    """What Ray starts on a node: it has one worker process, and lives as long as the audit."""

    paths: Sequence[str]
    variables: Mapping[str, str]
    hand: Processes = field(default_factory=lambda: Processes(1))

    def __post_init__(self) -> None:
        """See the same modules and settings as the one who asks."""
        sys.path += [path for path in self.paths if path not in sys.path]
        os.environ.update(self.variables)

    def versions(self) -> dict[str, str]:
        """What computes here."""
        return own_versions()

    def work(self, task: Task) -> FedxrayError | str | None:
        """Do a task; returns what a user can mend, or how the worker died on it."""
        try:
            deaths = self.hand.work_off(deque([task]), _nobody_asks, jobs=1)
        except FedxrayError as error:
            return error
        return deaths[0].reason if deaths else None


def _nobody_asks(task: Task) -> None:
    """Progress is told by the one who handed out the task."""


def own_versions() -> dict[str, str]:
    """The versions that must be the same on every node."""
    return {name: version(name) for name in MUST_AGREE}


@dataclass
class RayCluster:
    """Hosts on an existing cluster, or on one of this computer alone, which starts with the first task."""

    jobs: int | None = None
    address: str | None = None
    ours: bool = False  # whether the connection is ours to end
    place: str | None = None  # the temporary folder of our own cluster
    coming: dict[Any, Any] = field(default_factory=dict)  # first answer -> host
    idle: list[Any] = field(default_factory=list)
    busy: dict[Any, tuple[Any, Task]] = field(default_factory=dict)  # answer -> host, task
    losses: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        """Find an existing cluster now, so that a wrong address is told before anything is written."""
        if self.address is not None:
            self._connect()
        return self

    def __exit__(self, *error: object) -> None:
        """End all hosts, and the cluster where it is ours."""
        if "ray" not in sys.modules:  # there was nothing to do
            return
        import ray

        with without_warnings():
            self._dismiss()
            if self.ours:
                ray.shutdown()
                self.ours = False
        if self.place is not None:
            shutil.rmtree(self.place, ignore_errors=True)
            self.place = None

    def run(self, tasks: Sequence[Task], progress: Progress, over: Over = never) -> list[Death]:
        """Work on all tasks; those whose worker died are repeated at the end, each alone."""
        if not tasks:
            return []
        self._connect()
        attempt = partial(self._work_off, jobs=self._hands(), over=over)
        alone = partial(self._work_off_alone, over=over)
        return try_twice(tasks, progress, attempt=attempt, attempt_alone=alone)

    def _connect(self) -> None:
        with environment(QUIET if self.address is not None else QUIET | LOCAL), without_warnings():
            import ray

            if ray.is_initialized():  # by us before, or by whoever calls us
                return
            self.ours = True  # before it begins: an interrupted start must be ended, too
            if self.address is not None:
                find_cluster(self.address)
            else:
                self.place = tempfile.mkdtemp(prefix="fedxray-")  # a short path: it holds sockets
                start_cluster(self.jobs or cores(), self.place)

    def _hands(self) -> int:
        import ray

        return self.jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def _work_off(
        self, waiting: deque[Task], note: Callable[[Task], None], *, jobs: int, over: Over
    ) -> list[Death]:
        """Let at most `jobs` hosts work until nothing waits; returns the tasks whose worker died."""
        import ray

        deaths: list[Death] = []
        while waiting or self.busy:
            if over():
                begun = [task for _, task in self.busy.values()]
                self._dismiss()
                return deaths + cut_off([*begun, *waiting])
            while waiting and self.idle:
                host, task = self.idle.pop(), waiting.popleft()
                self.busy[host.work.remote(task)] = host, task
            here = len(self.coming) + len(self.idle) + len(self.busy)
            for _ in range(min(jobs - here, len(waiting) - len(self.coming))):
                self._invite()
            for answer in ray.wait([*self.coming, *self.busy], num_returns=1, timeout=GLANCE)[0]:
                if answer in self.coming:
                    self._greet(answer)
                else:
                    self._hear(answer, waiting, deaths, note)
        return deaths

    def _work_off_alone(
        self, waiting: deque[Task], note: Callable[[Task], None], *, over: Over
    ) -> list[Death]:
        self._dismiss()  # nobody else takes memory while it is tried again
        return self._work_off(waiting, note, jobs=1, over=over)

    def _invite(self) -> None:
        """Ask for a host; Ray starts it when a core is free."""
        import ray

        variables = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
        kind: Any = ray.remote(num_cpus=1, max_restarts=0)(Host)
        host = kind.remote(paths=list(sys.path), variables=variables)
        self.coming[host.versions.remote()] = host

    def _greet(self, answer: Any) -> None:
        """A host that has started may work, where it computes with the same versions."""
        import ray
        from ray.exceptions import RayError

        host = self.coming.pop(answer)
        try:
            found = ray.get(answer)
        except RayError as problem:
            self.losses["starting"] += 1
            if self.losses["starting"] >= LOSSES:
                raise FedxrayError(
                    f"no worker can be started on the Ray cluster: {last_line(problem)}. "
                    "fedxray and what it needs must be installed on every node."
                ) from problem
            return
        if found != own_versions():
            raise BadInput(
                "--address", expected=_spelt(own_versions()), got=_spelt(found), remedy="Install the same."
            )
        self.losses["starting"] = 0
        self.idle.append(host)

    def _hear(
        self, answer: Any, waiting: deque[Task], deaths: list[Death], note: Callable[[Task], None]
    ) -> None:
        """Take the answer to a task; a task whose host was lost waits again."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        host, task = self.busy.pop(answer)
        try:
            found = ray.get(answer)
        except RayTaskError:  # a mistake of ours
            raise
        except RayError as problem:  # host or node are gone
            self.losses[task.label] += 1
            if self.losses[task.label] < LOSSES:
                waiting.appendleft(task)
            else:
                reason = f"its worker was lost {LOSSES} times ({last_line(problem)})"
                deaths.append(Death(task=task, reason=reason))
            return
        self.idle.append(host)
        if isinstance(found, FedxrayError):
            raise found
        if found is None:
            note(task)
        else:
            deaths.append(Death(task=task, reason=found))

    def _dismiss(self) -> None:
        """End all hosts; their worker processes follow them."""
        import ray

        for host in [*self.coming.values(), *self.idle, *(host for host, _ in self.busy.values())]:
            ray.kill(host)
        self.coming.clear()
        self.idle.clear()
        self.busy.clear()


def _spelt(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {found}" for name, found in versions.items())
