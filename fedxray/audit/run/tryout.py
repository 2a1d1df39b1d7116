"""Own code of a plan, called in a process of its own before the audit, so that code that exits or hangs is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple

from fedxray.audit.plan import Plan
from fedxray.audit.run.apart import seconds_allowed
from fedxray.audit.run.engines import follow_parent, start_worker
from fedxray.errors import BadInput
from fedxray.lookup import harmless_output

LIMIT = 120.0  # seconds that a factory may take
VARIABLE = "FEDXRAY_FACTORY_SECONDS"  # changes that


class Called(NamedTuple):
    """A factory that is called now: the key that names it, and "module:function"."""

    argument: str
    spec: str


def try_factories(plan: Plan) -> None:
    """Call every factory of a plan in another process; refuse one that ends it or that takes longer than the limit.

    Any other error is left to the audit, which calls them again and reports it.
    """
    if not plan.factories():
        return
    limit, worker = seconds_allowed(VARIABLE, LIMIT), start_worker(_call_all, plan)
    called: Called | None = None  # while none is called, as data are read, there is no limit
    try:
        while worker.pipe.poll(None if called is None else limit):
            called = worker.pipe.recv()
            if called is None:
                return
        assert called is not None
        expected = f"{called.spec} to return within {limit:g} s"
        remedy = f"Let it do less, or set {VARIABLE} to more seconds."
        raise BadInput(called.argument, expected=expected, got="no end, so it was stopped", remedy=remedy)
    except EOFError:
        if called is not None:
            expected, remedy = f"{called.spec} to return", "Let it raise an error instead."
            got = worker.exit_reason()
            raise BadInput(called.argument, expected=expected, got=got, remedy=remedy) from None
    finally:
        worker.stop()


@harmless_output()
def _call_all(pipe: Connection, plan: Plan) -> None:
    """Send what is called next, and at the end None."""
    threading.Thread(target=follow_parent, daemon=True).start()
    try:
        for called in _calls(plan):
            pipe.send(called)
    except (Exception, SystemExit):  # noqa: BLE001  (the audit meets it again)
        pass
    pipe.send(None)


def _calls(plan: Plan) -> Iterator[Called]:
    """Call every factory after it was yielded."""
    from fedxray.audit.run.prepare import load_data
    from fedxray.seeds import fork

    if plan.model.factory is not None:
        space = load_data(plan, plan.seeds[0]).space
        yield Called("model.factory", plan.model.factory)
        plan.model.make(space, fork(plan.seeds[0], "model"), plan.folder)
    for kind, parts in (("defence", plan.defences), ("attack", plan.attacks)):
        for part in parts:
            if part.factory is not None:
                yield Called(f"{kind} {part.title}: factory", part.factory)
                part.make(plan.folder)
