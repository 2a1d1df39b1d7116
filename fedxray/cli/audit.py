"""`fedxray audit` and `demo`: their output, progress and exit codes."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedxray.cli.time_left import EstimatedProgress
from fedxray.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.progress import Progress as Bar, Task as BarTask, TaskID
    from rich.table import Table

    from fedxray.audit.plan import Plan
    from fedxray.audit.run.audit import Completed
    from fedxray.audit.workers.engines import Progress

FAILED, INTERRUPTED = 4, 130
INTERRUPTED_IN = "fedxray: interrupted; completed work is stored in {}, continue with --resume"


def run_audit(
    file: Path,
    out: Path | None,
    workers: dict[str, Any],
    resume: bool,
    budget: str | None,
    dry_run: bool,
    quiet: bool,
    seeds: int | None = None,
) -> int:
    """Audit a plan and return the exit code; `workers` are engine, jobs and address, `seeds` their number in total."""
    compute_with_one_thread()
    from fedxray.audit.workers.engines import importing

    with importing():
        from fedxray.audit.plan import read_plan
        from fedxray.audit.run import audit
        from fedxray.audit.run.preflight import try_factories
        from fedxray.audit.run.store import MARKER

    plan = read_plan(file)
    folder = out if out is not None else Path("fedxray-out", plan.name)
    _print_imports(plan)
    try_factories(plan)
    if dry_run and seeds is not None:
        plan = plan.with_seeds(range(seeds))
    if dry_run:
        return _print_needs(plan, folder, workers, budget)
    if resume and not (folder / MARKER).is_file():
        print(f"fedxray: nothing to resume in {printable(str(folder))}: starting anew", file=sys.stderr)
    if (plan.data.name is None or plan.transcript is not None) and not quiet:
        _print_data(plan, sys.stderr)
    try:
        with progress_bar(quiet) as progress:
            ended = audit.run_audit(
                plan, folder, **workers, resume=resume, budget=budget, seeds=seeds, progress=progress
            )
    except KeyboardInterrupt:
        print(INTERRUPTED_IN.format(folder), file=sys.stderr)
        return INTERRUPTED
    return _print_end(ended, quiet, file)


def run_demo(out: Path, engine: str, jobs: int | None, quiet: bool) -> int:
    """Audit the shipped plans into one report and return the exit code."""
    compute_with_one_thread()
    from fedxray.audit.run import audit

    try:
        with progress_bar(quiet) as progress:
            ended = audit.run_demo(out, engine=engine, jobs=jobs, progress=progress)
    except KeyboardInterrupt:
        print("fedxray: interrupted", file=sys.stderr)
        return INTERRUPTED
    return _print_end(ended, quiet)


def compute_with_one_thread() -> None:
    """Limit numerical libraries to one thread, before they are loaded: results must not depend on cores."""
    from fedxray.audit.workers.engines import ONE_THREAD

    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")


def _print_imports(plan: Plan) -> None:
    """Print the third-party code that this plan runs, and the plug-ins that are ignored."""
    from fedxray.cli.show import warnings_of
    from fedxray.plugins import GROUPS

    for spec in plan.factories():
        print(f"fedxray: this plan imports {spec}", file=sys.stderr)
    for plugin in plan.third_party():
        line = "this plan uses the {kind} {name} (third-party, from {distribution} {version})".format(**plugin)
        print(f"fedxray: {line}", file=sys.stderr)
    for sentence in warnings_of(GROUPS):
        print(f"fedxray: warning: {sentence}", file=sys.stderr)


def _print_data(plan: Plan, stream: TextIO) -> None:
    """Print how the data was read, so that a misread column is noticed."""
    from fedxray.audit.run.dry_run import understood
    from fedxray.audit.run.prepare import prepare_first

    prepared = prepare_first(plan)
    for line in understood(prepared):
        print(line, file=stream)
    if plan.transcript is not None:
        from fedxray.audit.recorded.prepare import rounds_learnt
        from fedxray.audit.run.dry_run import learnt

        print(learnt(*rounds_learnt(plan, prepared)), file=stream)


def _print_needs(plan: Plan, folder: Path, workers: dict[str, Any], budget: str | None) -> int:
    """Print how the data was read, and cases, time and disk of an audit, without running it."""
    from fedxray.audit.judge.statistics import AUTO_LOOKS
    from fedxray.audit.run.audit import check_room, megabytes
    from fedxray.audit.run.dry_run import can_settle, presets, rows_sought
    from fedxray.audit.run.grid import expand
    from fedxray.audit.run.preflight import STARTING, preflight
    from fedxray.audit.run.prepare import prepare_first
    from fedxray.audit.workers.engines import make_engine, worker_count

    count = worker_count(workers["engine"], workers["jobs"])
    with make_engine(workers["engine"], workers["jobs"], workers["address"]):
        needed = preflight(plan)
    seconds, power, lines = needed.seconds, needed.power_seconds, []
    if budget is not None:
        from fedxray.audit.run.budget import decide, left_out, parse_budget, within_budget

        chosen = decide(plan, needed, parse_budget(budget, count))
        power, lines = chosen["estimate"]["power"], list(left_out(plan, chosen))
        seconds = chosen["estimate"]["chosen"] - power
        plan = within_budget(plan, chosen)
    runs, cases = expand(plan)
    _print_data(plan, sys.stdout)
    print(f"{'runs':<12}{len(runs)}")
    twice = any(not part.is_none for part in plan.defences)
    aside = "; under a defence each runs twice, by an attacker that knows it and by one that does not" if twice else ""
    print(f"{'cases':<12}{len(cases)}{aside}")
    most = STARTING + seconds / count * AUTO_LOOKS[-1] / AUTO_LOOKS[0]
    longest = f", up to {duration(most)} if it takes 20 seeds to decide"
    print(f"{'time':<12}about {duration(STARTING + seconds / count)}{longest if plan.is_auto else ''}")
    by_attack = Counter(case.attack for case in cases) if budget is None else {}
    for title, number in by_attack.items():
        print(f"{'':<12}{printable(title)}: {number} cases, {duration(number * needed.case_seconds(title) / count)}")
    if power:
        print(f"{'power':<12}up to {duration(power / count)} more, if a verdict requires a power check")
    print(f"{'disk':<12}about {megabytes(needed.bytes)}")
    for line in lines:
        print(f"{'left out':<12}{line}")
    for line in presets(plan, prepare_first(plan)):
        print(f"{'preset':<12}{printable(line)}")
    for line in rows_sought(plan, prepare_first(plan)):
        print(f"{'rows sought':<12}{printable(line)}")
    for line in can_settle(plan, prepare_first(plan)):
        print(f"{'settles':<12}{printable(line)}")
    print_sum_errors(plan)
    check_room(folder, needed.bytes)
    return 0


def print_sum_errors(plan: Plan) -> None:
    """Print the error of attacks that treat all clients as one."""
    if plan.transcript is not None:
        return
    from fedxray.audit.run.dry_run import words
    from fedxray.audit.run.prepare import prepare_first

    for line in words(plan, prepare_first(plan)):
        print(f"{'sums':<12}{printable(line)}")


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_end(ended: Completed, quiet: bool, file: Path | None = None) -> int:
    """Write the report, print the summary and what failed, and return the exit code; `file` is the plan as typed."""
    from fedxray.audit.judge.results import failure_line
    from fedxray.report import build_report, placed, print_summary

    document = placed(ended.document, ended.folder)
    if file is not None and not file.is_absolute():
        document["plan_file"] = file.as_posix()
    report = build_report(ended.folder, document=document)
    for line in ended.document.get("budget", {}).get("left_out", ()):
        print(f"fedxray: left out because of the time limit: {printable(line)}", file=sys.stderr)
    if not quiet:
        print_summary(document)
        print(f"Report: {report}")
    line = failure_line(ended.document["cases"])
    if line is not None:
        print(f"fedxray: {line}", file=sys.stderr)
    return 0 if line is None else FAILED


# Progress


@dataclass
class BarProgress(EstimatedProgress):
    """Progress as a bar in the terminal."""

    bar: Bar
    line: TaskID
    names: dict[str, str] = field(default_factory=dict, kw_only=True)  # of the audit, if there are several, and stage

    def audit(self, name: str) -> None:
        """Name the audit that begins."""
        self.names = {"audit": name}
        self.forget()

    def stage(self, name: str) -> None:
        """Name the stage that begins: percentage and time left are of it alone."""
        self.names["stage"] = name

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(f"fedxray: {printable(line)}", markup=False, highlight=False, soft_wrap=True)

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Start again with these tasks."""
        super().weigh(seconds)
        stage = ", ".join(self.names.values())
        self.bar.reset(self.line, total=1.0 if seconds else None, description="starting", count="", stage=stage)

    def start(self, label: str) -> None:
        """Show that a task has started."""
        super().start(label)
        self.bar.update(self.line, description=spoken(label))

    def __call__(self, done: int, total: int, label: str) -> None:
        """Show that a task has ended."""
        self.end(label, done, total)
        count = f"{done}/{total}"
        self.bar.update(self.line, completed=self.share_done(), total=1.0, description=spoken(label), count=count)


