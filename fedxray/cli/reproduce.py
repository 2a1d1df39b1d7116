"""`fedxray reproduce`: its output, progress and exit codes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.cli.audit import (
    FAILED,
    INTERRUPTED,
    INTERRUPTED_IN,
    EstimatedProgress,
    compute_with_one_thread,
    duration,
    progress_bar,
)

if TYPE_CHECKING:
    from fedxray.audit.workers.engines import Progress
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
    """Reproduce a published table and return the exit code."""
    compute_with_one_thread()
    from fedxray.audit.workers.engines import importing

    with importing():
        from fedxray.audit.judge.results import failure_line
        from fedxray.reproduce.run import cases_of, job, reproduce

    names = tuple(part.strip() for part in columns.split(",")) if columns else ()
    asked = job(name, request, tuple(rows), names)
    folder = out if out is not None else Path("fedxray-out", name)
    if dry_run:
        return _print_needs(asked, engine, jobs)
    try:
        with row_progress(quiet) as progress:
            ended = reproduce(asked, folder, engine=engine, jobs=jobs, resume=resume, progress=progress)
    except KeyboardInterrupt:
        print(INTERRUPTED_IN.format(folder), file=sys.stderr)
        return INTERRUPTED
    if not quiet:
        from fedxray.reproduce.pages import print_tables

        print_tables(ended.document)
        print(f"Written: {folder / 'reproduction.json'}, {folder / 'reproduction.md'}")
    line = failure_line(cases_of(asked.reproduction, folder))
    if line is not None:
        print(f"fedxray: {line}", file=sys.stderr)
    return 0 if line is None else FAILED


def _print_needs(asked: ReproductionJob, engine: str, jobs: int | None) -> int:
    """Print cases, time and disk of every row, without running it."""
    from fedxray.audit.run.audit import megabytes
    from fedxray.audit.run.preflight import preflight
    from fedxray.audit.workers.engines import make_engine, worker_count
    from fedxray.report.words import count

    workers = worker_count(engine, jobs)
    with make_engine(engine, jobs):
        for row, plan in asked.plans().items():
            needed = preflight(plan)
            about = f"about {duration(needed.seconds / workers)}, {megabytes(needed.bytes)}"
            print(f"{row:<24}{count(needed.cases, 'case')}, {about}")
    if asked.reproduction.plan is None:
        print("\n".join(f"{row:<24}measured directly, without an audit" for row in asked.rows))
    return 0


@contextmanager
def row_progress(quiet: bool) -> Iterator[Progress]:
    """Show a bar on a terminal, and a line per case in a log, since this may take hours."""
    if quiet or sys.stderr.isatty():
        with progress_bar(quiet) as progress:
            yield progress
        return
    yield LineProgress(clock=time.monotonic, write=lambda line: print(line, file=sys.stderr, flush=True))


@dataclass(kw_only=True)
class LineProgress(EstimatedProgress):
    """Progress in lines: tasks done, time spent, and the estimated time left."""

    clock: Callable[[], float]
    write: Callable[[str], None]
    start: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.start = self.clock()

    def __call__(self, done: int, total: int, label: str) -> None:
        """Print that a task has ended."""
        completed, end = self.advance(done, total, label)
        spent = self.clock() - self.start
        rest = f", about {duration(spent / completed * (end - completed))} left" if completed else ""
        self.write(f"{done}/{total} after {duration(spent)}{rest}: {label}")
