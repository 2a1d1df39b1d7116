"""An audit from its plan to its results (`run_audit`): checks, all runs, all cases, power checks; and the demo."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedxray.audit.judge import results
from fedxray.audit.judge.results import failed_cases, failure_line, validate
from fedxray.audit.judge.statistics import AUTO_LOOKS, spending
from fedxray.audit.judge.verdict import is_settled, judged_rows, unsettled
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.plan.schema import own_path, schema_path
from fedxray.audit.restoring import folders_of_priors
from fedxray.audit.run.grid import Case, Run, TrialTask, expand
from fedxray.audit.run.store import GALLERY, PRIVATE, Store, check_folder, clear, open_store, read_looks
from fedxray.audit.workers.engines import (
    Deadline,
    Engine,
    Progress,
    StartProgress,
    Task,
    make_engine,
    no_deadline,
    worker_count,
)
from fedxray.data.checks import content_digest
from fedxray.errors import BadInput
from fedxray.files import read_json
from fedxray.lookup import load
from fedxray.models.weights import weights_path

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from fedxray.audit.run.budget import Budget
    from fedxray.audit.run.power import Check
    from fedxray.audit.run.preflight import Estimate

TENTHS = 10  # lines of progress in the log
NOTEBOOK = "fedxray.report.notebook"  # which draws results; the report is built on audits
RETRIED = ("failed", "truncated")  # statuses of cases that a resumed audit tries again
EXECUTE_RUN, EXECUTE_TRIAL, EXECUTE_CASE = (
    f"fedxray.audit.run.execute:execute_{item}" for item in ("run", "trial", "case")
)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A completed audit or reproduction: its folder, its results and the number of failed cases.

    A notebook shows an audit as its answer and main table.
    """

    folder: Path
    document: dict[str, Any] = field(repr=False)
    failed: int

    def frame(self, table: str = "summary") -> pandas.DataFrame:
        """Return the "summary", the "cases" (a row per case and metric) or the "utility" as a data frame."""
        found: pandas.DataFrame = load(f"{NOTEBOOK}:frame")(self.document, table)
        return found

    def plot(self, kind: str = "leakage", *, attack: str | None = None, show_private: bool = False) -> Figure:
        """Return a figure of an audit: "leakage" with floors, "trade-off" or "reconstructions" beside originals.

        `attack` is the label of the only one to draw; reconstructions of own data need `show_private`.
        """
        drawn: Figure = load(f"{NOTEBOOK}:figure")(
            self.document, self.folder, kind, attack=attack, show_private=show_private
        )
        return drawn

    def _repr_html_(self) -> str:
        page: str = load(f"{NOTEBOOK}:page")(self.document)
        return page


@runtime_checkable
class WeightedProgress(Protocol):
    """Progress that estimates the time left from the expected seconds of every run, trial and case."""

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Take the expected seconds of all tasks to come, by label."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Take note that a task has ended."""


@runtime_checkable
class StagedProgress(Protocol):
    """Progress that names the stage it is of: it starts again at zero with the next one."""

    def audit(self, name: str) -> None:
        """Take the name of the audit that begins, where several follow each other."""

    def stage(self, name: str) -> None:
        """Take the name of the stage that begins: a number of seeds, or power checks."""

    def note(self, line: str) -> None:
        """Take a line on what a stage found and what follows."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Take note that a task has ended."""


def silent(done: int, total: int, label: str) -> None:
    """Report no progress."""


