"""`fedxray reproduce`: its output, progress and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedxray.cli.audit import FAILED, INTERRUPTED, INTERRUPTED_IN, compute_with_one_thread, duration, progress_bar
from fedxray.cli.time_left import EstimatedProgress

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
        _print_needs(asked, engine, jobs)
        return 0
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


def run_all(request: Request, out: Path | None, engine: str, jobs: int | None, dry_run: bool, quiet: bool) -> int:
    """Run every reproduction in a folder of its own, go on after one that cannot run, and write the scoreboard."""
    compute_with_one_thread()
    from fedxray.errors import BadInput, MissingData
    from fedxray.files import write_whole
    from fedxray.report.words import count
    from fedxray.reproduce.base import REPRODUCTIONS
    from fedxray.reproduce.document import NAME, read
    from fedxray.reproduce.run import is_reproduction, job
    from fedxray.reproduce.scoreboard import page

    folder, codes, seconds = out if out is not None else Path("fedxray-out", "all"), [], 0.0
    missing: dict[str, list[str]] = {}  # reproductions that are left out, by their data set
    direct = 0
    for name in REPRODUCTIONS:
        try:
            if dry_run:
                asked = job(name, request)
                seconds += _print_needs(asked, engine, jobs, before=f"{name} ")
                direct += asked.reproduction.plan is None
                continue
            resume = is_reproduction(folder / name)
            codes.append(run_reproduction(name, request, [], None, folder / name, engine, jobs, resume, False, quiet))
        except MissingData as error:
            missing.setdefault(error.argument.removeprefix("data set "), []).append(name)
            codes.append(FAILED)
        except BadInput as error:  # such as a library that is not installed
            print(f"fedxray: {name}: left out: {error}", file=sys.stderr)
            codes.append(FAILED)
        if INTERRUPTED in codes:
            return INTERRUPTED
    _print_missing(missing)
    if dry_run:
        total = [f"In total about {duration(seconds)}"]
        total += [f"{count(direct, 'reproduction')} measured directly not counted"] if direct else []
        total += (
            [f"{count(sum(map(len, missing.values())), 'reproduction')} left out (data missing)"] if missing else []
        )
        print("; ".join(total) + ".")
        return 0
    documents = [read(folder / name) for name in REPRODUCTIONS if (folder / name / NAME).is_file()]
    write_whole(folder / "scoreboard.md", page(documents).encode("utf-8"), "page")
    print(f"Written: {folder / 'scoreboard.md'}")
    return max(codes)


def _print_missing(missing: Mapping[str, list[str]]) -> None:
    """Print which reproductions are left out, one line per data set that is not here."""
    from fedxray.data.sources import SOURCES
    from fedxray.errors import some
    from fedxray.report.words import count

    for data, names in missing.items():
        remedy = f"fedxray data get {data}" if data in SOURCES else "set FEDXRAY_DATA to a folder that has it"
        left_out = f"{count(len(names), 'reproduction')} left out ({some(names, 3)})"
        print(f"fedxray: data set {data} missing: {left_out}: {remedy}", file=sys.stderr)


def _print_needs(asked: ReproductionJob, engine: str, jobs: int | None, before: str = "") -> float:
    """Print cases, time and disk of every row, without running it; return the seconds of all together."""
    from fedxray.audit.run.audit import megabytes
    from fedxray.audit.run.preflight import preflight
    from fedxray.audit.workers.engines import make_engine, worker_count
    from fedxray.report.words import count

    workers, total, lines = worker_count(engine, jobs), 0.0, []
    with make_engine(engine, jobs):
        for row, plan in asked.plans().items():
            needed = preflight(plan)
            total += needed.seconds / workers
            about = f"about {duration(needed.seconds / workers)}, {megabytes(needed.bytes)}"
            lines.append(f"{before + row:<24} {count(needed.cases, 'case')}, {about}")
    if asked.reproduction.plan is None:
        lines += [f"{before + row:<24} measured directly, without an audit" for row in asked.rows]
    print("\n".join(lines), flush=True)  # all, or none where the data of a row are missing
    return total


@contextmanager
def row_progress(quiet: bool) -> Iterator[Progress]:
    """Show a bar on a terminal, and a line per case in a log, since this may take hours."""
    if quiet or sys.stderr.isatty():
        with progress_bar(quiet) as progress:
            yield progress
        return
    yield LineProgress(write=lambda line: print(line, file=sys.stderr, flush=True))


@dataclass(kw_only=True)
class LineProgress(EstimatedProgress):
    """Progress in lines: tasks done, time spent, and the estimated time left."""

    write: Callable[[str], None]
    opened: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        super().__post_init__()
        self.opened = self.clock()

    def __call__(self, done: int, total: int, label: str) -> None:
        """Print that a task has ended."""
        self.end(label, done, total)
        spent, left = self.clock() - self.opened, self.seconds_left()
        rest = "" if left is None else f", about {duration(left)} left"
        self.write(f"{done}/{total} after {duration(spent)}{rest}: {label}")
