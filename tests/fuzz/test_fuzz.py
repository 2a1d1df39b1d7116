"""A short run of the fuzzer with a fixed seed, and proof that it sees what it looks for; `make fuzz` runs longer."""

from __future__ import annotations

import os
import pickle  # noqa: TID251
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import run as fuzzer
from tests.fuzz.parsers import PARSERS, Parser

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are those of Linux")
INPUTS = 1500  # of a parser


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_inputs_are_accepted_or_refused(name: str) -> None:
    with fuzzer.scratch() as folder:
        outcomes, failures = fuzzer.run(name, int(INPUTS * PARSERS[name].share), 0, folder)
    assert not failures, failures[0]["what"]
    assert outcomes["accepted"] + outcomes["refused"] == int(INPUTS * PARSERS[name].share)


def leave(path: Path) -> None:
    path.parent.parent.joinpath("outside").write_text("x")


def start(path: Path) -> None:
    os.system("true")


def unpickle(path: Path) -> None:
    pickle.loads(b"cos\ngetpid\n.")


def evaluate(path: Path) -> None:
    eval("1 + 1")


def fill(path: Path) -> None:
    bytearray(2 * fuzzer.MEMORY)


def hang(path: Path) -> None:
    while True:
        pass


def crash(path: Path) -> None:
    os.abort()


def break_off(path: Path) -> None:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        (leave, "writes"),
        (start, "os.system"),
        (unpickle, "find_class"),
        (evaluate, "executes"),
        (fill, "MemoryError"),
        (hang, "Hang"),
        (crash, "the process ended with -6"),
        (break_off, "KeyError"),
    ],
)
def test_the_fuzzer_sees_what_it_looks_for(
    monkeypatch: pytest.MonkeyPatch, misbehave: Callable[[Path], None], words: str
) -> None:
    def build(folder: Path) -> list[Path]:
        (folder / "input").write_bytes(b"valid")
        return [folder / "input"]

    def read(path: Path) -> None:
        if path.read_bytes() != b"valid":
            misbehave(path)

    monkeypatch.setitem(PARSERS, "odd", Parser(build, read))
    monkeypatch.setattr(fuzzer, "SECONDS", 0.2)
    with fuzzer.scratch() as folder:
        outcomes, failures = fuzzer.run("odd", 3, 0, folder)
    assert outcomes["failed"] >= 1 and words in failures[0]["what"]