def run_audit(
    plan: Plan,
    folder: str | Path,
    *,
    engine: str | Engine = "inline",
    jobs: int | None = None,
    address: str | None = None,
    resume: bool = False,
    budget: str | Budget | None = None,
    progress: Progress = silent,
    power: bool = True,
    estimate: Estimate | None = None,
    seeds: int | None = None,
) -> Completed:
    """Run an audit into a folder; a plan that cannot work is refused before anything is written.

    `engine` is a name, then with `jobs` workers and the `address` of a Ray cluster, or an engine that is running.
    `resume` continues an audit of the same plan, or one that it extends; `budget` limits its time (as "10m");
    `progress` is called after every run, trial and case. Without `power` checks no row can state "no leak found".
    `estimate` is that of `preflight`, where the caller has it already. `seeds` is their number in total.
    """
    from fedxray.audit.run.execute import galleries
    from fedxray.audit.run.extend import check_resumed, extended, with_total
    from fedxray.audit.run.preflight import preflight

    folder, limit, file = Path(folder), _time_limit(budget, engine, jobs), plan.file
    with make_engine(engine, jobs, address) if isinstance(engine, str) else nullcontext(engine) as workers:
        began, opened = monotonic(), time()  # the second is the clock that all processes share
        if resume:
            plan = extended(folder, plan, total=seeds)
        elif seeds is not None:
            plan = with_total(plan, seeds, plan.seeds[:seeds])
        if not resume:
            check_resumed(folder, plan)
        digest, records = plan.digest(), digests_of_inputs(plan)
        check_folder(folder, digest, resume=resume, records=records)
        estimate = estimate or preflight(plan)
        fitted, choice = _fitted(plan, estimate, folder, limit, resume)
        check_room(folder, estimate.bytes)
        with open_store(folder, digest, resume=resume, records=records) as store:
            store.write_plan(plan.text)
            execution = Execution(
                plan=fitted,
                store=store if choice is None else replace(store, until=opened + float(choice["seconds"])),
                engine=workers,
                estimate=estimate,
                progress=progress,
                deadline=_deadline(store, choice, began),
            )
            document, ended = execution.settle(power=power)
            document |= {} if file is None else {"plan_file": file}
            document |= {"plan": results.plain(fitted.to_document() if choice else plan.to_document(), "plan")}
            document |= ({} if choice is None else {"budget": choice}) | data_facts(plan, records)
            store.write_galleries(galleries(ended))
            store.write_results(document)
            failed = _log_end(store, plan.name, document["cases"])
    return Completed(folder=folder, document=document, failed=failed)


# Before anything starts: inputs, disk space and time limit


def digests_of_inputs(plan: Plan) -> dict[str, str]:
    """Return a digest of each of the user's own files and plug-ins, by the key of the plan that names it."""
    files = {"data.path": own_path(plan.data, plan.folder), "data.schema": schema_path(plan.data, plan.folder)}
    if plan.model.weights is not None:
        files["model.weights"] = weights_path(plan.model.weights, plan.folder)
    digests = {key: content_digest(path) for key, path in files.items() if path is not None}
    if priors := folders_of_priors(plan.attacks):
        digests["restore.prior"] = " ".join(map(content_digest, priors))
    digests |= {f"plug-in {part['kind']} {part['name']}": json.dumps(part) for part in plan.third_party()}
    if plan.transcript is not None:
        from fedxray.audit.recorded.prepare import chosen_of

        digests["transcript.path"] = chosen_of(plan).recording.digest()
    return digests


