"""Files that are whole or absent, and JSON read strictly."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedxray.errors import BadInput
from fedxray.files import NoSpaceError, parse_json, read_json, read_object, room_for, table_lines, write_whole


def test_no_space_left_is_reported_plainly() -> None:
    for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        with pytest.raises(NoSpaceError, match=r"no space left for the log.*--resume"), room_for("the log"):
            raise OSError(number, os.strerror(number))
    with pytest.raises(PermissionError), room_for("the log"):
        raise PermissionError(errno.EACCES, "no")


def test_a_file_is_replaced_completely_and_every_point_is_reported(tmp_path: Path) -> None:
    path, heard = tmp_path / "a", list[tuple[str, bool]]()
    write_whole(path, b"old", "thing")
    write_whole(path, b"new", "thing", lambda point: heard.append((point, path.read_bytes() == b"new")))
    assert heard == [("thing written", False), ("thing synced", False), ("thing in place", True)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_whole(tmp_path / "a", b"old", "thing")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError, match="thing a"):
        write_whole(tmp_path / "a", b"new", "thing")
    assert (tmp_path / "a").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut-off"),
        (b'{"a": 1', "cut-off"),
        (b'{"a": 1, "a": 2}', "same name twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b'"\xff"', "not text at position 1"),
        (b"[" * 200_000, "nested without end"),
        (b"9" * 5000, "cut-off"),
        (b"9" * 400, "too many digits"),
        (b"[-1e400]", "beyond the range"),
    ],
)
def test_invalid_json_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(BadInput, match=rf"a\.json.*{words}.*Ask again\."):
        read_json(tmp_path / "a.json", remedy="Ask again.")


def test_names_and_texts_that_many_files_share_are_held_once() -> None:
    first, second = (parse_json(b'{"rounds seen": [{"role of all": "an honest server"}]}') for _ in range(2))
    assert next(iter(first)) is next(iter(second)) and first is not second
    pairs = [next(iter(value["rounds seen"][0].items())) for value in (first, second)]
    assert all(left is right for left, right in zip(*pairs, strict=True))


def test_absent_large_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(BadInput, match="a readable file"):
        read_json(path)
    path.write_bytes(b"[1, 2]")
    assert read_json(path) == [1, 2]
    with pytest.raises(BadInput, match="index: expected at most 5 bytes, got 6 bytes"):
        read_json(path, argument="index", most=5)
    with pytest.raises(BadInput, match="a JSON object, got list"):
        read_object(path)
    path.write_bytes(b'{"a": 1}')
    assert read_object(path) == {"a": 1}


def test_the_lines_of_tables_are_those_of_their_headers_and_not_of_texts() -> None:
    lines = [
        "name = '''",
        "[[gate]]",
        "'''  # [[gate]]",
        "[[gate]]",
        'attack = "[[gate]]"',
        "  [[ gate ]]\r",
        "note = 'it is' # \"",
        "[[gates]]",
        "[[attack]]",
        "[gate.more]",
        'text = """',
        '[[gate]]"""',
        "[[gate]] # the third",
    ]
    plan = "\n".join(lines).encode()
    assert table_lines(plan, "gate") == [4, 6, 13] and table_lines(plan, "attack") == [9]
    assert table_lines(b"\xff", "gate") == table_lines(b"gate = [{ limit = 0.1 }]", "gate") == []
