"""A whole reproduction in order: plans checked, rows audited one after the other, numbers set side by side."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedxray.audit.judge.results import RESULTS, read_results
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.audit import Completed, WeightedProgress, costs, run_audit, silent, unfinished
from fedxray.audit.run.engines import Engine, Progress, Task, make_engine
from fedxray.audit.run.grid import expand
from fedxray.audit.run.preflight import Estimate, preflight
from fedxray.audit.run.store import LOCK, MARKER, PLAN, Store, locked, read_marker
from fedxray.errors import BadInput
from fedxray.files import read_json, read_object, write_whole
from fedxray.report import build_report
from fedxray.report.build import REPORT
from fedxray.reproduce import document as documents
from fedxray.reproduce.base import Column, Measured, Reproduction, Request, Unit, find
from fedxray.reproduce.document import (
    Cell,
    cells_of_audit,
    cells_of_measured,
    costs_of_audit,
    searches_of_audit,
)
from fedxray.reproduce.pages import markdown

# --- A row that was begun can be asked for more: further clients, seeds or attacks; what is done stays.


GROWS = ("seeds", "attack", "name")


def extended(folder: Path, plan: Plan) -> Plan:
    """The plan together with what the row's folder began with; its marker then names this plan.

    Cases are told apart by attack, seed and client, so those that ended stay valid as long as all other settings are
    the same; what an earlier plan asked for is asked for still.
    """
    if not (folder / MARKER).is_file() or not (folder / PLAN).is_file():
        return plan
    before = make_plan(tomllib.loads((folder / PLAN).read_text(encoding="utf-8")), plan.folder)
    whole = make_plan(together(before.to_document(), plan.to_document(), folder), plan.folder)
    with locked(folder):
        marker = read_marker(folder)
        if marker.get("plan") != whole.digest():
            write_whole(folder / PLAN, whole.text, "plan")
            changed = json.dumps({**marker, "plan": whole.digest()}) + "\n"
            write_whole(folder / MARKER, changed.encode("ascii"), "marker")
    return whole


def together(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Both plans in one, refused where they differ in more than seeds, targets and attacks."""
    for key in {*before, *now} - set(GROWS):
        if before.get(key) != now.get(key):
            raise _differs(folder, key)
    attacks = {_label(one): dict(one) for one in before["attack"]}
    for attack in now["attack"]:
        known = attacks.get(_label(attack))
        if known is None:
            attacks[_label(attack)] = dict(attack)
            continue
        if {**known, "targets": None} != {**attack, "targets": None}:
            raise _differs(folder, f"attack {_label(attack)}")
        known["targets"] = _more(known["targets"], attack["targets"])
    seeds = list(dict.fromkeys([*before["seeds"], *now["seeds"]]))
    return {**before, "seeds": seeds, "attack": list(attacks.values())}


def _label(attack: Mapping[str, Any]) -> str:
    return str(attack.get("label") or attack.get("name") or attack.get("factory"))


def _more(first: Any, second: Any) -> Any:
    """The larger of two choices of targets."""
    if "all" in (first, second):
        return "all"
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    lists = [list(range(one)) if isinstance(one, int) else one for one in (first, second)]
    return sorted({client for one in lists for client in one})


def _differs(folder: Path, what: str) -> BadInput:
    return BadInput(
        "--out",
        expected="a folder of the same settings",
        got=f"{folder}, whose plan differs in {what}",
        remedy="Choose another --out.",
    )


# --- Rows that wait for an earlier one: a search in one row, what it found in the plan of another.
#
# What the later row takes is in the results of the earlier one, so an interrupted reproduction goes on with
# the same plan.


def check_rows(made: Reproduction, rows: Sequence[str], folder: Path) -> None:
    """Refuse a row without the one that it waits for, unless the folder holds that one."""
    for row in rows:
        earlier = made.follows[row].row if row in made.follows else row
        if earlier not in rows and not (folder / earlier / RESULTS).is_file():
            raise BadInput(
                "--row",
                expected=f"{earlier} too, which {row} takes its numbers from",
                got=f"{row} alone",
                remedy=f"Add --row {earlier}, or go on with --resume in a folder that has it.",
            )


