from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.workers import engines, forks
from fedxray.audit.workers.engines import ONE_THREAD, Inline, Processes, Task, Worker, cores, make_engine
from fedxray.errors import BadInput
from tests.audit import chores
from tests.audit.plans import tiny
from tests.audit.stored import case_entries, stored_evidence

HERE = Path(__file__).parents[1]
forked_workers = pytest.mark.skipif(not engines.FORKS, reason="workers are spawned on this system")


def task(folder: Path, function: str, name: str, **more: Any) -> Task:
    item = {"folder": str(folder), "name": name, **more}
    return Task(label=name, function=f"{chores.__name__}:{function}", item=item)


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Processes]:
    with Processes(2) as engine:
        yield engine


class ProgressLog:
    """Progress as it was reported."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, str]] = []

    def __call__(self, done: int, total: int, label: str) -> None:
        self.calls.append((done, total, label))


def test_a_signal_without_a_name_is_named_by_its_number() -> None:
    ended: Any = SimpleNamespace(join=lambda _: None, exitcode=-40)
    pipe: Any = None
    assert Worker(process=ended, pipe=pipe).exit_reason() == "its process was killed by signal 40"


def test_inline_works_here_in_order_with_one_thread(tmp_path: Path) -> None:
    progress = ProgressLog()
    torch.set_num_threads(2)
    try:
        with Inline() as engine:
            assert engine.run([task(tmp_path, "count_threads", name) for name in "abc"], progress) == []
        assert torch.get_num_threads() == 2, "put back"
    finally:
        torch.set_num_threads(1)
    assert progress.calls == [(1, 3, "a"), (2, 3, "b"), (3, 3, "c")]
    for name in "abc":
        assert (tmp_path / f"{name}.txt").read_text() == "[1]"


def test_workers_do_every_task_once(tmp_path: Path, two_workers: Processes) -> None:
    progress = ProgressLog()
    assert two_workers.run([task(tmp_path, "note", name) for name in "abcdef"], progress) == []
    assert [(done, total) for done, total, _ in progress.calls] == [(count, 6) for count in range(1, 7)]
    assert sorted(label for _, _, label in progress.calls) == list("abcdef")
    pids = {(tmp_path / f"{name}.txt").read_text() for name in "abcdef"}
    assert str(os.getpid()) not in pids and len(pids) <= 2


def test_libraries_in_a_worker_have_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Processes(1) as engine:
        engine.run([task(tmp_path, "count_threads", "a")], ProgressLog())
    assert (tmp_path / "a.txt").read_text() == "[1]"
    assert os.environ["OMP_NUM_THREADS"] == "2", "put back"


@pytest.mark.parametrize(("threads", "loaded"), [("1", "False"), ("2", "True")])
def test_sklearn_is_loaded_only_to_limit_it(threads: str, loaded: str) -> None:
    code = "import sys; from fedxray.audit.workers.engines import one_thread\n"
    code += "with one_thread(): print('sklearn' in sys.modules)"
    environment = os.environ | dict.fromkeys(ONE_THREAD, threads)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.strip() == loaded


def test_what_a_worker_imports_is_left_out_of_collections(tmp_path: Path) -> None:
    with Processes(1) as engine:
        engine.run([task(tmp_path, "count_frozen", name) for name in "ab"], ProgressLog())
    first, second = (int((tmp_path / f"{name}.txt").read_text()) for name in "ab")
    assert first >= second > 1000  # frozen once; some have ended since


def test_no_tasks_start_no_workers() -> None:
    with Processes(2) as engine:
        assert engine.run([], ProgressLog()) == []
        assert engine.workers == []


def test_a_task_whose_worker_dies_is_tried_again_alone(tmp_path: Path, two_workers: Processes) -> None:
    progress = ProgressLog()
    tasks = [task(tmp_path, "die", "a", times=1), *(task(tmp_path, "note", name) for name in "bc")]
    assert two_workers.run(tasks, progress) == []
    assert (tmp_path / "a.tries").read_text() == "2" and (tmp_path / "a.txt").exists()
    assert progress.calls[-1] == (3, 3, "a"), "it comes last"


def test_a_task_that_kills_two_workers_is_given_up_with_the_signal(tmp_path: Path, two_workers: Processes) -> None:
    progress = ProgressLog()
    tasks = [task(tmp_path, "die", "a", times=9), task(tmp_path, "leave", "b"), task(tmp_path, "note", "c")]
    failures = two_workers.run(tasks, progress)
    assert {failure.task.label: without_memory(failure.reason) for failure in failures} == {
        "a": "its process was killed by SIGKILL, also when tried again alone",
        "b": "its process ended with code 7, also when tried again alone",
    }
    assert (tmp_path / "a.tries").read_text() == "2" and (tmp_path / "c.txt").exists()
    assert len(progress.calls) == 3


def without_memory(reason: str) -> str:
    return re.sub(r" \(it held up to [\d,]+ MB of memory\)", "", reason)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system tells nobody's memory")
@pytest.mark.parametrize("forking", [False, pytest.param(True, marks=forked_workers)])
def test_a_dead_worker_is_not_waited_for_where_a_process_of_its_own_lives_on(tmp_path: Path, forking: bool) -> None:
    failures: list[Any] = []
    with Processes(1, forking=forking) as engine:
        tasks, left = [task(tmp_path, "leave_a_process", "a")], tmp_path / "a.left"
        work = threading.Thread(target=lambda: failures.extend(engine.run(tasks, ProgressLog())))
        work.start()
        work.join(60)
        waits = work.is_alive()
        while work.is_alive() or left.exists():
            for pid in left.read_text().split() if left.exists() else []:
                os.kill(int(pid), signal.SIGKILL)
            left.unlink(missing_ok=True)
            work.join(0.5)
    assert not waits and [without_memory(failure.reason) for failure in failures] == [
        "its process ended with code 7, also when tried again alone"
    ]


@pytest.mark.parametrize("forking", [False, pytest.param(True, marks=forked_workers)])
def test_workers_started_in_a_thread_ignore_ctrl_c_too(tmp_path: Path, forking: bool) -> None:
    interrupt = task(tmp_path, "interrupt", "a", parent=forking)
    with Processes(1, forking=forking) as engine:
        work = threading.Thread(target=engine.run, args=([interrupt], ProgressLog()))
        work.start()
        work.join()
    assert len((tmp_path / "a.tries").read_text().split()) == 1, "no second try"


def test_a_task_that_dies_of_its_memory_is_given_up_with_the_peak(tmp_path: Path) -> None:
    with Processes(1) as engine:
        failures = engine.run([task(tmp_path, "swell", "a", megabytes=300)], ProgressLog())
    reported = re.fullmatch(
        r"its process was killed by SIGKILL \(it held up to (\d+) MB of memory\), also when tried again alone",
        failures[0].reason,
    )
    assert reported and 300 < int(reported[1]) < 600


def test_what_a_user_can_fix_stops_the_work_with_its_own_message(tmp_path: Path, two_workers: Processes) -> None:
    for engine in (Inline(), two_workers):
        with pytest.raises(BadInput, match=r"x: expected y, got z\. Fix it\."):
            engine.run([task(tmp_path, "refuse", "a")], ProgressLog())


def test_leaving_the_block_ends_the_workers(tmp_path: Path) -> None:
    with Processes(1) as engine:
        engine.run([task(tmp_path, "note", "a")], ProgressLog())
        process = engine.workers[0].process
        assert process.is_alive()
    with pytest.raises(ValueError, match="closed"):
        process.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "a.txt").read_text()), 0)


STAY = """
import sys
from fedxray.audit.workers.engines import Task
from fedxray.audit.workers.engines import Processes, Worker
if __name__ == "__main__":
    with Processes(1) as engine:
        item = {"folder": sys.argv[1], "name": "a"}
        engine.run([Task(label="a", function="tests.audit.chores:sleep", item=item)], print)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_when_the_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "stay.py").write_text(STAY)
    surroundings = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(tmp_path / "stay.py"), str(tmp_path)]
    with subprocess.Popen(command, env=surroundings, stderr=subprocess.DEVNULL, start_new_session=True) as parent:
        worker = int(wait_for(tmp_path / "a.began"))
        members = of_session(parent.pid)
        os.killpg(parent.pid, number) if number == signal.SIGINT else parent.send_signal(number)
        parent.wait()
    assert has_gone(worker) and all(has_gone(pid) for pid in members)
    if engines.FORKS:
        assert len(members) == 3, "the parent, the server and the worker"


