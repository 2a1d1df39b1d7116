from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedxray.audit.run.journal import ENDING, Journal
from fedxray.files import POINTS, VARIABLE
from tests.audit.forks import start

ODD = ["../../etc/passwd", "A", "a", "x" * 300, "", "ä\n", "con nul"]


def test_entries_of_any_key_come_back_in_every_process(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    for number, key in enumerate(ODD):
        (first if number % 2 else second).write(key, key.encode() * 3, "case")
    for journal in (first, second, Journal(tmp_path)):
        assert journal.all_keys() == sorted(ODD) and journal.read("absent") is None
        assert all(journal.read(key) == key.encode() * 3 for key in ODD)
    assert len(list(tmp_path.iterdir())) == 2, "one file per writer"


def test_the_last_entry_counts_whoever_wrote_it_and_in_whatever_order_files_are_read(tmp_path: Path) -> None:
    journals = [Journal(tmp_path) for _ in range(4)]
    for number, journal in enumerate(journals):
        journal.write("k", b"%d" % number, "case")
        journal.write(f"other {number}", b"", "case")
    for journal in (*journals, Journal(tmp_path)):
        assert journal.read("k") == b"3"
    journals[0].forget("k")
    assert journals[2].read("k") is None and "k" not in Journal(tmp_path).all_keys()
    journals[2].write("k", b"again", "case")
    assert journals[0].read("k") == Journal(tmp_path).read("k") == b"again"


@pytest.mark.parametrize("kept", range(0, 100, 7))
def test_an_incomplete_end_is_ignored_and_overwritten(tmp_path: Path, kept: int) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"first", "case")
    file = tmp_path / journal.own
    size = file.stat().st_size
    journal.write("b", b"0123456789", "case")
    complete = file.read_bytes()
    os.truncate(file, min(size + kept, len(complete) - 1))
    for reader in (journal, Journal(tmp_path)):
        assert reader.all_keys() == ["a"] and reader.read("a") == b"first"
    journal.write("b", b"0123456789", "case")
    assert file.read_bytes() == complete and Journal(tmp_path).read("b") == b"0123456789"


def test_a_fork_that_is_killed_while_it_writes_loses_its_last_entry_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"of the parent", "case")

    def work() -> None:
        journal.write("b", b"of the fork", "other")
        os.environ[VARIABLE] = str(POINTS.index("case half written") + 1)
        journal.write("c", b"cut off", "case")

    assert os.waitstatus_to_exitcode(os.waitpid(start(work), 0)[1]) == -9
    assert Journal(tmp_path).all_keys() == journal.all_keys() == ["a", "b"]
    journal.write("d", b"after", "case")
    assert [journal.read(key) for key in "abcd"] == [b"of the parent", b"of the fork", None, b"after"]
    assert Journal(tmp_path).all_keys() == ["a", "b", "d"] and len(list(tmp_path.iterdir())) == 1


def test_what_was_altered_counts_as_absent_and_removed_files_are_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", b"first", "case")
    journal.write("b", b"other", "case")
    file = tmp_path / journal.own
    file.write_bytes(file.read_bytes().replace(b"first", b"worst"))
    assert journal.read("a") is None and journal.read("b") == b"other"
    journal.write("a", b"first", "case")
    assert Journal(tmp_path).read("a") == b"first"
    file.unlink()
    assert journal.all_keys() == []
    journal.write("a", b"new", "case")
    assert Journal(tmp_path).read("a") == b"new"
    assert Journal(tmp_path / "absent").all_keys() == []


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[" * 9000, b"[]\n", b'["a", 1, -1, null]\n', b'["a", 1, true, null]\n',
             b'["a", "1", 0, ""]\n', b'{"a": 1, "b": 2, "c": 3, "d": 4}\n', b'["a", 1, 10, null]\n', b"\xff\n", b"3\n"]
)  # fmt: skip
def test_a_file_that_is_no_journal_holds_nothing(tmp_path: Path, line: bytes) -> None:
    (tmp_path / f"x{ENDING}").write_bytes(line)
    assert Journal(tmp_path).all_keys() == []