def informed(made: Reproduction, row: str, plan: Plan, folder: Path) -> Plan:
    """The plan with what the row it waits for has found, as far as that has ended."""
    follows = made.follows.get(row)
    if follows is None or not (folder / follows.row / RESULTS).is_file():
        return plan
    return make_plan(follows.fill(plan.to_document(), read_results(folder / follows.row)), plan.folder)


# --- What made a folder's numbers: every command that computed something in it, with its code and its time.


NAME = "history.json"


@contextmanager
def noted(folder: Path, command: str) -> Iterator[None]:
    """Note a command before it computes something, and how long it took once it ends in any way.

    A command that was killed keeps 0 seconds.
    """
    mark, before = begin(folder, command), time.perf_counter()
    try:
        yield
    finally:
        end(folder, mark, time.perf_counter() - before)


def begin(folder: Path, command: str) -> str:
    """Add a command that is about to compute something; the mark by which its end is noted."""
    past = history(folder)
    again, mark = " --resume" if past else "", uuid.uuid4().hex
    _write(folder, [*past, {"id": mark, "command": command + again, "commit": commit(), "seconds": 0.0}])
    return mark


def end(folder: Path, mark: str, seconds: float) -> None:
    """Note how long the command of that mark took."""
    took = {"seconds": round(seconds, 1)}
    _write(folder, [{**one, **took} if one.get("id") == mark else one for one in history(folder)])


def _write(folder: Path, past: list[dict[str, Any]]) -> None:
    text = json.dumps(past, indent=1, allow_nan=False) + "\n"
    write_whole(folder / NAME, text.encode("ascii"), "history")


def history(folder: Path) -> list[dict[str, Any]]:
    """All commands so far."""
    path = folder / NAME
    found: list[dict[str, Any]] = read_json(path) if path.is_file() else []
    return found


def told(folder: Path) -> dict[str, Any]:
    """The commands in one line, the commits of the code that ran, and the seconds that the commands took together."""
    past = history(folder)
    once: dict[str, str] = {}  # going on with a command is no other command
    for one in past:
        once.setdefault(one["command"].removesuffix(" --resume"), one["command"])
    commits = list(dict.fromkeys(one["commit"] for one in past if one["commit"]))
    return {
        "command": " && ".join(once.values()),
        "commit": ", ".join(commits) or None,
        "seconds": math.fsum(one["seconds"] for one in past),
    }


def commit() -> str | None:
    """The commit of the checkout that this code lies in, marked where files differ; None outside of one."""
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


# --- What a folder of a reproduction holds: finished rows, their numbers, what defences cost, what searches
# found.


MEASURED = "measured.json"


def finished_rows(made: Reproduction, folder: Path) -> list[str]:
    """The rows that a folder holds results of, in the order of the table."""
    name = RESULTS if made.plan is not None else MEASURED
    return [row for row in made.rows if (folder / row / name).is_file()]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a row came to: its numbers, what its defences cost and what its searches found."""

    cells: list[Cell]
    costs: list[dict[str, Any]]
    searches: list[dict[str, Any]]


def read_row(made: Reproduction, folder: Path, row: str) -> Row:
    """A finished row; its results are read once."""
    if made.plan is not None:
        found = read_results(folder / row)
        return Row(
            cells=cells_of_audit(made, row, found),
            costs=costs_of_audit(row, found),
            searches=searches_of_audit(made, row, found),
        )
    kept = read_json(folder / row / MEASURED)["cells"]
    measured = [Measured(**{**one, "units": tuple(Unit(**unit) for unit in one["units"])}) for one in kept]
    return Row(cells=cells_of_measured(made, row, measured), costs=[], searches=[])


KIND = "reproduction"
REQUEST, PAGE = "request.json", "reproduction.md"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be done: a reproduction, the request, and the rows and columns chosen."""

    made: Reproduction
    request: Request
    rows: tuple[str, ...]
    columns: tuple[Column, ...]

    def plans(self) -> dict[str, Plan]:
        """The plan of every row, checked; none where rows are measured directly."""
        if self.made.plan is None:
            return {}
        found = {}
        for row in self.rows:
            content = self.made.plan(self.request, row)
            kept = [self._asked_of(one) for one in content["attack"] if self._wants(one)]
            if not kept:
                remedy = "Choose other rows or columns."
                got = f"nothing to measure in row {row}"
                raise BadInput("--columns", expected="columns of every row", got=got, remedy=remedy)
            name = f"{self.made.name}.{row}"
            found[row] = make_plan({**content, "name": name, "attack": kept}, Path.cwd())
        return found

    def _wants(self, attack: Mapping[str, Any]) -> bool:
        """Whether a column is of this attack, raw or restored (label+restorer)."""
        label = attack.get("label", attack.get("name"))
        return any(label in (one.attack, one.attack.partition("+")[0]) for one in self.columns)

    def _asked_of(self, attack: Mapping[str, Any]) -> Mapping[str, Any]:
        return attack if self.request.controls else {**attack, "controls": []}

    def command(self) -> str:
        """The command line that asks for this."""
        words = ["fedxray", "reproduce", self.made.name, "--scale", self.request.scale]
        for option, given in (("--clients", self.request.clients), ("--seeds", self.request.seeds)):
            words += [option, str(given)] if given is not None else []
        if self.rows != self.made.chosen_rows((), self.request):
            words += [word for row in self.rows for word in ("--row", row)]
        if self.columns != self.made.columns:
            words += ["--columns", ",".join(dict.fromkeys(column.name for column in self.columns))]
        words += [] if self.request.controls else ["--no-controls"]
        return shlex.join(words)


