"""A whole audit in order: checks, room on the disk, all runs, all cases, then the results."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedxray.audit.cases import Case, Run, expand
from fedxray.audit.engines import Engine, Progress, Task, make_engine
from fedxray.audit.plan import Plan
from fedxray.audit.plan.arguments import own_path, schema_path
from fedxray.audit.store import Store, check_folder, open_store
from fedxray.data.identity import content_digest
from fedxray.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An audit that came to its end, with the number of cases that failed."""

    folder: Path
    document: dict[str, Any]
    failed: int


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
    progress: Progress = silent,
) -> Ended:
    """Run an audit into a folder; what is refused is refused before anything is written."""
    with make_engine(engine, jobs, address) as workers:
        return conduct_with(workers, plan, folder, resume=resume, progress=progress)


def conduct_with(
    workers: Engine,
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress = silent,
    power: bool = True,
) -> Ended:
    """The same with an engine that is running already; without power checks no row can say "no leak found"."""
    from fedxray.audit.preflight import preflight
    from fedxray.audit.run import finish, galleries

    runs, cases = expand(plan)
    records = digest_of_inputs(plan)
    check_folder(folder, plan.digest(), resume=resume, records=records)
    check_room(folder, preflight(plan).bytes)
    with open_store(folder, plan.digest(), resume=resume, records=records) as store:
        store.write_plan(plan.text)
        store.log(f"{plan.name}: {len(runs)} runs, {len(cases)} cases")
        _work(plan, store, runs, cases, workers, progress)
        document = finish(plan, store)
        checked = _check_power(plan, store, document, workers, progress) if power else []
        if checked:
            document = finish(plan, store, checked)
        store.write_galleries(galleries(plan, store))
        store.write_results(document)
        failed = sum(case["status"] == "failed" for case in document["cases"])
        store.log(f"{plan.name}: ended, {failed} of {len(cases)} cases failed")
    return Ended(folder=folder, document=document, failed=failed)


def digest_of_inputs(plan: Plan) -> str | None:
    """A text that is equal while the user's own files are, None where the plan names none."""
    path = own_path(plan.data, plan.folder) or schema_path(plan.data, plan.folder)
    records = None if path is None else content_digest(path)
    if plan.transcript is None:
        return records
    from fedxray.audit.recorded import chosen_of

    return hashlib.sha256(f"{records} {chosen_of(plan).recording.digest()}".encode()).hexdigest()


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


def _work(
    plan: Plan, store: Store, runs: list[Run], cases: list[Case], workers: Engine, progress: Progress
) -> None:
    """Everything that is not done yet: all runs, then all cases; cases of a lost run are failed ones."""
    _forget_failures(store, runs, cases)
    new_runs = [one for one in runs if not store.has_run(one.id)]
    new_cases = [one for one in cases if not store.has_case(one.id)]
    total = len(new_runs) + len(new_cases)

    def first(done: int, _: int, label: str) -> None:
        progress(done, total, label)

    def then(done: int, _: int, label: str) -> None:
        progress(len(new_runs) + done, total, label)

    for death in workers.run([_task(plan, store, "work_on_run", one) for one in new_runs], first):
        store.write_lost_run(death.task.argument["item"]["id"], death.reason, "")
    lost = {one.id: known for one in new_runs if (known := store.lost_run(one.id)) is not None}
    for case in [one for one in new_cases if one.run in lost]:
        known = lost[case.run]
        _give_up(store, case, f"the federation could not be run: {known['reason']}", known["status"])
    # Cases of one run follow each other, so that its transcript is opened and verified once.
    rest = sorted((one for one in new_cases if one.run not in lost), key=lambda one: one.run)
    for death in workers.run([_task(plan, store, "work_on_case", one) for one in rest], then):
        _give_up(store, Case(**death.task.argument["item"]), death.reason)


def _check_power(
    plan: Plan, store: Store, document: Mapping[str, Any], workers: Engine, progress: Progress
) -> list[dict[str, Any]]:
    """Run the power checks that verdicts wait for; their rows, none where none waits."""
    from fedxray.audit.power import planted_work, power_rows, waiting

    attacks = waiting(document["summary"])
    if not attacks:
        return []
    runs, cases = planted_work(plan, attacks)
    store.log(f"{plan.name}: power checks, {len(runs)} runs, {len(cases)} cases")
    _work(plan, store, runs, cases, workers, progress)
    return power_rows(plan, attacks, [store.read_case(case.id) for case in cases])


def _forget_failures(store: Store, runs: list[Run], cases: list[Case]) -> None:
    """What failed is tried again when an audit goes on: there may be more memory this time."""
    for run in runs:
        store.forget_lost_run(run.id)
    for case in cases:
        if store.has_case(case.id) and store.read_case(case.id)["status"] == "failed":
            store.forget_case(case.id)


def _give_up(store: Store, case: Case, reason: str, status: str = "failed") -> None:
    """Keep that a case came to nothing."""
    from fedxray.audit.run import lost_case

    store.log(f"{case.id}: {reason}")
    lost_case(case, store, reason, status)


def _task(plan: Plan, store: Store, function: str, item: Run | Case) -> Task:
    argument = {
        "plan": plan.to_document(),
        "plan_folder": str(plan.folder.absolute()),  # a worker may be at home elsewhere
        "store": str(store.folder.absolute()),
        "item": asdict(item),
    }
    return Task(label=item.id, function=f"{__name__}:{function}", argument=argument)


def work_on_run(argument: Mapping[str, Any]) -> None:
    """Simulate one run, here or in a worker."""
    from fedxray.audit.run import execute_run

    plan, store = _opened(argument)
    execute_run(plan, Run(**argument["item"]), store)


def work_on_case(argument: Mapping[str, Any]) -> None:
    """Attack one case, here or in a worker."""
    from fedxray.audit.run import execute_case

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
