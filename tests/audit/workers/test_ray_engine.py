"""One local cluster for all tests here; it takes a few seconds to start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.execute import execute_run
from fedxray.audit.run.grid import expand
from fedxray.audit.run.store import Store
from fedxray.audit.workers.ray import LOCAL, Host, RayCluster, find_cluster
from fedxray.errors import BadInput
from tests.audit.plans import tiny, write_toml
from tests.audit.stored import stored_evidence
from tests.audit.workers.test_engines import (
    HERE,
    ProgressLog,
    has_gone,
    of_session,
    plan_for_both,
    task,
    timeless,
    wait_for,
    without_memory,
)

LISTENING = "0A"  # the state of a socket in /proc/net/tcp
LOOPBACK = re.compile(r"(0100007F|0000000000000000FFFF00000100007F|0{24}01000000):")


@pytest.fixture(scope="module")
def cluster(extra: Callable[[str], ModuleType]) -> Iterator[RayCluster]:
    extra("ray")
    with RayCluster(jobs=2) as engine:
        yield engine
        folder = Path(engine.folder or "none")
        assert folder.is_dir() and folder.stat().st_mode & 0o77 == 0
    assert not folder.exists()


def test_hosts_do_every_task_once_with_one_thread(tmp_path: Path, cluster: RayCluster) -> None:
    log = ProgressLog()
    tasks = [task(tmp_path, "note", name) for name in "abcde"] + [task(tmp_path, "count_threads", "f")]
    assert cluster.run(tasks, log) == []
    assert [(done, total) for done, total, _ in log.calls] == [(count, 6) for count in range(1, 7)]
    assert sorted(label for _, _, label in log.calls) == list("abcdef")
    assert len({(tmp_path / f"{name}.txt").read_text() for name in "abcde"}) <= 2
    assert (tmp_path / "f.txt").read_text() == "[1]"
    assert cluster.run([], log) == []


def test_the_worker_of_a_host_is_spawned() -> None:
    assert not Host(paths=[], variables={}).worker.forking


def test_a_dead_worker_s_and_a_lost_host_s_tasks_are_tried_again(tmp_path: Path, cluster: RayCluster) -> None:
    log = ProgressLog()
    tasks = [
        task(tmp_path, "lose_the_host", "a", times=2),
        task(tmp_path, "die", "b", times=1),
        task(tmp_path, "note", "c"),
    ]
    assert cluster.run(tasks, log) == []
    assert (tmp_path / "a.tries").read_text() == "3" and (tmp_path / "b.tries").read_text() == "2"
    assert all((tmp_path / f"{name}.txt").exists() for name in "abc") and len(log.calls) == 3


def test_a_poisoned_task_is_given_up_in_the_same_words_and_stops_no_other(tmp_path: Path, cluster: RayCluster) -> None:
    log = ProgressLog()
    tasks = [task(tmp_path, "swell", "a", megabytes=200), task(tmp_path, "note", "b")]
    (failure,) = cluster.run(tasks, log)
    assert failure.task.label == "a" and (tmp_path / "b.txt").exists() and len(log.calls) == 2
    assert without_memory(failure.reason) == "its process was killed by SIGKILL, also when tried again alone"
    if Path("/proc/self/status").exists():
        assert re.search(r"held up to [234]\d\d MB", failure.reason)


def test_what_a_user_can_fix_stops_the_work(tmp_path: Path, cluster: RayCluster) -> None:
    with pytest.raises(BadInput, match=r"x: expected y, got z\. Fix it\."):
        cluster.run([task(tmp_path, "refuse", "a")], ProgressLog())


def test_nothing_continues_after_the_deadline(tmp_path: Path, cluster: RayCluster) -> None:
    begun = tmp_path / "a.began"
    tasks = [task(tmp_path, "sleep", "a"), task(tmp_path, "sleep", "b"), task(tmp_path, "note", "c")]
    failures = cluster.run(tasks, ProgressLog(), begun.exists)
    assert sorted(one.task.label for one in failures) == list("abc") and all(one.cut_off for one in failures)
    assert has_gone(int(wait_for(begun)))


def test_a_local_cluster_listens_to_this_computer_only(tmp_path: Path, cluster: RayCluster) -> None:
    ray = pytest.importorskip("ray")
    cluster.run([task(tmp_path, "note", "a")], ProgressLog())
    port = int(ray.get_runtime_context().gcs_address.rpartition(":")[2])
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    rows = [
        line.split()
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
        if line.split()[3] == LISTENING and line.split()[1].endswith(f":{port:04X}")
    ]
    assert all(LOOPBACK.match(row[1]) for row in rows)
    assert rows or not tables[0].exists()


def test_a_host_killed_in_the_middle_loses_nothing(tmp_path: Path, cluster: RayCluster) -> None:
    ray = pytest.importorskip("ray")
    killed: list[str] = []

    def kill_one(done: int, total: int, label: str) -> None:
        if done == 3 and not killed:
            killed.append(label)
            ray.kill(next(iter(cluster.busy.values()))[0].actor)

    inline = run_audit(plan_for_both(), tmp_path / "inline", engine="inline")
    spread = run_audit(plan_for_both(), tmp_path / "ray", engine=cluster, progress=kill_one)
    assert killed and timeless(inline.document) == timeless(spread.document)
    assert stored_evidence(inline.folder) == stored_evidence(spread.folder)


@pytest.mark.slow
def test_an_existing_cluster_is_used_and_left_running(tmp_path: Path, cluster: RayCluster) -> None:
    ray = pytest.importorskip("ray")
    cluster.run([task(tmp_path, "note", "before")], ProgressLog())
    cluster.stop_workers()
    write_toml(tmp_path / "plan.toml", tiny())
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "fedxray", "audit", "plan.toml", "--engine", "ray", "--address", address]
    on_loopback = os.environ | LOCAL  # or Ray would look for this cluster on the network
    ended = subprocess.run(
        [*command, "--out", "out"], cwd=tmp_path, env=on_loopback, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / "results.json").is_file()
    assert cluster.run([task(tmp_path, "note", "after")], ProgressLog()) == []


def test_a_folder_that_a_worker_does_not_see_is_named(tmp_path: Path) -> None:
    plan = make_plan(tiny(), HERE)
    runs, _ = expand(plan)
    with pytest.raises(BadInput, match=r"--out: expected a folder that stays, and that every worker sees.*share"):
        execute_run(plan, Store(tmp_path / "out"), runs[0])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:port"])
def test_an_address_at_which_there_is_no_cluster_is_named(extra: Callable[[str], ModuleType], address: str) -> None:
    extra("ray")
    with pytest.raises(BadInput, match=rf"--address.*{address}: .*ray start --head"):
        find_cluster(address)


@pytest.fixture
def short_place() -> Iterator[Path]:
    """A folder for what a killed process leaves, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="fx", ignore_cleanup_errors=True) as place:
        yield Path(place)


