"""Where data sets are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedxray.data.catalog import load
from fedxray.data.store import cache_folder, folders
from fedxray.errors import BadInput

NOBODY = "~no-such-user/data"


def test_a_home_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", "~/data")
    monkeypatch.setenv("FEDXRAY_CACHE", "~/cache")
    assert folders() == [Path.home() / "data", Path.home() / "cache"]


def test_the_home_of_an_unknown_user_is_a_missing_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", NOBODY)
    monkeypatch.setenv("FEDXRAY_CACHE", NOBODY)
    assert folders() == [Path(NOBODY), Path(NOBODY)] and cache_folder() == Path(NOBODY)
    with pytest.raises(BadInput, match="no-such-user"):
        load(path=f"{NOBODY}/a.csv", target="y")
    with pytest.raises(BadInput, match="no-such-user"):
        load(schema=f"{NOBODY}/s.toml")
