"""A whole audit in order: checks, room on the disk, all runs, all cases, then the results."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedxray.audit.judge.results import validate
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.plan.schema import own_path, schema_path
from fedxray.audit.restoring import folders_of_priors
from fedxray.audit.run.engines import Death, Engine, Over, Progress, Task, hands_of, make_engine, never
from fedxray.audit.run.grid import Case, Run, expand
from fedxray.audit.run.store import GALLERY, PRIVATE, Store, check_folder, clear, open_store
from fedxray.data.fingerprint import content_digest
from fedxray.errors import BadInput
from fedxray.files import read_json

if TYPE_CHECKING:
    from fedxray.audit.run.budget import Budget
    from fedxray.audit.run.preflight import Estimate
    from fedxray.audit.run.trials import Ahead

# --- The tasks of an audit as plain values, which any worker can do: runs, trials ahead of cases, and
# cases.


def shared_by_all(plan: Plan, store: Store) -> dict[str, Any]:
    """What every task is told, held once for all of them."""
    return {
        "plan": plan.to_document(),
        "plan_folder": str(plan.folder.absolute()),  # a worker may be at home elsewhere
        "store": str(store.folder.absolute()),
    }


def task_of(shared: Mapping[str, Any], function: str, item: Run | Case | Ahead) -> Task:
    """A function of this module with its item."""
    argument = {**shared, "item": asdict(item)}
    return Task(label=item.id, function=f"{__name__}:{function}", argument=argument)


def work_on_run(argument: Mapping[str, Any]) -> None:
    """Simulate one run, here or in a worker."""
    from fedxray.audit.run.execute import execute_run

    plan, store = _opened(argument)
    execute_run(plan, Run(**argument["item"]), store)


def work_on_trial(argument: Mapping[str, Any]) -> None:
    """Try one point of a search, here or in a worker."""
    from fedxray.audit.run.execute import execute_trial
    from fedxray.audit.run.trials import Ahead

    plan, store = _opened(argument)
    item = argument["item"]
    execute_trial(plan, Ahead(**{**item, "case": Case(**item["case"])}), store)


def work_on_case(argument: Mapping[str, Any]) -> None:
    """Attack one case, here or in a worker."""
    from fedxray.audit.run.execute import execute_case

    plan, store = _opened(argument)
    execute_case(plan, Case(**argument["item"]), store)


def _opened(argument: Mapping[str, Any]) -> tuple[Plan, Store]:
    store = Store(Path(argument["store"]))
    if not store.private.is_dir():
        raise BadInput(
            "--out",
            expected="a folder that every worker sees",
            got=f"{store.folder}, which is not there on {platform.node() or 'a worker'}",
            remedy="Choose an --out on storage that all nodes share.",
        )
    return Plan.from_document(argument["plan"], Path(argument["plan_folder"])), store


# --- Room on the disk: what an audit needs, and whether it is there.


def check_room(folder: Path, needed: int) -> None:
    """Refuse before starting when the disk has too little room."""
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise BadInput(
            "--out",
            expected=f"{megabytes(needed)} of free space",
            got=f"{megabytes(free)} at {place}",
            remedy='Free some space, choose another --out, or record fewer rounds (record = "last").',
        )


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


TENTHS = 10  # lines of the log on how far it is
AGAIN = ("failed", "truncated")  # statuses of cases that are tried again


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An audit that came to its end, with the number of cases that failed."""

    folder: Path
    document: dict[str, Any]
    failed: int


@runtime_checkable
class Meter(Protocol):
    """Progress that reckons the time left from what every run and case is thought to take."""

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Hear what is to come, by label."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Hear that one has ended."""


def silent(done: int, total: int, label: str) -> None:
    """Hear nothing of the progress."""


def conduct(
    plan: Plan,
    folder: Path,
    *,
    engine: str = "inline",
    jobs: int | None = None,
    address: str | None = None,
    resume: bool = False,
    budget: str | None = None,
    progress: Progress = silent,
) -> Ended:
    """Run an audit into a folder; what is refused is refused before anything is written."""
    limit = None
    if budget is not None:
        from fedxray.audit.run.budget import parse_budget

        limit = parse_budget(budget, hands_of(engine, jobs))
    with make_engine(engine, jobs, address) as workers:
        return conduct_with(workers, plan, folder, resume=resume, progress=progress, budget=limit)


