"""How a Ray cluster of this computer alone is started, and how somebody else's is found."""

from __future__ import annotations

import importlib.util
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from fedxray.errors import BadInput, FedxrayError, missing_extra

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
