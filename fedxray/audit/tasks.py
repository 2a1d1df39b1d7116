"""The tasks of an audit as plain values, which any worker can do: runs, trials ahead of cases, and cases."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedxray.audit.cases import Case, Run
from fedxray.audit.engines import Task
from fedxray.audit.plan import Plan
from fedxray.audit.store import Store
from fedxray.errors import BadInput

if TYPE_CHECKING:
    from fedxray.audit.ahead import Ahead


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
    from fedxray.audit.run import execute_run

    plan, store = _opened(argument)
    execute_run(plan, Run(**argument["item"]), store)


def work_on_trial(argument: Mapping[str, Any]) -> None:
    """Try one point of a search, here or in a worker."""
    from fedxray.audit.ahead import Ahead
    from fedxray.audit.run import execute_trial

    plan, store = _opened(argument)
    item = argument["item"]
    execute_trial(plan, Ahead(**{**item, "case": Case(**item["case"])}), store)


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
