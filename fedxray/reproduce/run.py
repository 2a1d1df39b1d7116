"""Running a reproduction: plans checked, rows audited one after the other, results written beside the paper's numbers.

A folder holds one reproduction at one scale: an audit (or measured.json) for every row, the history of commands,
reproduction.json and reproduction.md. With --resume a row can be extended by further clients, seeds or attacks; results
that are there stay.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedxray.audit.judge.results import RESULTS, failed_cases, read_results
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.audit import Completed, WeightedProgress, costs, run_audit, silent, unfinished
from fedxray.audit.run.extend import extended
from fedxray.audit.run.grid import expand
from fedxray.audit.run.preflight import Estimate, preflight
from fedxray.audit.run.store import Store
from fedxray.audit.workers.engines import Engine, Progress, StartProgress, Task, make_engine
from fedxray.errors import BadInput
from fedxray.files import LOCK, locked, read_json, read_object, write_whole
from fedxray.report import build_report
from fedxray.report.build import REPORT
from fedxray.reproduce import document as documents
from fedxray.reproduce.base import Measured, Reproduction, Request, TableColumn, Unit, find
from fedxray.reproduce.document import Cell, cells_of_audit, cells_of_measured, costs_of_audit, searches_of_audit
from fedxray.reproduce.pages import markdown

KIND = "reproduction"
REQUEST, PAGE, MEASURED, HISTORY = "request.json", "reproduction.md", "measured.json", "history.json"


@dataclass(frozen=True, kw_only=True)
class ReproductionJob:
    """A reproduction to be run: the request, and the rows and columns chosen."""

    reproduction: Reproduction
    request: Request
    rows: tuple[str, ...]
    columns: tuple[TableColumn, ...]

    def plans(self) -> dict[str, Plan]:
        """Return the checked plan of every row; none where rows are measured directly."""
        if self.reproduction.plan is None:
            return {}
        plans = {}
        for row in self.rows:
            content = self.reproduction.plan(self.request, row)
            attacks = [settings for settings in content["attack"] if self._wants(settings)]
            if not attacks:
                remedy = "Choose other rows or columns."
                got = f"nothing to measure in row {row}"
                raise BadInput("--columns", expected="columns of every row", got=got, remedy=remedy)
            if not self.request.controls:
                attacks = [{**settings, "controls": []} for settings in attacks]
            name = f"{self.reproduction.name}.{row}"
            plans[row] = make_plan({**content, "name": name, "attack": attacks}, Path.cwd())
        return plans

    def _wants(self, attack: Mapping[str, Any]) -> bool:
        """Whether a column is of this attack, raw or restored (label+restorer)."""
        label = attack.get("label", attack.get("name"))
        return any(label in (column.attack, column.attack.partition("+")[0]) for column in self.columns)

    def command(self) -> str:
        """Return the command line of this job."""
        words = ["fedxray", "reproduce", self.reproduction.name, "--scale", self.request.scale]
        for option, given in (("--clients", self.request.clients), ("--seeds", self.request.seeds)):
            words += [option, str(given)] if given is not None else []
        if self.rows != self.reproduction.chosen_rows((), self.request):
            words += [word for row in self.rows for word in ("--row", row)]
        if self.columns != self.reproduction.columns:
            words += ["--columns", ",".join(dict.fromkeys(column.name for column in self.columns))]
        words += [] if self.request.controls else ["--no-controls"]
        return shlex.join(words)


def job(name: str, request: Request, rows: tuple[str, ...] = (), columns: tuple[str, ...] = ()) -> ReproductionJob:
    """Return the job of a named reproduction; misspelt names of it, its rows and columns are refused."""
    reproduction = find(name)
    return ReproductionJob(
        reproduction=reproduction,
        request=request,
        rows=reproduction.chosen_rows(rows, request),
        columns=reproduction.chosen_columns(columns),
    )


def reproduce(
    asked: ReproductionJob,
    folder: Path,
    *,
    engine: str = "inline",
    jobs: int | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Completed:
    """Run all rows into a folder and write the comparison with the paper; `progress` counts cases."""
    plans = asked.plans()
    with make_engine(engine, jobs) as workers:
        _check_folder(asked, folder, resume)
        _make_folder(folder)
        with locked(folder):
            _check_folder(asked, folder, resume)  # another command may have been faster
            check_rows(asked.reproduction, asked.rows, folder)
            _mark(asked, folder)
            if asked.reproduction.plan is None:
                _measure_rows(asked, folder, workers, progress)
            else:
                _audit_rows(asked, plans, folder, workers, progress, resume)
            return write_comparison(asked.reproduction, asked.request.scale, folder)


def write_comparison(reproduction: Reproduction, scale: str, folder: Path) -> Completed:
    """Write reproduction.json and the page from all rows that a folder holds."""
    rows = [read_row(reproduction, folder, row) for row in finished_rows(reproduction, folder)]
    content = documents.document(
        reproduction,
        scale,
        [cell for row in rows for cell in row.cells],
        summarise_history(folder),
        [cost for row in rows for cost in row.costs],
        [search for row in rows for search in row.searches],
    )
    documents.write(content, folder)
    write_whole(folder / PAGE, markdown(content).encode("utf-8"), "page")
    return Completed(folder=folder, document=content, failed=len(failed_cases(cases_of(reproduction, folder))))


def is_reproduction(folder: Path) -> bool:
    """Whether a folder is a reproduction's."""
    return (folder / REQUEST).is_file() and read_object(folder / REQUEST).get("kind") == KIND


