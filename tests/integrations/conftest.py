"""Flower runs without telemetry, with a home of its own and without log output."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


@pytest.fixture(scope="session", autouse=True)
def flower_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("flwr")
    before = os.environ.get("FLWR_HOME")
    os.environ["FLWR_HOME"] = str(home)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    yield home
    if before is None:
        del os.environ["FLWR_HOME"]
    else:
        os.environ["FLWR_HOME"] = before