STAY = """
import os, sys
from fedxray.audit.workers.engines import Task
from fedxray.audit.run.execute import execute_run
from fedxray.audit.run.grid import expand
from fedxray.audit.workers.ray import LOCAL, RayCluster, find_cluster
from fedxray.audit.run.store import Store
if __name__ == "__main__":
    with RayCluster(jobs=1) as engine:
        item = {"folder": sys.argv[1], "name": "a"}
        engine.run([Task(label="a", function="tests.audit.chores:sleep", item=item)], print)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_a_local_cluster_is_left_when_its_owner_ends(
    tmp_path: Path, short_place: Path, extra: Callable[[str], ModuleType], number: int
) -> None:
    extra("ray")
    (tmp_path / "stay.py").write_text(STAY)
    command = [sys.executable, tmp_path / "stay.py", tmp_path]
    surroundings = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "TMPDIR": str(short_place)}
    with subprocess.Popen(command, env=surroundings, stderr=subprocess.PIPE, start_new_session=True) as owner:
        worker = int(wait_for(tmp_path / "a.began"))
        members = of_session(owner.pid)
        assert len(members) > 3
        os.killpg(owner.pid, number) if number == signal.SIGINT else owner.kill()
        owner.wait()
    assert has_gone(worker)
    # After a kill the helpers of Ray notice it one after the other.
    assert all(any(has_gone(pid) for _ in range(6)) for pid in members)
