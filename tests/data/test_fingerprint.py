from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedxray.data.checks import content_digest, stamp
from fedxray.errors import BadInput


def test_a_file_is_identified_by_its_content_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_bytes(b"x" * 3_000_000)
    two.write_bytes(b"x" * 3_000_000)
    os.utime(two, ns=(1, 1))
    assert content_digest(one) == content_digest(two) and stamp(one)[0][1:] != stamp(two)[0][1:]
    two.write_bytes(b"x" * 2_999_999 + b"y")
    assert content_digest(one) != content_digest(two)


def test_a_folder_is_identified_by_names_sizes_and_contents(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(name.encode())
    first, before = content_digest(tmp_path), stamp(tmp_path)
    (tmp_path / ".DS_Store").write_bytes(b"hidden")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"made by the system")
    os.utime(tmp_path / "cat" / "1.png", ns=(1, 1))
    assert content_digest(tmp_path) == first and stamp(tmp_path) != before
    seen = {first}
    (tmp_path / "cat" / "1.png").write_bytes(b"rat")
    seen.add(content_digest(tmp_path))
    (tmp_path / "cat" / "1.png").write_bytes(b"cat")
    assert content_digest(tmp_path) == first
    (tmp_path / "cat" / "1.png").rename(tmp_path / "cat" / "2.png")
    seen.add(content_digest(tmp_path))
    (tmp_path / "cat" / "2.png").rename(tmp_path / "dog" / "2.png")
    seen.add(content_digest(tmp_path))
    assert len(seen) == 4


@pytest.mark.parametrize("path", ["nowhere.csv", "x" * 5000])
def test_an_unreadable_path_is_refused(tmp_path: Path, path: str) -> None:
    for ask in (content_digest, stamp):
        with pytest.raises(BadInput):
            ask(tmp_path / path)