def conduct_with(
    workers: Engine,
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress = silent,
    power: bool = True,
    budget: Budget | None = None,
    estimate: Estimate | None = None,
) -> Ended:
    """The same with an engine that is running already; without power checks no row can say "no leak found".

    Whoever has rehearsed the plan already gives its estimate.
    """
    from fedxray.audit.run.execute import ended_cases, finish, galleries
    from fedxray.audit.run.preflight import preflight

    began, digest, records = monotonic(), plan.digest(), digest_of_inputs(plan)
    check_folder(folder, digest, resume=resume, records=records)
    estimate = estimate or preflight(plan)
    plan, chosen = _fitted(plan, estimate, folder, budget, resume)
    check_room(folder, estimate.bytes)
    runs, cases = expand(plan)
    with open_store(folder, digest, resume=resume, records=records) as store:
        store.write_plan(plan.text)
        store.log(f"{plan.name}: {len(runs)} runs, {len(cases)} cases")
        over = _keep_budget(store, chosen, began)
        shift = Shift(workers=workers, estimate=estimate, progress=progress, over=over)
        _work(plan, store, runs, cases, shift)
        ended = ended_cases(plan, store)
        document = finish(plan, store, ended=ended)
        checked = _check_power(plan, store, document, shift) if power else []
        if checked:
            document = finish(plan, store, checked, ended)
        document |= {} if chosen is None else {"budget": chosen}
        store.write_galleries(galleries(ended))
        store.write_results(document)
        failed = _log_end(store, plan.name, document["cases"])
    return Ended(folder=folder, document=document, failed=failed)


def _log_end(store: Store, name: str, cases: Sequence[Mapping[str, Any]]) -> int:
    """Say in the log how many cases failed or were cut off; how many failed."""
    counts = Counter(case["status"] for case in cases)
    failed, cut = counts["failed"], counts["truncated"]
    store.log(f"{name}: ended, {failed} of {len(cases)} cases failed" + (f", {cut} cut off" if cut else ""))
    return failed


def _fitted(
    plan: Plan, estimate: Estimate, folder: Path, budget: Budget | None, resume: bool
) -> tuple[Plan, dict[str, Any] | None]:
    """The plan that fits into the budget, and the choice: the one that was made when the audit began."""
    from fedxray.audit.run.budget import decide, kept_budget, left_out, within_budget

    chosen = kept_budget(folder, budget, resume)
    if chosen is None:
        if budget is None:
            return plan, None
        chosen = decide(plan, estimate, budget)
        chosen["left_out"] = list(left_out(plan, chosen))
    return within_budget(plan, chosen), chosen


def _keep_budget(store: Store, chosen: dict[str, Any] | None, began: float) -> Over:
    """Write the choice down, and tell when the time is over."""
    if chosen is None:
        return never
    from fedxray.audit.run.budget import write_budget

    write_budget(store.folder, chosen)
    for line in chosen["left_out"]:
        store.log(f"left out by --budget {chosen['budget']}: {line}")
    until = began + float(chosen["seconds"])
    return lambda: monotonic() > until


