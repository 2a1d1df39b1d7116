"""`fedxray reproduce`: what it prints and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.cli.audit import FAILED, INTERRUPTED, compute_with_one_thread, duration, progress_bar

if TYPE_CHECKING:
    from fedxray.audit.run.engines import Progress
    from fedxray.reproduce.base import Request
    from fedxray.reproduce.run import ReproductionJob


def run_reproduction(
    name: str,
    request: Request,
    rows: list[str],
    columns: str | None,
    out: Path | None,
    engine: str,
    jobs: int | None,
    resume: bool,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Reproduce a published table; returns the exit code."""
    compute_with_one_thread()
    from fedxray.reproduce.run import job, reproduce

    names = tuple(part.strip() for part in columns.split(",")) if columns else ()
    asked = job(name, request, tuple(rows), names)
    folder = out if out is not None else Path("fedxray-out", name)
    if dry_run:
        return _print_needs(asked, engine, jobs)
    try:
        with telling(quiet) as progress:
            ended = reproduce(asked, folder, engine=engine, jobs=jobs, resume=resume, progress=progress)
    except KeyboardInterrupt:
        print(f"fedxray: interrupted; what is done is kept in {folder}, go on with --resume", file=sys.stderr)
        return INTERRUPTED
    if not quiet:
        from fedxray.reproduce.pages import print_tables

        print_tables(ended.document)
        print(f"Written: {folder / 'reproduction.json'}, {folder / 'reproduction.md'}")
    if ended.failed:
        print(f"fedxray: {ended.failed} cases failed; try them again with --resume", file=sys.stderr)
        return FAILED
    return 0


def _print_needs(asked: ReproductionJob, engine: str, jobs: int | None) -> int:
    """Cases, time and disk of every row, without running it."""
    from fedxray.audit.run.audit import megabytes
    from fedxray.audit.run.engines import cores, make_engine
    from fedxray.audit.run.preflight import preflight
    from fedxray.report.words import count

    hands = 1 if engine == "inline" else jobs or cores()
    with make_engine(engine, jobs):
        for row, plan in asked.plans().items():
            needed = preflight(plan)
            about = f"about {duration(needed.seconds / hands)}, {megabytes(needed.bytes)}"
            print(f"{row:<24}{count(needed.cases, 'case')}, {about}")
    if asked.reproduction.plan is None:
        print("\n".join(f"{row:<24}measured directly, without an audit" for row in asked.rows))
    return 0


@contextmanager
def telling(quiet: bool) -> Iterator[Progress]:
    """A bar where somebody looks; a line for every case in a log, since this may take hours."""
    if quiet or sys.stderr.isatty():
        with progress_bar(quiet) as progress:
            yield progress
        return
    yield Lines(clock=time.monotonic, say=lambda line: print(line, file=sys.stderr, flush=True))


@dataclass
class Lines:
    """Progress in lines: how far it is, and how long the rest takes at the pace so far."""

    clock: Callable[[], float]
    say: Callable[[str], None]
    costs: Mapping[str, float] = field(default_factory=dict)  # by label, what each is thought to take
    passed: float = 0.0
    start: float = field(init=False)

    def __post_init__(self) -> None:
        """The clock runs from now on."""
        self.start = self.clock()

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Hear what is to come; a first task of an hour says little of a second one of a minute."""
        self.costs, self.passed = dict(seconds), 0.0

    def __call__(self, done: int, total: int, label: str) -> None:
        """One has ended; where nobody said what it takes, all count the same."""
        self.passed += self.costs.get(label, 0.0)
        came, whole = (self.passed, sum(self.costs.values())) if self.costs else (done, total)
        spent = self.clock() - self.start
        rest = f", about {duration(spent / came * (whole - came))} left" if came else ""
        self.say(f"{done}/{total} after {duration(spent)}{rest}: {label}")
