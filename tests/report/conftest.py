"""One browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'fedxray[dev]'")
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=str(chromium), args=QUIET)
        yield opened
        opened.close()
