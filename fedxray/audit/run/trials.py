"""Trials of searches as tasks before their cases, so that workers share them.

A case could try all of its settings by itself, with the same result: a trial leaves its answer in the store, where the
case finds it. Batches follow one after the other; the trials of one batch may run side by side. Searches on the
clients' own messages come first, then those of controls that read another client's, which may be stored by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedxray.audit.plan import Plan
from fedxray.audit.run.comparisons import is_swapped, others_read
from fedxray.audit.run.grid import Case, TrialTask
from fedxray.audit.run.search import study_of
from fedxray.audit.run.store import Store

TIMES = ("seconds", "cpu_seconds")


def trial_batches(plan: Plan, cases: Sequence[Case]) -> list[list[TrialTask]]:
    """Return batches of trials of all cases that search; a restored version finds those of its raw one."""
    sizes = {part.title: _sizes(plan, part.title) for part in plan.attacks if part.search is not None}
    searching = [case for case in cases if sizes.get(case.attack)]
    own: list[tuple[Case, int | None]] = [(case, None) for case in searching]
    controls = [(case, client) for case in searching for client in _control_clients(plan, case)]
    return [
        [
            TrialTask(case=case, messages_of=client, batch=batch, index=index)
            for case, client in views
            if batch < len(sizes[case.attack])
            for index in range(sizes[case.attack][batch])
        ]
        for views in (own, controls)
        for batch in range(max((len(sizes[case.attack]) for case, _ in views), default=0))
    ]


def case_costs(plan: Plan, cases: Sequence[Case], fixed: float, optimising: Callable[[str], float]) -> dict[str, float]:
    """Return the expected seconds of cases and of the trials before them, by their ids.

    `fixed` are the seconds of any case, `optimising` those of an attack on top; a case whose trials ran before it is
    short.
    """
    trials = [trial for batch in trial_batches(plan, cases) for trial in batch]
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial.case.id] = counts.get(trial.case.id, 0) + 1
    costs = {trial.id: optimising(trial.case.attack) / counts[trial.case.id] for trial in trials}
    return costs | {case.id: fixed + (0.0 if case.id in counts else optimising(case.attack)) for case in cases}


def save_trial_time(store: Store, trial: TrialTask, times: dict[str, float]) -> None:
    """Store the time that a trial took, for its case."""
    store.save_evidence(f"time-{trial.id}", {}, times)


def trial_time(plan: Plan, store: Store, case: Case) -> dict[str, float]:
    """Return the time that the trials before a case took."""
    trials = [trial for batch in trial_batches(plan, [case]) for trial in batch]
    stored = [times for trial in trials if (times := store.load_evidence(f"time-{trial.id}")) is not None]
    return {name: sum(times[1][name] for times in stored) for name in TIMES}


def _sizes(plan: Plan, title: str) -> list[int]:
    """Return how many trials each batch of an attack's search has; none for a restored version."""
    part = plan.attack_of(title)
    if part.restore is not None:
        return []
    return study_of(part.make(plan.folder), part.search, f"attack {title}: search").sizes()


def _control_clients(plan: Plan, case: Case) -> list[int]:
    """Return the clients whose messages the control `other-client` of this case reads, none without such a control."""
    if case.plant is not None or plan.transcript is not None:  # no controls, and one client
        return []
    part = plan.attack_of(case.attack)
    attack = part.make(plan.folder)
    if attack.kind == "sources":  # whose control needs no second search
        return []
    return others_read(
        part,
        attack,
        client=case.client,
        clients=plan.clients,
        seed=case.seed,
        sums=plan.federation.secure_aggregation,
        swapped=is_swapped(part, attack, held_out=plan.data.holdout > 0),
    )