EVERY = 60.0  # seconds between lines on progress


@dataclass
class NotedProgress:
    """Progress without a terminal: a line when a stage begins, on what it found, and one a minute as tasks end."""

    clock: Callable[[], float] = time.monotonic
    names: dict[str, str] = field(default_factory=dict)  # of the audit, if there are several, and stage
    begun: float = field(init=False)
    said: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.begun = self.said = self.clock()

    def audit(self, name: str) -> None:
        """Take the name of the audit that begins."""
        self.names = {"audit": name}

    def stage(self, name: str) -> None:
        """Print the stage that begins."""
        self.names["stage"] = name
        self.note(f"running {', '.join(self.names.values())}")

    def note(self, line: str) -> None:
        """Print a line, such as what a stage found."""
        self.said = self.clock()
        print(f"fedxray: {printable(line)}", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int, label: str) -> None:
        """Print how far a stage is, a minute after the last line."""
        if self.clock() - self.said >= EVERY:
            self.note(f"{', '.join(self.names.values())}: {done}/{total} after {duration(self.clock() - self.begun)}")


IDENTITY = re.compile(r"(.+)-[0-9a-f]{10}")  # of a run or case: its place in the grid, and a digest
NUMBERED = re.compile(r"(seed|client)(\d+)")


def spoken(label: str) -> str:
    """Return what is running in words: attack, defence, seed and client, without role and digest."""
    from fedxray.adversary.grants import ROLES

    identity = IDENTITY.fullmatch(label)
    if identity is None:
        return label
    return ", ".join(NUMBERED.sub(r"\1 \2", part) for part in identity[1].split(".") if part not in ROLES)


