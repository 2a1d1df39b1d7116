from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray import files
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.store import LOG, MARKER, Store, check_folder, clear, open_store, purge
from fedxray.errors import BadInput
from fedxray.files import POINTS, TEMPORARY, VARIABLE, NoSpaceError, write_whole
from tests.audit.forks import start
from tests.audit.plans import tiny
from tests.report.synthetic import make_cases

HERE = Path(__file__).parents[1]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_new_store_has_its_rooms_and_keeps_private_things_private(tmp_path: Path) -> None:
    with open_store(tmp_path / "a" / "b", "digest") as store:
        assert stat.S_IMODE(store.private.stat().st_mode) == 0o700
        assert {path.name for path in store.private.iterdir()} == {"runs", "cases", "evidence"}
    marker = json.loads((tmp_path / "a" / "b" / MARKER).read_bytes())
    assert marker["plan"] == "digest" and marker["kind"] == "audit"


def test_cases_runs_and_evidence_come_back_as_they_were_kept(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        assert not store.has_case("c") and not store.has_run("r") and store.load_evidence("k") is None
        case = make_cases()[0] | {"id": "c"}
        store.write_case("c", case)
        assert store.has_case("c") and store.read_case("c") == case
        store.cases.forget("c")
        assert not store.has_case("c")
        with store.new_run("r") as folder:
            (folder / "x").write_text("1")
            assert not store.has_run("r")
        assert (store.run_folder("r") / "x").read_text() == "1"
        tensors = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor(3)}
        store.save_evidence("K [x=1]", tensors, {"curve": [1.0, 0.5]})
        kept = store.load_evidence("K [x=1]")
        assert kept is not None and kept[1] == {"curve": [1.0, 0.5]}
        assert torch.equal(kept[0]["a"], tensors["a"]) and torch.equal(kept[0]["b"], tensors["b"])