def rebuild(folder: Path) -> Path:
    """Write the files of a reproduction again from the results of its rows, without running anything."""
    marker = read_object(folder / REQUEST)
    reproduction = find(str(marker.get("name")))
    write_comparison(reproduction, str(marker.get("scale")), folder)
    for row in finished_rows(reproduction, folder) if reproduction.plan is not None else ():
        build_report(folder / row)
    return folder / PAGE


def cases_of(reproduction: Reproduction, folder: Path) -> list[dict[str, Any]]:
    """Return the cases of all finished rows; rows that are measured directly have none."""
    rows = finished_rows(reproduction, folder) if reproduction.plan is not None else []
    return [case for row in rows for case in read_results(folder / row)["cases"]]


# Rows that are audits


def _audit_rows(
    asked: ReproductionJob, plans: Mapping[str, Plan], folder: Path, workers: Engine, progress: Progress, resume: bool
) -> None:
    """Run one audit after the other, each in its own folder with its own report."""
    reproduction = asked.reproduction
    informed = {row: with_earlier_row(reproduction, row, plan, folder) for row, plan in plans.items()}
    plans = {row: extended(folder / row, plan) if resume else plan for row, plan in informed.items()}
    total, ended = sum(_left(plan, folder / row) for row, plan in plans.items()), 0
    log, estimates = Store(folder).log, {}
    if total and isinstance(progress, WeightedProgress):  # every row is rehearsed before the first begins
        estimates = {row: preflight(plan) for row, plan in plans.items() if _left(plan, folder / row)}
        progress.weigh(_costs(plans, estimates, folder))
    with noted(folder, asked.command()) if total else nullcontext():
        log(f"{asked.command()}: {total} cases in {len(plans)} rows")
        for row, waiting in plans.items():
            plan = with_earlier_row(reproduction, row, waiting, folder)
            ids = {case.id for case in expand(plan)[1]}
            counter = RowProgress(progress, row, ids, total, ended)
            done = run_audit(
                plan,
                folder / row,
                engine=workers,
                resume=resume,
                progress=counter,
                power=False,
                estimate=estimates.get(row),
            )
            ended = counter.ended
            log(f"{row}: ended, {done.failed} of {len(ids)} cases failed")
            if not _has_report(folder / row):
                build_report(folder / row)


@dataclass
class RowProgress:
    """Progress of one row as part of all rows, whose ended cases it counts."""

    progress: Progress
    row: str
    ids: set[str]  # of its cases
    total: int
    ended: int

    def start(self, label: str) -> None:
        """Report that a task of the row starts."""
        if isinstance(self.progress, StartProgress):
            self.progress.start(f"{self.row} {label}")

    def __call__(self, done: int, total: int, label: str) -> None:
        """Report that a task of the row has ended; runs and trials are not counted."""
        self.ended += label in self.ids
        self.progress(self.ended, self.total, f"{self.row} {label}")