def digest_of_inputs(plan: Plan) -> str | None:
    """A text that is equal while the user's files and plug-ins are, None where the plan names none."""
    path = own_path(plan.data, plan.folder) or schema_path(plan.data, plan.folder)
    records = None if path is None else content_digest(path)
    priors = folders_of_priors(plan.attacks)
    if priors:
        told = " ".join([str(records), *map(content_digest, priors)])
        records = hashlib.sha256(told.encode()).hexdigest()
    if plugins := plan.third_party():
        records = hashlib.sha256(f"{records} {json.dumps(plugins)}".encode()).hexdigest()
    if plan.transcript is None:
        return records
    from fedxray.audit.recorded.prepare import chosen_of

    return hashlib.sha256(f"{records} {chosen_of(plan).recording.digest()}".encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Who works, what it is thought to take, who hears of it, and until when."""

    workers: Engine
    estimate: Estimate
    progress: Progress
    over: Over

    def announce(self, plan: Plan, runs: list[Run], cases: list[Case]) -> None:
        """Tell whoever reckons the time left what everything will take, in seconds."""
        if isinstance(self.progress, Meter):
            self.progress.weigh(costs(plan, self.estimate, runs, cases))

    def turn(self, case: Case) -> tuple[float, str]:
        """Cases of one run follow each other, so that its transcript is opened once; short ones go first on a clock."""
        return 0.0 if self.over is never else self.estimate.case_seconds(case.attack), case.run


@dataclass
class Tally:
    """How many tasks of all have ended, told and logged."""

    shift: Shift
    store: Store
    total: int
    done: int = 0

    def run(self, tasks: Sequence[Task]) -> list[Death]:
        """Work on these; what died or was cut off."""
        before = self.done

        def progress(done: int, _: int, label: str) -> None:
            self.done = before + done
            self.shift.progress(self.done, self.total, label)
            if self.done * TENTHS // self.total > (self.done - 1) * TENTHS // self.total:
                self.store.log(f"{self.done} of {self.total} runs, trials and cases have ended")

        return self.shift.workers.run(tasks, progress, self.shift.over)


def _work(plan: Plan, store: Store, runs: list[Run], cases: list[Case], shift: Shift) -> None:
    """Everything that is not done yet: all runs, then all cases; cases of a lost run are failed ones."""
    from fedxray.audit.run.trials import trials_ahead

    _forget_failures(store, runs, cases)
    new_runs, new_cases = unfinished(store, runs, cases)
    shift.announce(plan, new_runs, new_cases)
    trials, shared = trials_ahead(plan, new_cases), shared_by_all(plan, store)
    tally = Tally(shift, store, len(new_runs) + sum(map(len, trials)) + len(new_cases))
    for death in tally.run([task_of(shared, "work_on_run", one) for one in new_runs]):
        if not store.has_run(death.task.label):  # it may have ended in the moment when the time was over
            status = "truncated" if death.cut else "failed"
            store.write_lost_run(death.task.label, death.reason, "", status)
    lost = {one.id: known for one in runs if (known := store.lost_run(one.id)) is not None}
    for case in [one for one in new_cases if one.run in lost]:
        known = lost[case.run]
        _give_up(store, case, f"the federation could not be run: {known['reason']}", known["status"])
    rest = sorted((one for one in new_cases if one.run not in lost), key=shift.turn)
    searching = {one.case.id for batch in trials for one in batch}
    _work_on_cases(store, tally, shared, [one for one in rest if one.id not in searching])
    for batch in trials:
        for death in tally.run(
            [task_of(shared, "work_on_trial", one) for one in batch if one.run not in lost]
        ):
            if not death.cut:  # its case tries it again, and tells
                store.log(f"{death.task.label}: {death.reason}")
    _work_on_cases(store, tally, shared, [one for one in rest if one.id in searching])


def _work_on_cases(store: Store, tally: Tally, shared: Mapping[str, Any], cases: list[Case]) -> None:
    for death in tally.run([task_of(shared, "work_on_case", one) for one in cases]):
        if not store.has_case(death.task.label):
            status = "truncated" if death.cut else "failed"
            _give_up(store, Case(**death.task.argument["item"]), death.reason, status)


def costs(plan: Plan, estimate: Estimate, runs: Sequence[Run], cases: Sequence[Case]) -> dict[str, float]:
    """The seconds that runs, trials and cases are thought to take, by their ids."""
    from fedxray.audit.run.trials import costs_of

    found = {one.id: estimate.run_seconds for one in runs}
    return found | costs_of(plan, cases, estimate.fixed_seconds, estimate.optimising_seconds.__getitem__)


def unfinished(store: Store, runs: list[Run], cases: list[Case]) -> tuple[list[Run], list[Case]]:
    """The runs and cases of which nothing is kept."""
    return (
        [one for one in runs if not store.has_run(one.id) and store.lost_run(one.id) is None],
        [one for one in cases if not store.has_case(one.id)],
    )


def _check_power(plan: Plan, store: Store, document: Mapping[str, Any], shift: Shift) -> list[dict[str, Any]]:
    """Run the power checks that verdicts wait for; their rows, none where none waits."""
    from fedxray.audit.run.power import planted_work, power_rows, waiting

    attacks = waiting(document["summary"])
    if not attacks:
        return []
    runs, cases = planted_work(plan, attacks)
    store.log(f"{plan.name}: power checks, {len(runs)} runs, {len(cases)} cases")
    _work(plan, store, runs, cases, shift)
    return power_rows(plan, attacks, [store.read_case(case.id) for case in cases])


def _forget_failures(store: Store, runs: list[Run], cases: list[Case]) -> None:
    """What failed or was cut off is tried again when an audit goes on; what diverged would diverge again."""
    for run in runs:
        known = store.lost_run(run.id)
        if known is not None and known["status"] in AGAIN:
            store.forget_lost_run(run.id)
    for case in cases:
        if store.has_case(case.id) and store.read_case(case.id)["status"] in AGAIN:
            store.forget_case(case.id)


def _give_up(store: Store, case: Case, reason: str, status: str = "failed") -> None:
    """Keep that a case came to nothing."""
    from fedxray.audit.run.execute import lost_case

    if status != "truncated":  # of those one line tells
        store.log(f"{case.id}: {reason}")
    lost_case(case, store, reason, status)


# --- The demo: the shipped plans, each an audit of its own in the private part, joined into one set of
# results.


KIND = "demo"


def shipped_plans() -> list[Plan]:
    """The plans of the demo, in the order of their names."""
    found = []
    for entry in sorted(files("fedxray").joinpath("plans").iterdir(), key=lambda one: one.name):
        if entry.name.startswith("demo-") and entry.name.endswith(".toml"):
            text = entry.read_bytes()
            found.append(make_plan(tomllib.loads(text.decode()), Path.cwd(), text))
    return found


def conduct_demo(
    folder: Path, *, engine: str = "inline", jobs: int | None = None, progress: Progress = silent
) -> Ended:
    """Audit all shipped plans; a folder that an earlier demo left is written anew."""
    plans = shipped_plans()
    digest = hashlib.sha256("".join(plan.digest() for plan in plans).encode()).hexdigest()
    with make_engine(engine, jobs) as workers:
        clear(folder, KIND)
        with open_store(folder, digest, kind=KIND) as store:
            parts = []
            for plan in plans:
                store.write_plan(plan.text, f"plan-{plan.name}.toml")
                parts.append(conduct_with(workers, plan, store.private / plan.name, progress=progress))
            document = join([part.document for part in parts])
            store.write_galleries([entry for part in parts for entry in _gallery(part.folder)])
            store.write_results(document)
    return Ended(folder=folder, document=document, failed=sum(part.failed for part in parts))


def join(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several results in one; every row says in `plan` which plan it is from."""
    joined: dict[str, Any] = {
        "format": documents[0]["format"],
        "plan": {"name": KIND, "plans": [document["plan"] for document in documents]},
        "versions": documents[0]["versions"],
        "attacks": {
            label: facts for document in documents for label, facts in document.get("attacks", {}).items()
        },
    }
    for rows in ("cases", "summary", "utility", "power"):
        joined[rows] = [
            {**row, "plan": document["plan"]["name"]}
            for document in documents
            for row in document.get(rows, ())
        ]
    keys = [
        tuple(row[name] for name in ("attack", "role", "defence", "aware", "metric"))
        for row in joined["summary"]
    ]
    if len(set(keys)) < len(keys):
        raise ValueError("attacks of different plans must have different labels to stand in one table")
    validate(joined)
    return joined


def _gallery(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place in (folder / GALLERY, folder / PRIVATE / GALLERY):
        if place.is_file():
            found += read_json(place)
    return found
