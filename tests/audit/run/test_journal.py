from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedxray.audit.run.journal import ENDING, Journal
from fedxray.errors import BadInput
from fedxray.files import POINTS, VARIABLE, NoSpaceError
from tests.audit.forks import start

ODD = ["../../etc/passwd", "A", "a", "x" * 300, "", "ä\n", "con nul"]


def test_entries_of_any_key_come_back_in_every_process(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    for number, key in enumerate(ODD):
        (first if number % 2 else second).write(key, [key.encode(), key.encode() * 2], "case")
    for journal in (first, second, Journal(tmp_path)):
        assert journal.all_keys() == sorted(ODD) and journal.read("absent") is None
        assert all(journal.read(key) == key.encode() * 3 for key in ODD)
    assert len(list(tmp_path.iterdir())) == 2, "one file per writer"


def test_the_last_entry_counts_whoever_wrote_it_and_in_whatever_order_files_are_read(tmp_path: Path) -> None:
    journals = [Journal(tmp_path) for _ in range(4)]
    for number, journal in enumerate(journals):
        journal.write("k", [b"%d" % number], "case")
        journal.write(f"other {number}", [], "case")
    for journal in (*journals, Journal(tmp_path)):
        assert journal.read("k") == b"3"
    journals[0].forget("k")
    assert journals[2].read("k") is None and "k" not in Journal(tmp_path).all_keys()
    journals[2].write("k", [b"again"], "case")
    assert journals[0].read("k") == Journal(tmp_path).read("k") == b"again"


@pytest.mark.parametrize("kept", range(0, 100, 7))
def test_an_incomplete_end_is_ignored_and_overwritten(tmp_path: Path, kept: int) -> None:
    journal = Journal(tmp_path)
    journal.write("a", [b"first"], "case")
    file = tmp_path / journal.own
    size = file.stat().st_size
    journal.write("b", [b"0123456789"], "case")
    complete = file.read_bytes()
    os.truncate(file, min(size + kept, len(complete) - 1))
    for reader in (journal, Journal(tmp_path)):
        assert reader.all_keys() == ["a"] and reader.read("a") == b"first"
    assert journal.unread() == Journal(tmp_path).unread() == min(kept, len(complete) - 1 - size)
    journal.write("b", [b"0123456789"], "case")
    assert Journal(tmp_path).read("a") == b"first" and Journal(tmp_path).read("b") == b"0123456789"


def test_of_two_entries_with_one_number_all_processes_see_the_same(tmp_path: Path) -> None:
    for round_ in range(6):
        key, journals = f"k{round_}", [Journal(tmp_path) for _ in range(2)]
        for journal in journals:
            journal._sizes = dict  # type: ignore[method-assign]  # neither has seen the other
            journal.write(key, [journal.own.encode()], "case")
            del journal._sizes
        assert {journal.read(key) for journal in (*journals, Journal(tmp_path))} == {
            max(journal.own for journal in journals).encode()
        }


def test_a_scan_that_fails_costs_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    for key in "abc":
        journal.write(key, [key.encode()], "case")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_sizes", dict)
        journal.write("d", [b"d"], "case")
    assert Journal(tmp_path).all_keys() == journal.all_keys() == ["a", "b", "c", "d"]
    (tmp_path / f"link{ENDING}").symlink_to(tmp_path / "absent")
    (tmp_path / f"folder{ENDING}").mkdir()
    journal.write("e", [b"e"], "case")
    assert Journal(tmp_path).all_keys() == journal.all_keys() == ["a", "b", "c", "d", "e"]


def test_numbers_and_forgetting_cannot_be_altered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("k", [b"old"], "case")
    journal.write("k", [b"new"], "case")
    file = tmp_path / journal.own
    content = file.read_bytes()
    file.write_bytes(content.replace(b'["k", 1', b'["k", 3'))
    assert Journal(tmp_path).read("k") is None, "damaged, so computed again"
    for line in (b'["k", 7, 0, true, "x"]', b'["k", 7, 0, true, null]', b'["k", 9007199254740993, 0, false, ""]'):
        file.write_bytes(content + line + b"\n")
        assert Journal(tmp_path).read("k") == b"new"


def test_a_lasting_entry_is_synced_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda number: synced.append("file"))
    monkeypatch.setattr("fedxray.audit.run.journal.sync_folder", lambda folder: synced.append("folder"))
    tmp_path.chmod(0o700)
    journal = Journal(tmp_path)
    journal.write("a", [b"first"], "case")
    assert synced == ["file", "folder"] and (tmp_path / journal.own).stat().st_mode & 0o777 == 0o600
    journal.write("b", [b"second"], "case")
    journal.write("c", [b"third"], "evidence", lasting=False)
    assert synced == ["file", "folder", "file"]


def test_a_full_disk_and_a_long_key_are_errors_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(BadInput, match=r"at most \d+ bytes, got \d+ bytes"):
        journal.write("ä" * 2000, [b""], "evidence")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", full)
        with pytest.raises(NoSpaceError, match="no space left for case a"):
            journal.write("a", [b"first"], "case")
    journal.write("a", [b"first"], "case")
    assert Journal(tmp_path).read("a") == b"first"


def test_a_fork_that_is_killed_while_it_writes_loses_its_last_entry_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write("a", [b"of the parent"], "case")

    def work() -> None:
        journal.write("b", [b"of the fork"], "other")
        os.environ[VARIABLE] = str(POINTS.index("case half written") + 1)
        journal.write("c", [b"cut off"], "case")

    assert os.waitstatus_to_exitcode(os.waitpid(start(work), 0)[1]) == -9
    assert Journal(tmp_path).all_keys() == journal.all_keys() == ["a", "b"]
    journal.write("d", [b"after"], "case")
    assert [journal.read(key) for key in "abcd"] == [b"of the parent", b"of the fork", None, b"after"]
    assert Journal(tmp_path).all_keys() == ["a", "b", "d"] and len(list(tmp_path.iterdir())) == 1


def test_what_was_altered_counts_as_absent_and_removed_files_are_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", [b"first"], "case")
    journal.write("b", [b"other"], "case")
    file = tmp_path / journal.own
    file.write_bytes(file.read_bytes().replace(b"first", b"worst"))
    assert journal.read("a") is None and journal.read("b") == b"other"
    journal.write("a", [b"first"], "case")
    assert Journal(tmp_path).read("a") == b"first"
    file.unlink()
    assert journal.all_keys() == []
    journal.write("a", [b"new"], "case")
    assert Journal(tmp_path).read("a") == b"new"
    assert Journal(tmp_path / "absent").all_keys() == []


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[" * 9000, b"[]\n", b'["a", 1, -1, false, ""]\n',
             b'["a", 1, true, false, ""]\n', b'["a", "1", 0, false, ""]\n',
             b'{"a": 1, "b": 2, "c": 3, "d": 4}\n', b'["a", 1, 10, false, ""]\n', b"\xff\n", b"3\n"]
)  # fmt: skip
def test_a_file_that_is_no_journal_holds_nothing(tmp_path: Path, line: bytes) -> None:
    (tmp_path / f"x{ENDING}").write_bytes(line)
    assert Journal(tmp_path).all_keys() == [] and Journal(tmp_path).unread() == len(line)