def _costs(plans: Mapping[str, Plan], estimates: Mapping[str, Estimate], folder: Path) -> dict[str, float]:
    """Return the estimated seconds of every unfinished run and case, by the label of its progress."""
    seconds: dict[str, float] = {}
    for row, needed in estimates.items():
        runs, cases = unfinished(Store(folder / row), *expand(plans[row]))
        seconds |= {f"{row} {label}": cost for label, cost in costs(plans[row], needed, runs, cases).items()}
    return seconds


def _has_report(folder: Path) -> bool:
    """Whether a row's report is of its present results."""
    report = folder / REPORT
    return report.is_file() and report.stat().st_mtime_ns > (folder / RESULTS).stat().st_mtime_ns


def _left(plan: Plan, folder: Path) -> int:
    """Return the number of cases of a plan that have not ended, or failed and are retried."""
    store = Store(folder)
    ids = [case.id for case in expand(plan)[1]]
    return sum(not store.has_case(case) or store.read_case(case)["status"] == "failed" for case in ids)


# Rows that are measured directly


def _measure_rows(asked: ReproductionJob, folder: Path, workers: Engine, progress: Progress) -> None:
    """Measure the rows that have no result of this request yet, as tasks of the engine."""
    tasks = []
    for row in asked.rows:
        argument = {"name": asked.reproduction.name, "request": asdict(asked.request), "row": row}
        file = folder / row / MEASURED
        if file.is_file() and read_object(file).get("request") == asdict(asked.request):
            continue
        argument["file"] = str(file)
        tasks.append(Task(label=row, function=f"{__name__}:work_on_row", item=argument))
    with noted(folder, asked.command()) if tasks else nullcontext():
        Store(folder).log(f"{asked.command()}: {len(tasks)} rows")
        failures = workers.run(tasks, progress)
    for failure in failures:
        Store(folder).log(f"{failure.task.label}: {failure.reason}")
    if failures:
        first = failures[0]
        raise BadInput(f"row {first.task.label}", expected="an end", got=first.reason, remedy="Try --resume.")


def work_on_row(argument: Mapping[str, Any]) -> None:
    """Measure one row, in this process or in a worker."""
    reproduction, request = find(argument["name"]), Request(**argument["request"])
    assert reproduction.measure is not None
    cells = [asdict(cell) for cell in reproduction.measure(request, argument["row"])]
    file = Path(argument["file"])
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": 1, "request": argument["request"], "cells": cells}, allow_nan=False)
    write_whole(file, text.encode("ascii"), "measured row")


# The folder of a reproduction