def test_evidence_that_was_altered_counts_as_absent(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        store.save_evidence("k", {"a": torch.zeros(2)}, {})
        (file,) = (store.private / "evidence").iterdir()
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
        assert store.load_evidence("k") is None


def test_numbers_that_are_not_finite_are_never_written(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store, pytest.raises(ValueError, match="JSON"):
        store.write_case("c", {"value": float("nan")})


def test_a_damaged_note_on_a_lost_run_lets_it_be_tried_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "out", "digest") as store:
        (store.private / "runs" / "r.lost.json").write_text("{}")
        assert store.lost_run("r") == {"reason": "unknown", "status": "failed"}


def test_a_name_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    with open_store(tmp_path / "out", "digest") as store:
        store.log("failed: x\n2026-01-01 00:00:00Z ended\x1b[2J")
        text = (store.folder / "log").read_text()
    assert text.count("\n") == 1 and "\x1b" not in text


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        with pytest.raises(RuntimeError), store.new_run("r") as folder:
            (folder / "x").write_text("1")
            raise RuntimeError
        assert list((store.private / "runs").iterdir()) == []


def test_galleries_of_private_data_go_to_the_private_part(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        store.write_galleries([{"private": True, "case": "a"}, {"private": False, "case": "b"}])
    assert json.loads((tmp_path / "gallery.json").read_bytes()) == [{"private": False, "case": "b"}]
    assert json.loads((tmp_path / "private" / "gallery.json").read_bytes()) == [{"private": True, "case": "a"}]


@pytest.mark.parametrize(
    ("digest", "kind", "resume", "words"),
    [
        ("digest", "audit", False, "holds this audit already.*--resume"),
        ("other", "audit", True, "its plan differs"),
        ("other", "audit", False, "another audit"),
        ("digest", "demo", True, "another audit"),
    ],
)
def test_a_folder_of_another_audit_is_refused(tmp_path: Path, digest: str, kind: str, resume: bool, words: str) -> None:
    with open_store(tmp_path, "digest"):
        pass
    before = names(tmp_path)
    with pytest.raises(BadInput, match=words), open_store(tmp_path, digest, resume=resume, kind=kind):
        pass
    assert names(tmp_path) == before


def test_the_same_plan_is_resumed_and_leftovers_are_swept_out(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        store.write_case("c", {})
    for left in ("cases", "runs", "evidence"):
        (tmp_path / "private" / left / f"{TEMPORARY}{'1' * 32}").mkdir()
        (tmp_path / "private" / left / f"{TEMPORARY}{'2' * 32}").write_text("half")
    (tmp_path / f"{TEMPORARY}{'3' * 32}").write_text("half")
    with open_store(tmp_path, "digest", resume=True) as store:
        assert store.cases.read("c") is not None
    assert not [name for name in names(tmp_path) if TEMPORARY in name]


def test_a_users_own_files_that_look_unfinished_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / ".part-thesis").mkdir()
    (tmp_path / ".part-thesis" / "chapter").write_text("precious")
    with pytest.raises(BadInput, match="part-thesis"), open_store(tmp_path, "digest"):
        pass
    (tmp_path / "new").mkdir()
    stray = tmp_path / "new" / f"{TEMPORARY}{'a' * 32}"
    stray.write_text("of somebody else: the folder was no audit's before")
    with open_store(tmp_path / "new", "digest"):
        pass
    assert stray.is_file() and (tmp_path / ".part-thesis" / "chapter").read_text() == "precious"


def make_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "precious")


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("make", [make_link, Path.mkdir, os.mkfifo])
def test_a_lock_that_is_no_plain_file_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_name:
        monkeypatch.setattr(files, "_take_with_flock", lambda path: None)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / files.LOCK)
    with pytest.raises(BadInput, match="a plain file or absent"), files.locked(tmp_path / "out"):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_an_audit_of_another_version_is_not_resumed(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest"):
        pass
    marker = json.loads((tmp_path / MARKER).read_bytes())
    (tmp_path / MARKER).write_text(json.dumps(marker | {"version": "0.0.1"}))
    with pytest.raises(BadInput, match=r"by fedxray 0\.0\.1"):
        check_folder(tmp_path, "digest", resume=True)


@pytest.mark.parametrize("content", ["[]", "3", "", "{"])
def test_a_marker_that_was_altered_is_refused(tmp_path: Path, content: str) -> None:
    with open_store(tmp_path, "digest"):
        pass
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(BadInput, match=r"audit\.json"):
        check_folder(tmp_path, "digest", resume=True)


def test_a_folder_with_other_files_or_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for place, words in ((tmp_path, "thesis.tex"), (tmp_path / "thesis.tex", "a file")):
        with pytest.raises(BadInput, match=words), open_store(place, "digest"):
            pass
    with pytest.raises(BadInput, match="in the way"), open_store(tmp_path / "thesis.tex" / "deep", "digest"):
        pass
    assert names(tmp_path) == {"thesis.tex"}


def test_a_private_part_that_is_a_link_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "out", "digest"):
        pass
    (tmp_path / "out" / "private").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "private").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="symbolic link"):
        check_folder(tmp_path / "out", "digest", resume=True)
    with pytest.raises(BadInput, match="symbolic link"):
        purge(tmp_path / "out")
    assert (tmp_path / "elsewhere" / "cases").is_dir()


def test_purge_deletes_the_private_part_alone_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep").write_text("precious")
    with open_store(tmp_path / "out", "digest") as store:
        store.write_results({"a": 1})
        (store.private / "link").symlink_to(tmp_path / "mine")
    assert purge(tmp_path / "out")
    assert names(tmp_path / "out") == {MARKER, "results.json", ".lock"}
    assert (tmp_path / "mine" / "keep").read_text() == "precious"
    assert not purge(tmp_path / "out")


def test_purge_refuses_a_folder_that_is_no_audit(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    with pytest.raises(BadInput, match="the folder of an audit"):
        purge(tmp_path)
    assert (tmp_path / "private").is_dir()


def test_clear_touches_only_its_own_kind(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", "digest") as store:
        store.write_results({})
    clear(tmp_path / "a", "demo")
    assert "results.json" in names(tmp_path / "a")
    with open_store(tmp_path / "d", "digest", kind="demo") as store:
        store.write_results({})
        store.write_plan(b"", "plan-x.toml")
    (tmp_path / "d" / "notes.txt").write_text("mine")
    clear(tmp_path / "d", "demo")
    assert names(tmp_path / "d") == {".lock", "notes.txt"}


def test_two_runs_on_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        open_store(tmp_path, "digest"),
        pytest.raises(BadInput, match=f"in use by process {os.getpid()} on "),
        open_store(tmp_path, "digest", resume=True),
    ):
        pass
    with open_store(tmp_path, "digest", resume=True):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from fedxray.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert ended.returncode == -signal.SIGKILL and (tmp_path / files.LOCK).read_bytes() != b""
    with files.locked(tmp_path):
        pass


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no flock, where the lock is the file itself."""
    monkeypatch.setattr(files, "_take_with_flock", lambda path: None)


@pytest.mark.usefixtures("without_flock")
def test_a_lock_by_name_is_held_freed_and_taken_over_from_the_dead(tmp_path: Path) -> None:
    with files.locked(tmp_path), pytest.raises(BadInput, match=str(os.getpid())), files.locked(tmp_path):
        pass
    assert not (tmp_path / files.LOCK).exists()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid, host, stale in (
        (gone.pid, socket.gethostname(), True),
        (gone.pid, "elsewhere", False),
        (1, socket.gethostname(), False),
    ):
        (tmp_path / files.LOCK).write_text(json.dumps({"pid": pid, "host": host}))
        with ExitStack() as stack:
            if not stale:
                stack.enter_context(pytest.raises(BadInput, match=f"process {pid} on"))
            with files.locked(tmp_path):
                pass
    (tmp_path / files.LOCK).write_text("garbage")
    with pytest.raises(BadInput, match="another process"), files.locked(tmp_path):
        pass


def in_a_child(work: Callable[[], None]) -> int:
    """Run work in a forked process; its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(start(work), 0)[1])


