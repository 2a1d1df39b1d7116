"""Audits that are killed again and again end with the results of an undisturbed one, and do nothing twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.store import Store
from fedxray.audit.workers import engines
from fedxray.files import POINTS, TEMPORARY, VARIABLE
from tests.audit.forks import start
from tests.audit.plans import tiny
from tests.audit.stored import case_entries
from tests.audit.workers.test_engines import has_gone, of_session, timeless

KILLS = int(os.environ.get("FEDXRAY_KILLS", "1000"))
NEVER = 3600.0  # seconds, more than an audit takes here
HERE = Path(__file__).parents[1]


def plan() -> Any:
    """Two runs and eight cases, one attack built on another's answer, so that evidence is written and shared."""
    attacks = [{"name": "attribute-from-model"}, {"name": "membership-loss"}]
    return make_plan(tiny(seeds=[0, 1], attack=attacks), HERE)


class Watch:
    """Which runs and cases were worked on (unless in new processes); what has ended must not be among them later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path, folder: Path) -> None:
        self.notes, self.store = place / "begun", Store(folder)
        self.notes.touch()
        for name in ("_simulate", "case_context"):
            monkeypatch.setattr(execute, name, self.noting(getattr(execute, name)))

    def noting(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(plan: Any, store: Any, item: Any) -> Any:
            with self.notes.open("a") as stream:
                stream.write(f"{item.id}\n")
            return work(plan, store, item)

        return noted

    def ended(self) -> dict[str, tuple[Any, ...]]:
        """Runs and cases in the store, with what would change if they were written again."""
        room = self.store.private / "runs"
        entries = [entry for entry in room.iterdir() if TEMPORARY not in entry.name] if room.is_dir() else []
        runs = {entry.name: (entry.stat().st_ino, entry.stat().st_mtime_ns) for entry in entries}
        return runs | case_entries(self.store.folder)

    def begun(self) -> list[str]:
        return self.notes.read_text().splitlines()


def killed_after(delay: float, work: Callable[[], object], everyone: bool) -> bool:
    """Whether the work was killed after that many seconds, alone or with all its workers; else it has ended before.

    Either way none of its processes is left.
    """

    def lead() -> None:
        os.setsid()
        work()

    def kill() -> None:
        for victim in of_session(child) if everyone else [child]:
            with suppress(ProcessLookupError):  # a worker may leave at the same moment
                os.kill(victim, signal.SIGKILL)

    child = start(lead)
    timer = threading.Timer(delay, kill)
    timer.start()
    # The child is not collected before the timer is silent, so the signal cannot reach a stranger.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    timer.cancel()
    timer.join()
    assert all(has_gone(left) for left in of_session(child) if left != child), "workers follow their parent"
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return timeless(run_audit(plan(), tmp_path_factory.mktemp("whole") / "out").document)


def results(folder: Path) -> dict[str, Any]:
    return timeless(json.loads((folder / "results.json").read_bytes()))


@pytest.mark.parametrize("number", range(1, len(POINTS) + 1))
def test_what_had_ended_at_a_fault_point_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], number: int
) -> None:
    folder = tmp_path / "out"
    watch = Watch(monkeypatch, tmp_path, folder)
    monkeypatch.setenv(VARIABLE, str(number))
    assert os.waitstatus_to_exitcode(os.waitpid(start(lambda: run_audit(plan(), folder)), 0)[1]) == -9
    monkeypatch.delenv(VARIABLE)
    ended, before = watch.ended(), len(watch.begun())
    run_audit(plan(), folder, resume=True)
    again = watch.begun()[before:]
    assert not ended.keys() & set(again) and len(again) == len(set(again))
    assert len(again) == 10 - len(ended), "two runs and eight cases, each once"
    assert results(folder) == undisturbed


def end_under_fire(
    folder: Path, watch: Watch, draw: random.Random, reach: float, most: int, **engine: Any
) -> tuple[int, float]:
    """Kill and resume until the audit ends, at most that often; how often, and how long a life may be next time."""
    kills = 0
    while True:
        ended, before = watch.ended(), len(watch.begun())
        resume = (folder / "audit.json").is_file()

        def work(resume: bool = resume) -> object:
            return run_audit(plan(), folder, resume=resume, **engine)

        delay = draw.uniform(0.0, reach) if kills < most else NEVER
        everyone = engine["engine"] == "ray" or draw.random() < 0.5  # Ray's helpers take their time to leave
        killed = killed_after(delay, work, everyone)
        assert not ended.keys() & set(watch.begun()[before:]), "what has ended is not done again"
        assert ended.items() <= watch.ended().items(), "nor written again"
        if not killed:
            return kills, reach * 0.8
        kills, reach = kills + 1, reach * 1.05


PROCESSES = {"engine": "processes", "jobs": 2}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system lists no processes")
@pytest.mark.parametrize(
    ("share", "reach", "start_method", "engine"),
    [
        (0.70, 0.4, "spawn", {"engine": "inline"}),
        (0.25, 0.6, "fork", PROCESSES),  # workers of a warm process, which start at once
        (0.03, 6.0, "spawn", PROCESSES),
        (0.03, 6.0, None, PROCESSES),  # workers forked from a server, on Linux
        (0.02, 12.0, "spawn", {"engine": "ray", "jobs": 2}),
    ],
    ids=["inline", "processes", "spawned", "forked", "ray"],
)
def test_audits_killed_at_any_moment_end_with_the_same_results(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, Any],
    extra: Callable[[str], ModuleType],
    share: float,
    reach: float,
    start_method: str | None,
    engine: dict[str, Any],
) -> None:
    if engine["engine"] == "ray":
        extra("ray")
    if start_method is not None:
        monkeypatch.setattr(engines, "FORKS", False)
        monkeypatch.setattr(engines, "SPAWN", multiprocessing.get_context(start_method))
    draw, kills, done, audits = random.Random(0), round(KILLS * share), 0, 0
    with tempfile.TemporaryDirectory(prefix="fx", ignore_cleanup_errors=True) as short:  # Ray puts sockets there
        monkeypatch.setattr(tempfile, "tempdir", short)
        while done < kills:
            place = tmp_path / str(audits)
            place.mkdir()
            with monkeypatch.context() as patch:
                watch = Watch(patch, place, place / "out")
                more, reach = end_under_fire(place / "out", watch, draw, reach, kills - done, **engine)
            assert results(place / "out") == undisturbed
            assert not [path for path in (place / "out").rglob("*") if TEMPORARY in path.name]
            done, audits = done + more, audits + 1
    print(f"{done} kills in {audits} audits")