def _check_folder(asked: ReproductionJob, folder: Path, resume: bool) -> None:
    """Refuse a folder of something else, or this reproduction's own without --resume."""
    if folder.exists() and not folder.is_dir():
        raise _not_usable(folder, "a file")
    held = sorted(entry.name for entry in folder.iterdir() if entry.name != LOCK) if folder.is_dir() else []
    if not held:
        return
    if REQUEST not in held:
        raise _not_usable(folder, f"a folder with other files ({held[0]})")
    if read_object(folder / REQUEST) != _marker(asked):
        raise _not_usable(folder, "the folder of another reproduction or scale")
    if not resume:
        raise BadInput(
            "--out",
            expected="a new folder",
            got=f"{folder}, which holds this reproduction already",
            remedy="Continue with --resume, or choose another --out.",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _not_usable(folder, "a file is in the way") from None


def _mark(asked: ReproductionJob, folder: Path) -> None:
    """Write the reproduction and its scale into a new folder."""
    if not (folder / REQUEST).is_file():
        write_whole(folder / REQUEST, (json.dumps(_marker(asked)) + "\n").encode("ascii"), "marker")


def _marker(asked: ReproductionJob) -> dict[str, Any]:
    return {"format": 1, "kind": KIND, "name": asked.reproduction.name, "scale": asked.request.scale}


def _not_usable(folder: Path, got: str) -> BadInput:
    expected = "a new or empty folder, or this reproduction's own with --resume"
    return BadInput("--out", expected=expected, got=f"{folder}: {got}", remedy="Choose another --out.")


def finished_rows(reproduction: Reproduction, folder: Path) -> list[str]:
    """Return the rows that a folder holds results of, in the order of the table."""
    name = RESULTS if reproduction.plan is not None else MEASURED
    return [row for row in reproduction.rows if (folder / row / name).is_file()]


@dataclass(frozen=True, kw_only=True)
class Row:
    """The results of a row: its numbers, the utility under its defences and the settings its searches chose."""

    cells: list[Cell]
    costs: list[dict[str, Any]]
    searches: list[dict[str, Any]]


def read_row(reproduction: Reproduction, folder: Path, row: str) -> Row:
    """Read a finished row."""
    if reproduction.plan is not None:
        results = read_results(folder / row)
        return Row(
            cells=cells_of_audit(reproduction, row, results),
            costs=costs_of_audit(row, results),
            searches=searches_of_audit(reproduction, row, results),
        )
    cells = read_json(folder / row / MEASURED)["cells"]
    measured = [Measured(**{**cell, "units": tuple(Unit(**unit) for unit in cell["units"])}) for cell in cells]
    return Row(cells=cells_of_measured(reproduction, row, measured), costs=[], searches=[])


# Rows whose plan needs the results of an earlier row, such as the settings that a search chose
#
# These are read from the stored results, so an interrupted reproduction continues with the same plan.


def check_rows(reproduction: Reproduction, rows: Sequence[str], folder: Path) -> None:
    """Refuse a row without the one whose results it needs, unless the folder holds that one."""
    for row in rows:
        earlier = reproduction.follows[row].row if row in reproduction.follows else row
        if earlier not in rows and not (folder / earlier / RESULTS).is_file():
            expected = f"{earlier} too, whose results {row} needs"
            remedy = f"Add --row {earlier}, or continue with --resume in a folder that has it."
            raise BadInput("--row", expected=expected, got=f"{row} alone", remedy=remedy)


def with_earlier_row(reproduction: Reproduction, row: str, plan: Plan, folder: Path) -> Plan:
    """Return the plan with the results of the row it follows, if that one has ended."""
    follows = reproduction.follows.get(row)
    if follows is None or not (folder / follows.row / RESULTS).is_file():
        return plan
    return make_plan(follows.fill(plan.to_document(), read_results(folder / follows.row)), plan.folder)


# The history of a folder: every command that computed something in it, with its commit and its time


@contextmanager
def noted(folder: Path, command: str) -> Iterator[None]:
    """Record a command before it computes something, and its duration when it ends in any way.

    A command that was killed keeps 0 seconds.
    """
    mark, before = begin(folder, command), time.perf_counter()
    try:
        yield
    finally:
        end(folder, mark, time.perf_counter() - before)


def begin(folder: Path, command: str) -> str:
    """Add a command that is about to compute something; returns the id for `end`."""
    past = history(folder)
    suffix, mark = " --resume" if past else "", uuid.uuid4().hex
    _write_history(folder, [*past, {"id": mark, "command": command + suffix, "commit": commit(), "seconds": 0.0}])
    return mark


def end(folder: Path, mark: str, seconds: float) -> None:
    """Record the duration of the command with that id."""
    took = {"seconds": round(seconds, 1)}
    _write_history(folder, [{**entry, **took} if entry.get("id") == mark else entry for entry in history(folder)])


def _write_history(folder: Path, past: list[dict[str, Any]]) -> None:
    text = json.dumps(past, indent=1, allow_nan=False) + "\n"
    write_whole(folder / HISTORY, text.encode("ascii"), "history")


def history(folder: Path) -> list[dict[str, Any]]:
    """Return all commands so far."""
    path = folder / HISTORY
    past: list[dict[str, Any]] = read_json(path) if path.is_file() else []
    return past


def summarise_history(folder: Path) -> dict[str, Any]:
    """Return the commands in one line, the commits of the code that ran, and the sum of the seconds."""
    past = history(folder)
    once: dict[str, str] = {}  # a resumed command counts as the same command
    for entry in past:
        once.setdefault(entry["command"].removesuffix(" --resume"), entry["command"])
    commits = list(dict.fromkeys(entry["commit"] for entry in past if entry["commit"]))
    return {
        "command": " && ".join(once.values()),
        "commit": ", ".join(commits) or None,
        "seconds": math.fsum(entry["seconds"] for entry in past),
    }


def commit() -> str | None:
    """Return the commit of the checkout that holds this code, marked where files differ; None outside of one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