def test_a_file_size_limit_ends_in_a_clear_message_and_no_half_written_file(tmp_path: Path) -> None:
    import resource

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        store = Store(tmp_path)
        with pytest.raises(NoSpaceError, match="no space left"):
            store.save_evidence("k", {"a": torch.zeros(5000)}, {})
        with pytest.raises(NoSpaceError, match="no space left for run r"), store.new_run("r") as folder:
            (folder / "big").write_bytes(bytes(5000))
        with pytest.raises(NoSpaceError):
            write_whole(tmp_path / "results.json", bytes(5000), "results")

    with open_store(tmp_path, "digest"):
        pass
    assert in_a_child(work) == 0
    (file,) = (tmp_path / "private" / "evidence").iterdir()
    assert file.stat().st_size == 0 and names(tmp_path) == {"audit.json", ".lock", str(file.relative_to(tmp_path))}


def test_each_fault_point_kills_only_when_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(POINTS) == len(set(POINTS)) == 11
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(files.os, "kill", lambda pid, number: killed.append((pid, number)))
    for point in (*POINTS, "elsewhere"):
        files.fault(point)
    assert killed == []
    monkeypatch.setenv(VARIABLE, "3")
    for point in (*POINTS, "elsewhere"):
        files.fault(point)
    assert killed == [(os.getpid(), signal.SIGKILL)]


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    times = {"seconds": None, "cpu_seconds": None}
    return document | {"cases": [case | times for case in document["cases"]]}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return timeless(run_audit(small_plan(), tmp_path_factory.mktemp("whole") / "out").document)


def small_plan() -> Any:
    return make_plan(tiny(attack=[{"name": "attribute-from-model"}, {"name": "membership-loss"}]), HERE)


@pytest.mark.parametrize("number", range(1, len(POINTS) + 1))
def test_an_audit_killed_at_any_point_resumes_to_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, Any], number: int
) -> None:
    monkeypatch.setenv(VARIABLE, str(number))
    assert in_a_child(lambda: run_audit(small_plan(), tmp_path / "out") and None) == -signal.SIGKILL
    monkeypatch.delenv(VARIABLE)
    ended = run_audit(small_plan(), tmp_path / "out", resume=True)
    assert timeless(ended.document) == uninterrupted
    assert timeless(json.loads((tmp_path / "out" / "results.json").read_bytes())) == uninterrupted
    assert not [name for name in names(tmp_path) if TEMPORARY in name]


@pytest.mark.parametrize("content", [b'{"a": NaN}', b"[" * 100_000, b"[]", b"\xff", b""])
def test_entries_that_cannot_be_used_are_computed_again(tmp_path: Path, content: bytes) -> None:
    with open_store(tmp_path, "digest") as store:
        store.cases.write("c", [content], "case")
        store.evidence.write("e", [content], "evidence")
        assert not store.has_case("c") and store.load_evidence("e") is None
        with pytest.raises(BadInput, match="case c: expected its stored outcome"):
            store.read_case("c")


def test_bytes_without_an_entry_are_in_the_log(tmp_path: Path) -> None:
    with open_store(tmp_path, "digest") as store:
        store.write_case("c", {})
    with (store.private / "cases" / store.cases.own).open("ab") as stream:
        stream.write(b"half")
    with open_store(tmp_path, "digest", resume=True) as store:
        assert "private/cases: 4 bytes hold no entry" in (tmp_path / LOG).read_text()
