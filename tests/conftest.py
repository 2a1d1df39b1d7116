"""Fixtures that every test may use, and the rule that a strict run skips nothing."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings

from fedxray import cli

pytest_plugins = ["pytester"]

settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
EXTRAS = {
    "optuna": "tune",
    "PIL": "images",
    "skimage": "images",
    "flwr": "flower",
    "nvflare": "nvflare",
    "opacus": "dp",
    "ray": "ray",
    "diffusers": "diffusion",
    "pandas": "notebook",
}
# How a skip for a missing requirement begins: ours, and that of pytest.importorskip.
MISSING = ("needs", "could not import")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("MPLBACKEND", "Agg")
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "data_folder" in getattr(item, "fixturenames", ()):
            item.add_marker("data")


def fail_missing_requirement(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for a missing requirement into a failure when FEDXRAY_STRICT=1."""
    strict = os.environ.get("FEDXRAY_STRICT") == "1"
    if not (strict and report.skipped and isinstance(report.longrepr, tuple)):
        return
    path, line, message = report.longrepr
    reason = message.removeprefix("Skipped: ")
    if reason.startswith(MISSING):
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason} (FEDXRAY_STRICT=1 turns this skip into a failure)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_missing_requirement(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_missing_requirement(report)
    return report


@pytest.fixture(autouse=True)
def nothing_ambient() -> Iterator[None]:
    """Start every test from the same global seeds and fail one that leaves a global setting changed."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    before = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    yield
    after = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)
    if after != before:
        torch.set_default_dtype(before[0])
        torch.set_default_device(None)
        torch.set_grad_enabled(before[2])
        pytest.fail(f"the test left (default dtype, default device, grad mode) = {after}, found {before}")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets that FEDXRAY_DATA names."""
    named = os.environ.get("FEDXRAY_DATA")
    if not named:
        pytest.skip("needs the data folder: set FEDXRAY_DATA")
    folder = Path(named).expanduser().resolve()
    if not folder.is_dir():
        pytest.skip(f"needs the data folder: FEDXRAY_DATA={named} is not a folder")
    return folder


@pytest.fixture(scope="session")
def extra() -> Callable[[str], ModuleType]:
    """A function that imports a module of an optional extra, or skips with the extra's name."""

    def load(module: str) -> ModuleType:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module.partition(".")[0]:
                raise
            pytest.skip(f"needs {module}: pip install 'fedxray[{EXTRAS.get(error.name, 'dev')}]'")

    return load


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser that opens reports: FEDXRAY_CHROMIUM, or the first one on PATH."""
    candidates = (os.environ.get("FEDXRAY_CHROMIUM"), *BROWSERS)
    for found in (shutil.which(name) for name in candidates if name):
        if found:
            return Path(found)
    pytest.skip("needs a browser: install chromium or set FEDXRAY_CHROMIUM to its path")


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def fedxray(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run a command in this process, in an empty folder; what its processes write counts too."""
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fedxray", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        ended = Ended(int(caught.value.code or 0), *capfd.readouterr())
        assert "Traceback" not in ended.err
        return ended

    return run
