"""Trials of searches, worked on ahead of their cases, so that workers share them.

A case could try all of its settings by itself and would come to the same: all that a trial leaves is its answer in the
store, where the case finds it. Batches follow one after the other; the trials of one may run side by side. First come
searches on the clients' own messages, then those of controls that read another client's, which may be done by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.adversary.roles import ROLES
from fedxray.audit.plan import Plan
from fedxray.audit.run.comparisons import chosen_controls, next_client
from fedxray.audit.run.grid import Case
from fedxray.audit.run.search import study_of
from fedxray.audit.run.store import Store

TIMES = ("seconds", "cpu_seconds")


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """One trial of a case, by its batch and its place there; `messages_of` is the client that a control reads."""

    case: Case
    messages_of: int | None
    batch: int
    place: int

    @property
    def id(self) -> str:
        """What its progress and its time go by."""
        whose = "" if self.messages_of is None else f"-messages{self.messages_of}"
        return f"{self.case.id}{whose}-trial{self.batch}.{self.place}"

    @property
    def run(self) -> str:
        """The id of the run that is attacked."""
        return self.case.run


def trials_ahead(plan: Plan, cases: Sequence[Case]) -> list[list[Ahead]]:
    """Batches of trials of all cases that search; a restored version finds those of its raw one."""
    sizes = {part.title: _sizes(plan, part.title) for part in plan.attacks if part.search is not None}
    searching = [one for one in cases if sizes.get(one.attack)]
    found = []
    for whose in (_own, _others):
        views = [(case, client) for case in searching for client in whose(plan, case)]
        for batch in range(max((len(sizes[case.attack]) for case, _ in views), default=0)):
            found.append(
                [
                    Ahead(case=case, messages_of=client, batch=batch, place=place)
                    for case, client in views
                    if batch < len(sizes[case.attack])
                    for place in range(sizes[case.attack][batch])
                ]
            )
    return found


def costs_of(
    plan: Plan, cases: Sequence[Case], fixed: float, optimising: Callable[[str], float]
) -> dict[str, float]:
    """What cases and the trials ahead of them should take, by their ids; a case whose trials are made is short."""
    trials = [one for batch in trials_ahead(plan, cases) for one in batch]
    counts: dict[str, int] = {}
    for one in trials:
        counts[one.case.id] = counts.get(one.case.id, 0) + 1
    found = {one.id: optimising(one.case.attack) / counts[one.case.id] for one in trials}
    return found | {one.id: fixed + (0.0 if one.id in counts else optimising(one.attack)) for one in cases}


def keep_time(store: Store, item: Ahead, times: dict[str, float]) -> None:
    """Keep what a trial took, for its case."""
    store.save_evidence(f"time-{item.id}", {}, times)


def time_ahead(plan: Plan, case: Case, store: Store) -> dict[str, float]:
    """What the trials ahead of a case took."""
    kept = [store.load_evidence(f"time-{one.id}") for batch in trials_ahead(plan, [case]) for one in batch]
    return {name: sum(one[1][name] for one in kept if one is not None) for name in TIMES}


def _sizes(plan: Plan, title: str) -> list[int]:
    part = plan.attack_of(title)
    if part.restore is not None:
        return []
    return study_of(part.make(plan.folder), part.search, f"attack {title}: search").sizes()


def _own(plan: Plan, case: Case) -> list[Any]:
    return [None]


def _others(plan: Plan, case: Case) -> list[Any]:
    """The client whose messages a control of this case reads, if it has such a control."""
    part = plan.attack_of(case.attack)
    attack = part.make(plan.folder)
    hidden = plan.federation.secure_aggregation or not ROLES[part.role].single_replies
    if (
        hidden
        or case.client is None
        or case.plant is not None  # which has no controls
        or plan.transcript is not None  # which holds one client
        or attack.kind == "sources"  # whose control needs no second search
        or "other-client" not in chosen_controls(part, attack)
    ):
        return []
    other = next_client(case.client, plan.clients, part.seats)
    return [] if other is None else [other]