def job(name: str, request: Request, rows: tuple[str, ...] = (), columns: tuple[str, ...] = ()) -> Job:
    """The named reproduction with what was asked for, refused where something is misspelt."""
    made = find(name)
    return Job(
        made=made,
        request=request,
        rows=made.chosen_rows(rows, request),
        columns=made.chosen_columns(columns),
    )


def reproduce(
    asked: Job,
    folder: Path,
    *,
    engine: str = "inline",
    jobs: int | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Completed:
    """Run all rows into a folder, set ours beside the paper's and write it down; progress counts cases."""
    plans = asked.plans()
    with make_engine(engine, jobs) as workers:
        _check_place(asked, folder, resume)
        _make_folder(folder)
        with locked(folder):
            _check_place(asked, folder, resume)  # another command may have been faster
            check_rows(asked.made, asked.rows, folder)
            _mark(asked, folder)
            if asked.made.plan is None:
                _measure_rows(asked, folder, workers, progress)
            else:
                _audit_rows(asked, plans, folder, workers, progress, resume)
            return set_side_by_side(asked.made, asked.request.scale, folder)


def set_side_by_side(made: Reproduction, scale: str, folder: Path) -> Completed:
    """Write reproduction.json and the page from all rows that a folder holds."""
    rows = [read_row(made, folder, row) for row in finished_rows(made, folder)]
    content = documents.document(
        made,
        scale,
        [cell for row in rows for cell in row.cells],
        told(folder),
        [one for row in rows for one in row.costs],
        [one for row in rows for one in row.searches],
    )
    documents.write(content, folder)
    write_whole(folder / PAGE, markdown(content).encode("utf-8"), "page")
    return Completed(folder=folder, document=content, failed=_failed(content))


def is_reproduction(folder: Path) -> bool:
    """Whether a folder is a reproduction's."""
    return (folder / REQUEST).is_file() and read_object(folder / REQUEST).get("kind") == KIND


def rebuild(folder: Path) -> Path:
    """Write the files of a reproduction again from the results of its rows, without running anything."""
    marker = read_object(folder / REQUEST)
    made = find(str(marker.get("name")))
    set_side_by_side(made, str(marker.get("scale")), folder)
    for row in finished_rows(made, folder) if made.plan is not None else ():
        build_report(folder / row)
    return folder / PAGE


def _audit_rows(
    asked: Job, plans: Mapping[str, Plan], folder: Path, workers: Engine, progress: Progress, resume: bool
) -> None:
    """One audit after the other, each in its own folder with its own report."""
    made = asked.made
    known = {row: informed(made, row, plan, folder) for row, plan in plans.items()}
    wholes = {row: extended(folder / row, plan) if resume else plan for row, plan in known.items()}
    total, ended = sum(_left(plan, folder / row) for row, plan in wholes.items()), 0
    log, estimates = Store(folder).log, {}
    if total and isinstance(progress, WeightedProgress):  # every row is rehearsed before the first begins
        estimates = {row: preflight(plan) for row, plan in wholes.items() if _left(plan, folder / row)}
        progress.weigh(_costs(wholes, estimates, folder))
    with noted(folder, asked.command()) if total else nullcontext():
        log(f"{asked.command()}: {total} cases in {len(wholes)} rows")
        for row, waiting in wholes.items():
            plan = informed(made, row, waiting, folder)
            ids = {case.id for case in expand(plan)[1]}

            def tell(_: int, __: int, label: str, row: str = row, ids: set[str] = ids) -> None:
                nonlocal ended
                ended += label in ids
                progress(ended, total, f"{row} {label}")

            done = run_audit(
                plan,
                folder / row,
                engine=workers,
                resume=resume,
                progress=tell,
                power=False,
                estimate=estimates.get(row),
            )
            log(f"{row}: ended, {done.failed} of {len(ids)} cases failed")
            if not _has_report(folder / row):
                build_report(folder / row)


def _costs(plans: Mapping[str, Plan], estimates: Mapping[str, Estimate], folder: Path) -> dict[str, float]:
    """What every run and case that is to come is thought to take, under the label that its progress has."""
    found: dict[str, float] = {}
    for row, needed in estimates.items():
        runs, cases = unfinished(Store(folder / row), *expand(plans[row]))
        found |= {f"{row} {label}": cost for label, cost in costs(plans[row], needed, runs, cases).items()}
    return found


def _has_report(folder: Path) -> bool:
    """Whether a row's report is of its present results."""
    report = folder / REPORT
    return report.is_file() and report.stat().st_mtime_ns > (folder / RESULTS).stat().st_mtime_ns


def _left(plan: Plan, folder: Path) -> int:
    """How many cases of a plan have not ended, or failed and will be tried again."""
    store = Store(folder)
    ids = [case.id for case in expand(plan)[1]]
    return sum(not store.has_case(one) or store.read_case(one)["status"] == "failed" for one in ids)


def _measure_rows(asked: Job, folder: Path, workers: Engine, progress: Progress) -> None:
    """The rows that were not measured with this request yet, as tasks of the engine."""
    tasks = []
    for row in asked.rows:
        argument = {"name": asked.made.name, "request": asdict(asked.request), "row": row}
        kept = folder / row / MEASURED
        if kept.is_file() and read_object(kept).get("request") == asdict(asked.request):
            continue
        argument["file"] = str(kept)
        tasks.append(Task(label=row, function=f"{__name__}:work_on_row", item=argument))
    with noted(folder, asked.command()) if tasks else nullcontext():
        Store(folder).log(f"{asked.command()}: {len(tasks)} rows")
        deaths = workers.run(tasks, progress)
    for death in deaths:
        Store(folder).log(f"{death.task.label}: {death.reason}")
    if deaths:
        raise BadInput(
            f"row {deaths[0].task.label}", expected="an end", got=deaths[0].reason, remedy="Try --resume."
        )


def work_on_row(argument: Mapping[str, Any]) -> None:
    """Measure one row, here or in a worker."""
    made, request = find(argument["name"]), Request(**argument["request"])
    assert made.measure is not None
    cells = [asdict(one) for one in made.measure(request, argument["row"])]
    file = Path(argument["file"])
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": 1, "request": argument["request"], "cells": cells}, allow_nan=False)
    write_whole(file, text.encode("ascii"), "measured row")


def _check_place(asked: Job, folder: Path, resume: bool) -> None:
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
            remedy="Go on with --resume, or choose another --out.",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _not_usable(folder, "a file is in the way") from None


def _mark(asked: Job, folder: Path) -> None:
    """Say whose folder it is, where nothing says so yet."""
    if not (folder / REQUEST).is_file():
        write_whole(folder / REQUEST, (json.dumps(_marker(asked)) + "\n").encode("ascii"), "marker")


def _marker(asked: Job) -> dict[str, Any]:
    return {"format": 1, "kind": KIND, "name": asked.made.name, "scale": asked.request.scale}


def _not_usable(folder: Path, got: str) -> BadInput:
    expected = "a new or empty folder, or this reproduction's own with --resume"
    return BadInput("--out", expected=expected, got=f"{folder}: {got}", remedy="Choose another --out.")


def _failed(content: Mapping[str, Any]) -> int:
    """How many cases failed; a case has a score in several columns and counts once."""
    found = {(row["row"], row["column"]): row["statuses"].get("failed", 0) for row in content["rows"]}
    return sum(found.values())