@forked_workers
def test_the_server_has_one_thread_no_code_of_the_user_s_and_the_life_of_its_engine(tmp_path: Path) -> None:
    with Processes(2, server=forks.Server("fedxray.audit.run.execute:execute_run")) as engine:
        assert engine.run([task(tmp_path, "describe_parent", name) for name in "abcd"], ProgressLog()) == []
        server = engine.server
        assert server is not None
        described = {(tmp_path / f"{name}.txt").read_text() for name in "abcd"}
        assert described == {f"{server.process.pid} 1 torch fedxray.audit.run.execute"}
    assert engine.server is None and has_gone(server.process.pid)
    with Processes(1) as engine:
        assert engine.run([task(tmp_path, "describe_parent", "e")], ProgressLog()) == []
    assert (tmp_path / "e.txt").read_text().split()[1:] == ["1"], "a module of the user's is the worker's alone"


@forked_workers
def test_tasks_of_a_killed_server_are_tried_again(tmp_path: Path) -> None:
    tasks = [task(tmp_path, "kill_parent", "a"), *(task(tmp_path, "note", name) for name in "bcd")]
    with Processes(2) as engine:
        assert engine.run(tasks, ProgressLog()) == []
    assert all((tmp_path / f"{name}.txt").exists() for name in "abcd")
    assert has_gone(int((tmp_path / "a.tries").read_text())), "workers die with their server"