def data_facts(plan: Plan, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return what identifies the user's own records, so that audits of others are not compared; else nothing."""
    from fedxray.audit.run.prepare import prepare_first

    digest = digests.get("data.path") or digests.get("data.schema")
    return {} if digest is None else {"data": {"records": len(prepare_first(plan).dataset), "sha256": digest}}


def check_room(folder: Path, needed: int) -> None:
    """Refuse to start when the disk has too little space."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        expected = f"{megabytes(needed)} of free space"
        remedy = 'Free some space, choose another --out, or record fewer rounds (record = "last").'
        raise BadInput("--out", expected=expected, got=f"{megabytes(free)} at {existing}", remedy=remedy)


def megabytes(count: int) -> str:
    """Return a number of bytes as text."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def _time_limit(budget: str | Budget | None, engine: str | Engine, jobs: int | None) -> Budget | None:
    if not isinstance(budget, str):
        return budget
    from fedxray.audit.run.budget import parse_budget

    return parse_budget(budget, worker_count(engine, jobs) if isinstance(engine, str) else jobs or 1)


def _fitted(
    plan: Plan, estimate: Estimate, folder: Path, budget: Budget | None, resume: bool
) -> tuple[Plan, dict[str, Any] | None]:
    """Return the plan that fits into the budget and the choice behind it: that of the beginning when resumed."""
    if budget is None and not resume:
        return plan, None
    from fedxray.audit.run.budget import decide, left_out, stored_budget, within_budget

    choice = stored_budget(folder, budget, resume)
    if choice is None:
        if budget is None:
            return plan, None
        choice = decide(plan, estimate, budget)
        choice["left_out"] = list(left_out(plan, choice))
    return within_budget(plan, choice), choice


def _deadline(store: Store, choice: dict[str, Any] | None, began: float) -> Deadline:
    """Store the choice of a budget and return its deadline."""
    if choice is None:
        return no_deadline
    from fedxray.audit.run.budget import write_budget

    write_budget(store.folder, choice)
    for line in choice["left_out"]:
        store.log(f"left out by --budget {choice['budget']}: {line}")
    until = began + float(choice["seconds"])
    return lambda: monotonic() > until


# The work itself


def costs(plan: Plan, estimate: Estimate, runs: Sequence[Run], cases: Sequence[Case]) -> dict[str, float]:
    """Return the expected seconds of runs, trials and cases, by their ids."""
    from fedxray.audit.run.grid import case_costs

    seconds = {run.id: estimate.run_seconds for run in runs}
    optimising = estimate.optimising_seconds.__getitem__
    return seconds | case_costs(plan, cases, estimate.fixed_seconds, optimising)


def unfinished(store: Store, runs: list[Run], cases: list[Case]) -> tuple[list[Run], list[Case]]:
    """Return the runs and cases of which nothing is stored."""
    return (
        [run for run in runs if not store.has_run(run.id) and store.lost_run(run.id) is None],
        [case for case in cases if not store.has_case(case.id)],
    )


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One audit at work: what is run, by which engine, how its progress is reported, and its deadline."""

    plan: Plan
    store: Store
    engine: Engine
    estimate: Estimate
    progress: Progress
    deadline: Deadline
    most: int | None = None  # seeds, where a look decides on more

    def settle(self, *, power: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run and judge the plan; with `seeds = "auto"` again with more seeds while a verdict is open and time is left.

        Returns the results and the cases as they are stored. Looks are stored when their results exist, so that a
        resumed audit continues with the same ones.
        """
        from fedxray.audit.run.execute import ended_cases

        looks, ended = read_looks(self.store.folder), list[dict[str, Any]]()
        document: dict[str, Any] = {}
        for count in self._counts(looks):
            now = self._with_seeds(count) if self.plan.is_auto else self
            runs, cases = expand(now.plan)
            self.store.log(f"{self.plan.name}: {len(runs)} runs, {len(cases)} cases")
            now.begin(now.seeds_in_words())
            now.work(runs, cases)
            found = ended_cases(now.plan, self.store)
            if document and any(case["status"] == "truncated" and not case["scores"] for case in found):
                self._note(f"{self.plan.name}, {count} seeds: time limit reached, the results of fewer seeds stand")
                break  # the time ended inside this look
            ended, looks = found, with_look(looks, count, found, auto=self.plan.is_auto)
            document = now.judged(ended, looks, power=power)
            self.store.write_looks(looks)
            if self.plan.is_auto:
                self._note(f"{self.plan.name}, {look_in_words(document['summary'], count)}")
            if is_settled(document["summary"]):
                break
        return document, ended

    def _with_seeds(self, count: int) -> Execution:
        """Return the audit with this number of the seeds that it may take."""
        return replace(self, plan=self.plan.with_seeds(range(count)), most=AUTO_LOOKS[-1])

    def begin(self, stage: str) -> None:
        """Name the stage that begins, where progress is shown by stage."""
        if isinstance(self.progress, StagedProgress):
            self.progress.stage(stage)

    def seeds_in_words(self) -> str:
        """Return the number of seeds of this stage."""
        number = len(self.plan.seeds)
        most = "" if self.most is None else f" of at most {self.most}"
        return f"{number}{most} seed{'' if number == 1 else 's'}"

    def _note(self, line: str) -> None:
        """Log a line and show it, where progress is shown by stage."""
        self.store.log(line)
        if isinstance(self.progress, StagedProgress):
            self.progress.note(line)

    def _counts(self, looks: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of seeds to judge with, one after the other; a resumed audit begins with its last."""
        if not self.plan.is_auto:
            return [len(self.plan.seeds)]
        last = looks[-1]["seeds"] if looks else 0
        return [*([last] if last else []), *(count for count in AUTO_LOOKS if count > last)]

    def judged(
        self, ended: Sequence[Mapping[str, Any]], looks: Sequence[Mapping[str, Any]], *, power: bool
    ) -> dict[str, Any]:
        """Return the results with the power checks that their verdicts wait for."""
        from fedxray.audit.run.execute import results_document

        document = results_document(self.plan, self.store, ended=ended, looks=looks)
        checks = self.check_power(document) if power else []
        return results_document(self.plan, self.store, checks, ended, looks) if checks else document

    def work(self, runs: list[Run], cases: list[Case]) -> None:
        """Do everything that is not stored yet: the first runs with their cases, then all others.

        By then every attack has shown how long a case takes, so that the time left can be estimated.
        """
        from fedxray.audit.run.grid import trial_batches

        self._forget_failures(runs, cases)
        new_runs, new_cases = unfinished(self.store, runs, cases)
        if isinstance(self.progress, WeightedProgress):
            self.progress.weigh(costs(self.plan, self.estimate, new_runs, new_cases))
        total = len(new_runs) + sum(map(len, trial_batches(self.plan, new_cases))) + len(new_cases)
        counter = ProgressCounter(self.progress, self.store, total)
        for some_runs, some_cases in self._portions(new_runs, new_cases):
            self._work_on(some_runs, some_cases, counter)

    def _portions(self, runs: list[Run], cases: list[Case]) -> list[tuple[list[Run], list[Case]]]:
        """Return runs and cases in the order in which they are done; before a deadline no case is preferred by its run.

        The first portion has a run for every worker, so that none waits for it.
        """
        count = self.engine.planned_workers()
        if count is None or len(runs) <= count or self.deadline is not no_deadline:
            return [(runs, cases)]
        first = {run.id for run in runs[:count]}
        return [
            (runs[:count], [case for case in cases if case.run in first]),
            (runs[count:], [case for case in cases if case.run not in first]),
        ]

    def _work_on(self, new_runs: list[Run], new_cases: list[Case], counter: ProgressCounter) -> None:
        """Do these runs, then cases without a search, trials, cases with one.

        A case whose run failed has failed too.
        """
        from fedxray.audit.run.execute import NOT_RUN
        from fedxray.audit.run.grid import trial_batches

        batches, shared = trial_batches(self.plan, new_cases), (self.plan, self.store)
        for failure in self.engine.run(tasks(EXECUTE_RUN, new_runs), counter, self.deadline, shared):
            if not self.store.has_run(failure.task.label):  # it may have ended just before the deadline
                status = "truncated" if failure.cut_off else "failed"
                self.store.write_lost_run(failure.task.label, NOT_RUN + failure.reason, "", status)
        needed = dict.fromkeys(case.run for case in new_cases)
        lost = {run: known for run in needed if (known := self.store.lost_run(run)) is not None}
        for case in [case for case in new_cases if case.run in lost]:
            known = lost[case.run]
            self._fail(case, known["reason"], known["status"])

        rest = sorted((case for case in new_cases if case.run not in lost), key=self._turn)
        searching = {trial.case.id for batch in batches for trial in batch}
        direct = [case for case in rest if case.id not in searching]
        by_search = [case for case in rest if case.id in searching]
        for group, before in ((direct, []), (by_search, batches)):
            for batch in before:
                trials = tasks(EXECUTE_TRIAL, [trial for trial in batch if trial.run not in lost])
                for failure in self.engine.run(trials, counter, self.deadline, shared):
                    if not failure.cut_off:  # its case tries it again, and reports
                        self.store.log(f"{failure.task.label}: {failure.reason}")
            for failure in self.engine.run(tasks(EXECUTE_CASE, group), counter, self.deadline, shared):
                if not self.store.has_case(failure.task.label):
                    status = "truncated" if failure.cut_off else "failed"
                    self._fail(failure.task.item, failure.reason, status)

    def check_power(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run the power checks that verdicts of these results wait for; returns their rows.

        Where a planted leak is not seen under a defence, it is looked for without the defence too.
        """
        from fedxray.audit.run.power import to_compare, waiting

        rows = self._checked(waiting(self.plan, document["summary"]), "power checks")
        return rows + self._checked(to_compare(rows), "power checks without the defence")

    def _checked(self, checks: Sequence[Check], stage: str) -> list[dict[str, Any]]:
        from fedxray.audit.run.power import planted_work, power_rows

        if not checks:
            return []
        runs, cases = planted_work(self.plan, checks)
        self.store.log(f"{self.plan.name}: {stage}, {len(runs)} runs, {len(cases)} cases")
        self.begin(f"{stage} after {self.seeds_in_words()}")
        self.work(runs, cases)
        return power_rows(self.plan, checks, [self.store.read_case(case.id) for case in cases])

    def _turn(self, case: Case) -> tuple[float, str]:
        """Sort cases by run, so that each transcript is opened once; before a deadline short ones come first."""
        seconds = 0.0 if self.deadline is no_deadline else self.estimate.case_seconds(case.attack)
        return seconds, case.run

    def _forget_failures(self, runs: list[Run], cases: list[Case]) -> None:
        """Let a resumed audit retry what failed or was cut off; what diverged would diverge again."""
        for run in runs:
            known = self.store.lost_run(run.id)
            if known is not None and known["status"] in RETRIED:
                self.store.forget_lost_run(run.id)
        for case in cases:
            if self.store.has_case(case.id) and self.store.read_case(case.id)["status"] in RETRIED:
                self.store.cases.forget(case.id)

    def _fail(self, case: Case, reason: str, status: str) -> None:
        """Store that a case failed or was cut off, and log a failure."""
        from fedxray.audit.run.execute import write_failed_case

        if status != "truncated":  # the last line of the log counts those
            self.store.log(f"{case.id}: {reason}")
        write_failed_case(self.store, case, reason, status)


def look_in_words(rows: Sequence[Mapping[str, Any]], seeds: int) -> str:
    """Return what a look at a summary found after this number of seeds, and what follows."""
    rest, total = len(unsettled(rows)), len(judged_rows(rows))
    if not rest:
        return f"{seeds} seeds: more seeds would settle no further row, ending"
    following = [count for count in AUTO_LOOKS if count > seeds]
    then = f"continuing with {following[0]} (at most {AUTO_LOOKS[-1]})" if following else "ending: no more are planned"
    return f"{seeds} seeds: more seeds could settle {rest} of {total} rows, {then}"


def with_look(
    looks: Sequence[Mapping[str, Any]], seeds: int, cases: Sequence[Mapping[str, Any]], *, auto: bool
) -> list[dict[str, Any]]:
    """Return the looks with one at this number of seeds and these cases, which spends its part of the error once.

    More attacks, defences or clients at the same seeds are another look: adding attacks until one leaks would else
    find one by luck.
    """
    known = [dict(look) for look in looks]
    there = {f"{name}s": list(dict.fromkeys(case[name] for case in cases)) for name in ("attack", "defence", "client")}
    if known and known[-1]["seeds"] >= seeds:
        new = [name for name, values in there.items() if set(values) - set(known[-1].get(name) or values)]
        if not new:
            return known
    return [*known, {"seeds": seeds, "spent": spending(known, auto=auto), **there}]


def tasks(function: str, items: Sequence[Run | TrialTask | Case]) -> list[Task]:
    """Return one task per item."""
    return [Task(label=item.id, function=function, item=item) for item in items]


@dataclass
class ProgressCounter:
    """Counts the ended tasks of all stages, reports each, and logs every tenth of the total."""

    progress: Progress
    store: Store
    total: int
    done: int = 0

    def start(self, label: str) -> None:
        """Report that a task starts."""
        if isinstance(self.progress, StartProgress):
            self.progress.start(label)

    def __call__(self, done: int, total: int, label: str) -> None:
        """Count one more ended task; `done` and `total` are those of its stage."""
        self.done += 1
        self.progress(self.done, self.total, label)
        if self.done * TENTHS // self.total > (self.done - 1) * TENTHS // self.total:
            self.store.log(f"{self.done} of {self.total} runs, trials and cases have ended")


def _log_end(store: Store, name: str, cases: Sequence[Mapping[str, Any]]) -> int:
    """Log which cases failed or were cut off; returns how many failed."""
    store.log(f"{name}: ended, {failure_line(cases) or f'0 of {len(cases)} cases failed'}")
    return len(failed_cases(cases))


# The demo: each shipped plan is an audit of its own in the private part; their results are joined

KIND = "demo"


def shipped_plans() -> list[Plan]:
    """Return the plans of the demo, in the order of their names."""
    plans = []
    for entry in sorted(files("fedxray").joinpath("plans").iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith("demo-") and entry.name.endswith(".toml"):
            text = entry.read_bytes()
            plans.append(make_plan(tomllib.loads(text.decode()), Path.cwd(), text))
    return plans


def run_demo(
    folder: Path, *, engine: str = "inline", jobs: int | None = None, progress: Progress = silent
) -> Completed:
    """Audit all shipped plans into one report; the folder of an earlier demo is overwritten."""
    plans = shipped_plans()
    digest = hashlib.sha256("".join(plan.digest() for plan in plans).encode()).hexdigest()
    with make_engine(engine, jobs) as workers:
        clear(folder, KIND)
        with open_store(folder, digest, kind=KIND) as store:
            store.log(f"{KIND}: {len(plans)} audits")
            parts = []
            for place, plan in enumerate(plans, 1):
                if isinstance(progress, StagedProgress):
                    progress.audit(f"audit {place} of {len(plans)}")
                store.write_plan(plan.text, f"plan-{plan.name}.toml")
                (store.private / plan.name).mkdir(mode=0o700)
                part = run_audit(plan, store.private / plan.name, engine=workers, progress=progress)
                parts.append(part)
            document = join([part.document for part in parts])
            store.write_galleries([entry for part in parts for entry in _gallery(part.folder)])
            store.write_results(document)
            store.log(f"{KIND}: ended")
    return Completed(folder=folder, document=document, failed=sum(part.failed for part in parts))


def join(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join several results into one; every row names its plan in `plan`."""
    joined: dict[str, Any] = {
        "format": documents[0]["format"],
        "plan": {"name": KIND, "plans": [document["plan"] for document in documents]},
        "versions": documents[0]["versions"],
        "attacks": {label: facts for document in documents for label, facts in document.get("attacks", {}).items()},
    }
    for rows in ("cases", "summary", "utility", "power"):
        joined[rows] = _rows_of(documents, rows)
    for rows in ("claims", "canaries"):
        if any(rows in document for document in documents):
            joined[rows] = _rows_of(documents, rows)
    keys = [tuple(row[name] for name in ("attack", "role", "defence", "aware", "metric")) for row in joined["summary"]]
    if len(set(keys)) < len(keys):
        raise ValueError("attacks of different plans must have different labels to stand in one table")
    validate(joined)
    return joined


def _rows_of(documents: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    return [{**row, "plan": document["plan"]["name"]} for document in documents for row in document.get(key, ())]


def _gallery(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for file in (folder / GALLERY, folder / PRIVATE / GALLERY):
        if file.is_file():
            entries += read_json(file)
    return entries