def time_left(progress: EstimatedProgress) -> str:
    """Return the time left in words; empty as long as it cannot be known."""
    seconds = progress.seconds_left()
    return "" if seconds is None else f"{duration(seconds)} left"


LONGEST_BAR, SHORTEST_BAR = 12, 4
ROOM = 76  # columns that numbers and label get before the bar becomes longer: it is the first to shrink


def bar_width(width: int, numbers: int) -> int:
    """Return the width of the bar in a line of which numbers take a part; 0 where there is no room for it."""
    if width < numbers + 1 + SHORTEST_BAR:
        return 0
    return min(LONGEST_BAR, max(SHORTEST_BAR, width - ROOM))


@dataclass
class BarLine:
    """A bar with its numbers on one line: percentage, count and time left stay whole, the label is cut at its end."""

    task: BarTask
    progress: EstimatedProgress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yield a table of one line that is as wide as the terminal."""
        from rich.progress import BarColumn
        from rich.table import Table
        from rich.text import Text

        task, width = self.task, options.max_width
        left, stage = time_left(self.progress), task.fields.get("stage", "")
        numbers = " ".join(part for part in (f"{task.percentage:>3.0f} %", task.fields["count"], left) if part)
        label = f"{'for ' if left else ''}{stage}: {task.description}" if stage else task.description
        bar = bar_width(width, len(numbers))
        rest = width - len(numbers) - 1 - (bar + 1 if bar else 0)
        cells: list[tuple[int, RenderableType]] = [(bar, BarColumn(bar_width=bar).render(task))] if bar else []
        cells.append((len(numbers), Text(numbers)))
        cells += [(rest, Text(printable(label)))] if rest > 0 else []
        table = Table.grid(padding=(0, 1))
        for room, _ in cells:
            table.add_column(width=room, no_wrap=True, overflow="ellipsis")
        table.add_row(*(cell for _, cell in cells))
        yield table


@contextmanager
def progress_bar(quiet: bool, console: Console | None = None) -> Iterator[Progress]:
    """Show a bar with the time left, on a terminal only; else lines on the stages of an audit and every minute."""
    from fedxray.audit.run.audit import silent

    if quiet:
        yield silent
        return
    if console is None and not sys.stderr.isatty():
        yield NotedProgress()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar, ProgressColumn

    class Line(ProgressColumn):
        def render(self, task: BarTask) -> BarLine:
            return BarLine(task, meter)

    bar = Bar(Line(), console=console or Console(stderr=True), transient=True)
    meter = BarProgress(bar, bar.add_task("starting", total=None, count=""))
    with bar:
        yield meter