@forked_workers
def test_a_server_that_cannot_import_is_named_by_its_own_exit_code(tmp_path: Path) -> None:
    absent = Task(label="a", function="fedxray.absent:work", item=None)
    with Processes(1) as engine:
        (failure,) = engine.run([absent], ProgressLog())
    assert failure.reason == "its process ended with code 1, also when tried again alone"


@forked_workers
def test_workers_of_a_stopped_server_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "EXIT_TIMEOUT", 0.5)
    monkeypatch.setattr(forks, "GRACE", 0.5)
    with Processes(1) as engine:
        assert engine.run([task(tmp_path, "note", "a")], ProgressLog()) == []
        assert engine.server is not None
        server = engine.server.process.pid
        os.kill(server, signal.SIGSTOP)
    assert has_gone(server) and has_gone(int((tmp_path / "a.txt").read_text()))


@forked_workers
def test_a_worker_is_forked_for_an_audit_with_many_open_files(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    try:
        with contextlib.ExitStack() as opened, Processes(1) as engine:
            for _ in range(1024):
                opened.enter_context(open(os.devnull))
            assert engine.run([task(tmp_path, "note", "a")], ProgressLog()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@forked_workers
def test_exit_codes_are_reported_where_the_audit_blocks_signals(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        with Processes(1) as engine:
            (failure,) = engine.run([task(tmp_path, "leave", "a")], ProgressLog())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert without_memory(failure.reason) == "its process ended with code 7, also when tried again alone"


def test_workers_of_a_frozen_application_are_spawned() -> None:
    code = "import sys; sys.frozen = True; from fedxray.audit.workers import engines; print(engines.FORKS)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


@pytest.mark.parametrize("forking", [False, pytest.param(True, marks=forked_workers)])
def test_a_worker_has_the_streams_and_surroundings_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], forking: bool
) -> None:
    for name in "ab":
        monkeypatch.setenv("FEDXRAY_SPOKEN", name)
        monkeypatch.chdir(tmp_path)
        with Processes(1, forking=forking) as engine:
            assert engine.run([task(tmp_path, "speak", name)], ProgressLog()) == []
            engine.workers.pop().stop()
            monkeypatch.setenv("FEDXRAY_SPOKEN", f"{name} again")
            assert engine.run([task(tmp_path, "speak", f"{name}2")], ProgressLog()) == []
        spoken = [f"{stream} of {label}" for label in (name, f"{name}2") for stream in ("out", "err")]
        assert capfd.readouterr() == ("", "\n".join([*spoken, ""]))
    texts = [(tmp_path / f"{name}.txt").read_text() for name in ("a", "a2", "b", "b2")]
    assert [text.rpartition(" ")[0] for text in texts] == [
        f"{name} {tmp_path}" for name in ("a", "a again", "b", "b again")
    ]
    assert len({text.rpartition(" ")[2] for text in texts}) == 4, "numpy draws without a seed differ"


UNGUARDED = """
import sys
from fedxray.audit.workers.engines import Processes, Task
with Processes(1, forking=sys.argv[2] == "True") as engine:
    item = {"folder": sys.argv[1], "name": "a"}
    print(engine.run([Task(label="a", function="tests.audit.chores:note", item=item)], print))
"""


@pytest.mark.parametrize("forking", [False, pytest.param(True, marks=forked_workers)])
def test_a_script_without_a_guard_starts_no_endless_workers(tmp_path: Path, forking: bool) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    surroundings = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), str(forking)]
    ended = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300)
    assert "its process ended with code 1, also when tried again alone" in without_memory(ended.stdout)
    assert "if __name__ == '__main__':" in ended.stderr and not (tmp_path / "a.txt").exists()


