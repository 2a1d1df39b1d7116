"""The grid of a plan: the runs that are simulated and the cases that are attacked on them, with their ids; trials."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.run.comparisons import is_swapped, others_read
from fedxray.audit.run.store import Store
from fedxray.audit.search import study_of
from fedxray.errors import BadInput

MOST_CASES = 200_000
SUMS = ("curious-client", "secure-aggregation")  # roles that see sums over all clients, whatever the protocol
ABOUT_WHOLE_SUMS = ("images", "rows", "labels")  # kinds whose guess from a sum is about all clients at once
CANARIES = "canaries"  # planted in a run to measure epsilon
UNDEFENDED = "none"  # the defence of a planted federation that has none, whatever the plan calls its own


@dataclass(frozen=True, kw_only=True)
class Run:
    """One honest federation: a defence (its label) and a seed.

    `plant` is the kind of leak planted in it, if any; `defended` states that it has the plan's defence all the same.
    """

    id: str
    defence: str
    seed: int
    plant: str | None = None
    defended: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attack on one client of one run, or on all clients but the seats at once where `client` is None.

    `aware` is None where there is no defence to know of.
    """

    id: str
    seed: int
    defence: str
    attack: str
    role: str
    client: int | None
    aware: bool | None
    plant: str | None = None  # the kind of leak that was planted in the run, if any
    defended: bool = False  # whether a planted run has the defence

    @property
    def run(self) -> str:
        """The id of the run that is attacked."""
        if self.plant is None:
            return run_id(self.defence, self.seed)
        return planted_run_id(self.plant, self.seed, self.defence if self.defended else None)

    def facts(self) -> dict[str, Any]:
        """Return the case as results.json holds it."""
        of_plants = () if self.plant is not None else ("plant", "defended")
        return {name: value for name, value in asdict(self).items() if name not in of_plants}


@dataclass(frozen=True, kw_only=True)
class TrialTask:
    """One trial of a case's search, by its batch and its index there; `messages_of` is the client a control reads."""

    case: Case
    messages_of: int | None
    batch: int
    index: int

    @property
    def id(self) -> str:
        """The id of its progress and of its stored time."""
        control = "" if self.messages_of is None else f"-messages{self.messages_of}"
        return f"{self.case.id}{control}-trial{self.batch}.{self.index}"

    @property
    def run(self) -> str:
        """The id of the run that is attacked."""
        return self.case.run


def expand(plan: Plan) -> tuple[list[Run], list[Case]]:
    """Return all runs and all cases, in the order of the plan."""
    runs = [
        Run(id=run_id(part.title, seed), defence=part.title, seed=seed) for part in plan.defences for seed in plan.seeds
    ]
    if plan.canaries is not None:
        runs += [
            Run(id=canary_run_id(part.title, seed), defence=part.title, seed=seed, plant=CANARIES, defended=True)
            for part in plan.defences
            for seed in plan.seeds
        ]
    chosen = {attack.title: asked(plan, attack) for attack in plan.attacks}
    _check_count(plan, sum(map(len, chosen.values())))
    cases = [
        _case(seed, defence.title, attack, client, aware)
        for attack in plan.attacks
        for defence in plan.defences
        for aware in ((None,) if defence.is_none else (False, True))
        for seed in plan.seeds
        for client in chosen[attack.title]
    ]
    return runs, cases


def _check_count(plan: Plan, attacked: int) -> None:
    """Refuse a grid of too many cases before it is laid out."""
    count = attacked * len(plan.seeds) * sum(1 if defence.is_none else 2 for defence in plan.defences)
    if count > MOST_CASES:
        expected = f"at most {MOST_CASES:,} cases in an audit"
        remedy = "Attack fewer clients with targets, or use fewer attacks, defences or seeds."
        raise BadInput("attack.targets", expected=expected, got=f"{count:,}", remedy=remedy)


def asked(plan: Plan, attack: AttackPart) -> Sequence[int | None]:
    """Return the clients attacked, one case each in every run; a single None stands for all but the seats."""
    chosen = targets(attack, plan.clients, plan.seeds[0])
    if not is_about_everyone(plan, attack):
        return chosen
    if attack.targets != "all":
        expected = '"all", since a sum is about all clients but the seats at once'
        remedy = "Leave targets out."
        raise BadInput(f"attack {attack.title}: targets", expected=expected, got=attack.targets, remedy=remedy)
    _check_all_take_part(plan, attack)
    return [None]


def _check_all_take_part(plan: Plan, attack: AttackPart) -> None:
    """Refuse partial participation: scores of a sum are about all clients, and an absent client would look safe."""
    from fedxray.federation.setting import share_of  # late: it brings torch

    present = share_of(plan.federation.participation, plan.clients)
    if present < plan.clients:
        raise BadInput(
            "federation.participation",
            expected=f"1.0, since {attack.title} guesses the records behind a sum and is scored on all clients",
            got=f"{plan.federation.participation}, {present} of {plan.clients} clients in a round",
            remedy="Set it to 1.0, with as many clients as a round has; or use a role that sees single replies.",
        )


