"""Feeds damaged inputs to every parser: `python -m tests.fuzz.run --inputs 1000000`.

Each input must be accepted or refused with a FedxrayError, within 10 seconds and 1 GB, without writing outside its
folder and without executing anything. Inputs are drawn from the seed, the parser and their number alone. Batches run in
forked processes, so that a crash, a full memory or a hang ends a batch and not the run; the next begins after it.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from fedxray.errors import FedxrayError
from tests.fuzz.mutate import mutate
from tests.fuzz.parsers import PARSERS, Parser

SECONDS = 10
MEMORY = 1024**3  # bytes beyond those of the process that forked
CAP = 128 * 1024**2  # FEDXRAY_MAX_BYTES: reading takes a multiple of it
BATCH = 500
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn", "os.kill")
EVALUATE = ("typing.py", "dataclasses.py", "environment.py", "namedtuple")
OUTSIDE = ("socket.connect", "socket.bind", "urllib.Request", "ctypes.dlopen", "pickle.find_class")


class Forbidden(BaseException):
    """An input made its reader do what no reader may do."""


class Hang(BaseException):
    """An input took too long."""


def run(name: str, inputs: int, seed: int, folder: Path) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Read that many damaged inputs of one parser; returns the number of each outcome, and the failures."""
    parser, outcomes, failures = PARSERS[name], Counter[str](), []
    inside = folder / name
    inside.mkdir()
    files = parser.build(inside)
    with _caps():
        for file in files:
            parser.read(file)  # valid inputs are accepted, and everything is imported before the first fork
        shared, done = mmap.mmap(-1, 24), 0  # number of the current input, accepted, refused
        log, stuck = folder / f"{name}.jsonl", folder / f"{name}.txt"
        while done < inputs:
            end = min(done + BATCH, inputs)
            shared[:] = bytes(24)
            _put(shared, 0, done)
            gc.collect()
            child = os.fork()
            if not child:
                try:
                    _batch(name, parser, files, range(done, end), seed, shared, (log, stuck), inside)
                finally:
                    os._exit(4)  # the copy must never go on as if it were this process
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            outcomes += Counter(accepted=_get(shared, 1), refused=_get(shared, 2))
            done = end if status == 0 else _get(shared, 0) + 1
            if status not in (0, 3):
                what = f"the process ended with {status}\n{stuck.read_text() if stuck.exists() else ''}"
                failures.append({"parser": name, "number": done - 1, "what": what})
    if log.exists():
        failures += [json.loads(line) for line in log.read_text().splitlines()]
    outcomes["failed"] = len(failures)
    return outcomes, failures


@contextmanager
def _caps() -> Iterator[None]:
    before = os.environ.get("FEDXRAY_MAX_BYTES")
    os.environ["FEDXRAY_MAX_BYTES"] = str(CAP)
    try:
        yield
    finally:
        del os.environ["FEDXRAY_MAX_BYTES"]
        if before is not None:
            os.environ["FEDXRAY_MAX_BYTES"] = before


def _put(shared: mmap.mmap, place: int, number: int) -> None:
    shared[8 * place : 8 * place + 8] = number.to_bytes(8, "little")


def _get(shared: mmap.mmap, place: int) -> int:
    return int.from_bytes(shared[8 * place : 8 * place + 8], "little")


def damaged(name: str, files: list[Path], originals: list[bytes], seed: int, number: int) -> tuple[Path, bytes]:
    """The file that an input replaces, and its content."""
    draw = random.Random(f"{seed}/{name}/{number}")
    chosen = draw.randrange(len(files))
    return files[chosen], mutate(draw, originals[chosen], originals)


def _batch(
    name: str,
    parser: Parser,
    files: list[Path],
    numbers: range,
    seed: int,
    shared: mmap.mmap,
    logs: tuple[Path, Path],
    inside: Path,
) -> None:
    """Read a batch of inputs in this process and end it: with 3 after a failure, since its state is not known then."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _too_long)  # processor time: a busy machine is no hang
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    originals = [file.read_bytes() for file in files]
    report = os.open(logs[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stuck = os.open(logs[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.chdir(inside)
    guard = _guard(inside)
    for number in numbers:
        _put(shared, 0, number)
        file, content = damaged(name, files, originals, seed, number)
        file.write_bytes(content)
        what = ""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        faulthandler.dump_traceback_later(20 * SECONDS, exit=True, file=stuck)  # for code that no signal interrupts
        guard.clear()
        try:
            parser.read(file)
            _put(shared, 1, _get(shared, 1) + 1)
        except FedxrayError as refused:
            _put(shared, 2, _get(shared, 2) + 1)
            what = f"a message of {len(str(refused))} characters" if len(str(refused)) > 6000 else ""
        except BaseException:  # noqa: BLE001
            what = traceback.format_exc()[-3000:]
        guard.append(True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        file.write_bytes(originals[files.index(file)])
        if what:
            line = {"parser": name, "seed": seed, "number": number, "what": what}
            os.write(report, json.dumps(line).encode() + b"\n")
            os._exit(3)
    os._exit(0)


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise Hang


def _guard(inside: Path) -> list[bool]:
    """Forbid this process to write outside a folder, to start programs and to run code that no file of it holds.

    The returned list switches the guard off while it is not empty.
    """
    off = [True]
    allowed = (str(inside), os.devnull)
    code = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "<frozen")

    def is_inside(path: Any) -> bool:
        return os.path.realpath(os.fsdecode(path)).startswith(allowed)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if off:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or (
                isinstance(mode, str) and mode[0] in "wax"
            )
            if writes and not isinstance(path, int) and not is_inside(path):
                raise Forbidden(f"writes {path!r}")
        elif event.startswith(STARTS) or event in OUTSIDE or (event in CHANGES and not is_inside(arguments[0])):
            raise Forbidden(f"{event} {arguments!r}")
        elif event == "exec" and isinstance(arguments[0], CodeType):
            # typing evaluates annotations, classes of modules get methods, and the report compiles its own templates
            frame = sys._getframe(1).f_code
            caller = frame.co_name if frame.co_name == "namedtuple" else Path(frame.co_filename).name
            if not arguments[0].co_filename.startswith(code) and caller not in EVALUATE:
                raise Forbidden(f"executes {arguments[0].co_filename!r} for {caller}")

    sys.addaudithook(hook)
    return off


def main() -> int:
    """Run all parsers, print a line on each, and return 1 where an input failed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--inputs", type=int, default=1_000_000, help="of all parsers together")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", choices=PARSERS, action="append", help="these parsers alone")
    options.add_argument("--failures", type=Path, help="write the failures to this file, one JSON object per line")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    names = chosen.only or list(PARSERS)
    total, failed = sum(PARSERS[name].share for name in names), 0
    with scratch() as folder:
        for name in names:
            outcomes, failures = run(name, round(chosen.inputs * PARSERS[name].share / total), chosen.seed, folder)
            failed += len(failures)
            seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
            print(f"{name:<12}{dict(outcomes)}, {seconds:.0f} CPU seconds so far", flush=True)
            for failure in failures[:3]:
                print(f"  input {failure['number']}: {failure['what'].strip().splitlines()[-1]}", flush=True)
            if chosen.failures is not None:
                with chosen.failures.open("a") as stream:
                    stream.writelines(json.dumps(failure) + "\n" for failure in failures)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{failed} failures; largest process {peak} MB")
    return int(failed > 0)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: every input is a file."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fedxray-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