@forked_workers
def test_a_program_from_the_standard_input_can_have_workers(tmp_path: Path) -> None:
    surroundings = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-", str(tmp_path), "True"]
    subprocess.run(command, env=surroundings, input=UNGUARDED, text=True, check=True, timeout=300)
    assert (tmp_path / "a.txt").exists()


def wait_for(file: Path) -> str:
    """The content of a file that another process is about to write."""
    pause = threading.Event()
    for _ in range(3000):
        if file.exists() and (text := file.read_text()):
            return text
        pause.wait(0.02)
    raise AssertionError(f"{file} never came")


def has_gone(pid: int) -> bool:
    pause = threading.Event()
    for _ in range(500):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        pause.wait(0.02)
    return False


def of_session(leader: int) -> list[int]:
    """Processes of a session, as the system lists them on Linux."""
    members = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            columns = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(columns[3]) == leader:
            members.append(int(status.parent.name))
    return members


def test_engines_by_name() -> None:
    assert isinstance(make_engine("inline", None), Inline)
    assert make_engine("processes", 3).jobs == 3  # type: ignore[attr-defined]
    assert make_engine("processes", None).jobs == cores()  # type: ignore[attr-defined]
    assert make_engine("ray", 3, "auto").address == "auto"  # type: ignore[attr-defined]
    for name, jobs, words in (("proceses", None, "processes"), ("inline", 2, "--jobs")):
        with pytest.raises(BadInput, match=words):
            make_engine(name, jobs)
    with pytest.raises(BadInput, match=r"--address.*--engine ray"):
        make_engine("processes", None, "127.0.0.1:6379")


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"Ray to be installed.*'\.\[ray\]'"):
        make_engine("ray", None)


def plan_for_both() -> Any:
    return make_plan(tiny(seeds=[0, 1], attack=[{"name": "attribute-from-model"}, {"name": "membership-loss"}]), HERE)


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    times = {"seconds": None, "cpu_seconds": None}
    return document | {"cases": [case | times for case in document["cases"]]}


def test_the_same_plan_gives_the_same_results_inline_and_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)
    inline = run_audit(plan_for_both(), tmp_path / "inline", engine="inline")
    for forking in {False, engines.FORKS}:
        monkeypatch.setattr(engines, "FORKS", forking)
        spread = run_audit(plan_for_both(), tmp_path / str(forking), engine="processes", jobs=2)
        assert timeless(inline.document) == timeless(spread.document)
        assert case_entries(inline.folder).keys() == case_entries(spread.folder).keys()
        assert stored_evidence(inline.folder) == stored_evidence(spread.folder)
    assert signal.getsignal(signal.SIGINT) is before
