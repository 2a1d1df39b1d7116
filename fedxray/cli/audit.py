"""`fedxray audit`, `demo`, `report` and `purge`: what they print and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fedxray.errors import FedxrayError, printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from fedxray.audit.plan import Plan
    from fedxray.audit.run.audit import Completed
    from fedxray.audit.run.engines import Progress

FAILED, INTERRUPTED = 4, 130


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The options that say where it is computed."""

    engine: str
    jobs: int | None
    address: str | None


def run_audit(
    file: Path,
    out: Path | None,
    workers: Workers,
    resume: bool,
    budget: str | None,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Audit a plan; returns the exit code."""
    compute_with_one_thread()
    from fedxray.audit.plan import read_plan

    plan = read_plan(file)
    folder = out if out is not None else Path("fedxray-out", plan.name)
    _tell_imports(plan)
    if dry_run:
        return _print_needs(plan, folder, workers, budget)
    if (plan.data.name is None or plan.transcript is not None) and not quiet:
        _tell_understood(plan, sys.stderr)
    from fedxray.audit.run import audit

    try:
        with progress_bar(quiet) as progress:
            ended = audit.run_audit(
                plan, folder, **vars(workers), resume=resume, budget=budget, progress=progress
            )
    except KeyboardInterrupt:
        print(f"fedxray: interrupted; what is done is kept in {folder}, go on with --resume", file=sys.stderr)
        return INTERRUPTED
    return _tell_end(ended, quiet)


def run_demo(out: Path, engine: str, jobs: int | None, quiet: bool) -> int:
    """Audit the shipped plans into one report; returns the exit code."""
    compute_with_one_thread()
    from fedxray.audit.run import audit

    try:
        with progress_bar(quiet) as progress:
            ended = audit.run_demo(out, engine=engine, jobs=jobs, progress=progress)
    except KeyboardInterrupt:
        print("fedxray: interrupted", file=sys.stderr)
        return INTERRUPTED
    return _tell_end(ended, quiet)


def run_report(folder: Path, show_private: bool, figures: str = "svg") -> None:
    """Write the report, or the page of a reproduction, again and say where it is."""
    from fedxray.audit.judge.results import RESULTS
    from fedxray.report import build_report

    if not (
        folder / RESULTS
    ).is_file():  # only a reproduction has none; its code imports torch, a report does not
        from fedxray.reproduce.run import is_reproduction, rebuild

        if is_reproduction(folder):
            print(rebuild(folder))
            return
    formats = tuple(part.strip() for part in figures.split(",") if part.strip())
    print(build_report(folder, show_private=show_private, formats=formats))


def run_purge(folder: Path, yes: bool) -> None:
    """Delete private/ of an audit, after asking."""
    from fedxray.audit.run.store import purge, read_marker

    read_marker(folder)
    if not yes:
        try:
            answer = input(f"Delete {folder / 'private'} for good? [y/N] ")
        except EOFError:
            raise FedxrayError(
                "nobody answered; nothing was deleted. Say --yes to delete without asking."
            ) from None
        if answer.strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return
    print(f"Deleted {folder / 'private'}." if purge(folder) else f"There is no {folder / 'private'}.")


def compute_with_one_thread() -> None:
    """Ask numerical libraries for one thread, before they are loaded: results must not depend on cores."""
    from fedxray.audit.run.engines import ONE_THREAD

    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")


def _tell_imports(plan: Plan) -> None:
    """Print the code of other people that this plan runs, and the plug-ins that are ignored."""
    from fedxray.cli.show import warnings_of
    from fedxray.plugins import GROUPS

    for spec in plan.factories():
        print(f"fedxray: this plan imports {spec}", file=sys.stderr)
    for plugin in plan.third_party():
        line = "this plan uses the {kind} {name} (third-party, from {distribution} {version})".format(
            **plugin
        )
        print(f"fedxray: {line}", file=sys.stderr)
    for sentence in warnings_of(GROUPS):
        print(f"fedxray: warning: {sentence}", file=sys.stderr)


def _tell_understood(plan: Plan, where: TextIO) -> None:
    """Say how the data was read, so that nobody audits a column that was misread."""
    from fedxray.audit.run.dry_run import understood
    from fedxray.audit.run.prepare import prepare

    prepared = prepare(plan, plan.defences[0].title, plan.seeds[0])
    for line in understood(prepared):
        print(line, file=where)
    if plan.transcript is not None:
        from fedxray.audit.recorded.prepare import rounds_learnt
        from fedxray.audit.run.dry_run import learnt

        print(learnt(*rounds_learnt(plan, prepared)), file=where)


def _print_needs(plan: Plan, folder: Path, workers: Workers, budget: str | None) -> int:
    """How the data was read, and cases, time and disk of an audit, without running it."""
    from fedxray.audit.run.audit import check_room, megabytes
    from fedxray.audit.run.engines import make_engine, worker_count
    from fedxray.audit.run.grid import expand
    from fedxray.audit.run.preflight import preflight

    hands = worker_count(workers.engine, workers.jobs)
    with make_engine(workers.engine, workers.jobs, workers.address):
        needed = preflight(plan)
    seconds, power, lines = needed.seconds, needed.power_seconds, []
    if budget is not None:
        from fedxray.audit.run.budget import decide, left_out, parse_budget, within_budget

        chosen = decide(plan, needed, parse_budget(budget, hands))
        power, lines = chosen["estimate"]["power"], list(left_out(plan, chosen))
        seconds = chosen["estimate"]["chosen"] - power
        plan = within_budget(plan, chosen)
    runs, cases = expand(plan)
    _tell_understood(plan, sys.stdout)
    print(f"{'runs':<12}{len(runs)}")
    print(f"{'cases':<12}{len(cases)}")
    print(f"{'time':<12}about {duration(seconds / hands)}")
    if power:
        print(f"{'power':<12}up to {duration(power / hands)} more, where a verdict waits for a power check")
    print(f"{'disk':<12}about {megabytes(needed.bytes)}")
    for line in lines:
        print(f"{'left out':<12}{line}")
    tell_sums(plan)
    check_room(folder, needed.bytes)
    return 0


def tell_sums(plan: Plan) -> None:
    """Say how far off the attacks are that take all clients for one."""
    if plan.transcript is not None:
        return
    from fedxray.audit.run.dry_run import words
    from fedxray.audit.run.prepare import prepare

    for line in words(plan, prepare(plan, plan.defences[0].title, plan.seeds[0])):
        print(f"{'sums':<12}{printable(line)}")


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _tell_end(ended: Completed, quiet: bool) -> int:
    from fedxray.report import build_report, print_summary

    report = build_report(ended.folder)
    for line in ended.document.get("budget", {}).get("left_out", ()):
        print(f"fedxray: left out to stay within the budget: {printable(line)}", file=sys.stderr)
    if not quiet:
        print_summary(ended.document)
        print(f"Report: {report}")
    cut = [case for case in ended.document["cases"] if case["status"] == "truncated" and not case["scores"]]
    code = 0
    if cut:
        told = "1 case was" if len(cut) == 1 else f"{len(cut)} cases were"
        print(f"fedxray: {told} cut off, the time was over; go on with --resume", file=sys.stderr)
        code = FAILED
    if ended.failed:
        reason = next(case["reason"] for case in ended.document["cases"] if case["status"] == "failed")
        print(f"fedxray: {ended.failed} cases failed, the first because: {reason}", file=sys.stderr)
        code = FAILED
    return code


@dataclass
class Meter:
    """Progress as a bar, in which every run and case is as long as it is thought to take."""

    bar: Bar
    line: TaskID
    costs: dict[str, float] = field(default_factory=dict)
    passed: float = 0.0

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Begin anew with what is to come."""
        self.costs, self.passed = dict(seconds), 0.0
        self.bar.reset(self.line, total=sum(self.costs.values()) or None, count="")

    def __call__(self, done: int, total: int, label: str) -> None:
        """One has ended; where nobody said what it takes, all count the same."""
        self.passed += self.costs.get(label, 0.0)
        completed, end = (self.passed, sum(self.costs.values())) if self.costs else (done, total)
        self.bar.update(self.line, completed=completed, total=end, description=label, count=f"{done}/{total}")


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """A bar with the time left, silent where nobody looks."""
    from fedxray.audit.run.audit import silent

    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Meter(bar, bar.add_task("starting", total=None, count=""))