def is_about_everyone(plan: Plan, attack: AttackPart) -> bool:
    """Return whether a role that sees only sums guesses records or labels, which then belong to no single client.

    A recording holds the records of one node, so that a guess about all clients cannot be scored there.
    """
    sums = attack.role in SUMS or plan.federation.secure_aggregation
    if not sums or plan.transcript is not None:
        return False
    made = attack.make(plan.folder)
    return made.kind in ABOUT_WHOLE_SUMS and not made.by_reports


def targets(attack: AttackPart, clients: int, seed: int) -> list[int]:
    """Return the clients attacked: all, some drawn at random, or those listed; never a curious client's seat.

    The draw depends on the first seed of the plan alone, so that fewer clients are always among more.
    """
    seats = attack.seats
    others = [client for client in range(clients) if client not in seats]
    argument = f"attack {attack.title}: targets"
    if isinstance(attack.targets, list):
        chosen = list(dict.fromkeys(attack.targets))
        wrong = [client for client in chosen if client not in others]
        if wrong or not chosen:
            reason = "is the seat of the curious client" if wrong and wrong[0] in attack.seats else "does not exist"
            got = f"client {wrong[0]}, which {reason}" if wrong else "an empty list"
            raise BadInput(argument, expected=_span(others), got=got, remedy='Name other clients, or targets = "all".')
        return chosen
    if not others:
        expected = "a client besides the curious one"
        raise BadInput(argument, expected=expected, got="none", remedy="Use more clients or fewer seats.")
    if attack.targets == "all":
        return others
    if attack.targets > len(others):
        expected = f"at most {len(others)}"
        raise BadInput(argument, expected=expected, got=attack.targets, remedy='Use fewer, or targets = "all".')
    order = list(others)
    random.Random(f"targets/{seed}").shuffle(order)
    return sorted(order[: attack.targets])


def run_id(defence: str, seed: int) -> str:
    """Return a short readable id, different for different runs."""
    return _identity(f"{defence}.seed{seed}", [defence, seed])


def planted_run_id(kind: str, seed: int, defence: str | None = None) -> str:
    """Return the id of a run with a planted leak, undefended unless a defence is named."""
    if defence is None:
        return _identity(f"planted-{kind}.seed{seed}", ["planted", kind, seed])
    return _identity(f"planted-{kind}.{defence}.seed{seed}", ["planted", kind, defence, seed])


def canary_run_id(defence: str, seed: int) -> str:
    """Return the id of the run with canaries."""
    return planted_run_id(CANARIES, seed, defence)


def planted_case(
    seed: int,
    defence: str,
    attack: AttackPart,
    client: int | None,
    kind: str,
    *,
    aware: bool | None = None,
    defended: bool = False,
) -> Case:
    """Return the case of an attack on a client, or on all, with a planted leak of its kind."""
    under = f".{defence}{AWARENESS[aware]}" if defended else ""
    readable = f"planted.{attack.title}.{attack.role}{under}.seed{seed}.{_whom(client)}"
    parts: list[object] = ["planted", attack.title, attack.role, kind, seed, client]
    return Case(
        id=_identity(readable, [*parts, defence, aware] if defended else parts),
        seed=seed,
        defence=defence,
        attack=attack.title,
        role=attack.role,
        client=client,
        aware=aware,
        plant=kind,
        defended=defended,
    )


AWARENESS = {None: "", False: ".unaware", True: ".aware"}


def unaware_twin(attack: AttackPart, case: Case) -> Case:
    """Return the case of the same attacker who does not know the defence."""
    return _case(case.seed, case.defence, attack, case.client, aware=False)


def _case(seed: int, defence: str, attack: AttackPart, client: int | None, aware: bool | None) -> Case:
    readable = f"{attack.title}.{attack.role}.{defence}{AWARENESS[aware]}.seed{seed}.{_whom(client)}"
    identity = _identity(readable, [attack.title, attack.role, defence, aware, seed, client])
    return Case(
        id=identity, seed=seed, defence=defence, attack=attack.title, role=attack.role, client=client, aware=aware
    )


def _whom(client: int | None) -> str:
    return "everyone" if client is None else f"client{client}"


def _identity(readable: str, parts: list[object]) -> str:
    """Return readable text, shortened, with a hash of all parts; safe as a file name on every system."""
    short = re.sub(r"[^a-z0-9._-]+", "-", readable.lower()).strip("-.")[:100]
    return f"{short}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]}"


def _span(clients: list[int]) -> str:
    return f"clients among {clients[0]} to {clients[-1]}" if clients else "clients that exist"


# Trials of searches as tasks before their cases, so that workers share them.
#
# A case could try all of its settings by itself, with the same result: a trial leaves its answer in the store, where
# the case finds it. Batches follow one after the other; the trials of one batch may run side by side. Searches on the
# clients' own messages come first, then those of controls that read another client's, which may be stored by then.

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
