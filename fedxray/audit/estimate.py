"""What an audit will take, reckoned from the time of one local step: its runs, its cases, and its power checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from fedxray.attacks.base import Attack
from fedxray.audit.cases import asked, expand, is_about_everyone
from fedxray.audit.comparisons import FROM_NOTHING
from fedxray.audit.evaluate import chosen_controls, declared_grants
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plant import COMPANY, planted_clients
from fedxray.audit.power import planted_share, planted_work
from fedxray.audit.prepare import Prepared
from fedxray.audit.search_table import study_of
from fedxray.audit.verdict import LEAST_UNITS
from fedxray.federation.folder import transcript_bytes
from fedxray.federation.round_loop import Federation

SECONDS_PER_CASE = 1.0  # reading, floors, controls and scoring
REPLAY = 3  # local steps of training that one step of an attack costs for each local step that it replays


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The power check of one attack: its cases, the optimising seconds of each, and its runs, shared within a kind."""

    cases: int
    optimising: float
    running: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What an audit will take; the time is rough."""

    runs: int
    cases: int
    seconds: float  # without power checks
    power_seconds: float  # of all power checks: at most, as only those are made for which a verdict waits
    bytes: int
    run_seconds: float  # of one run
    fixed_seconds: float  # of one case, whatever its attack
    optimising_seconds: Mapping[str, float]  # of one case on top, by attack
    planted: Mapping[str, Planted]  # by attack, where a verdict may wait for it

    def case_seconds(self, attack: str) -> float:
        """Of one case of an attack."""
        return self.fixed_seconds + self.optimising_seconds[attack]


def estimate(plan: Plan, prepared: Prepared, seconds: float) -> Estimate:
    """What a plan takes where one local step takes so many seconds."""
    runs, cases = expand(plan)
    federation = prepared.federation
    training = _training_seconds(federation, seconds)
    own_runs = training if plan.transcript is None else 0.0
    made = {part.title: part.make(plan.folder) for part in plan.attacks}
    optimising = {
        part.title: _local_steps(part, made[part.title], federation, len(federation.clients[0]))
        * (len(federation.clients) - len(part.seats) if is_about_everyone(plan, part) else 1)
        * REPLAY
        * seconds
        for part in plan.attacks
    }
    kinds = [attack.kind for attack in made.values()]
    planted = _planted(plan, prepared, seconds, training)
    return Estimate(
        runs=len(runs),
        cases=len(cases),
        bytes=math.ceil((len(runs) + planted_share(plan, kinds, prepared)) * transcript_bytes(federation)),
        seconds=len(runs) * own_runs + sum(SECONDS_PER_CASE + optimising[case.attack] for case in cases),
        power_seconds=sum(
            one.cases * (SECONDS_PER_CASE + one.optimising) + one.running for one in planted.values()
        ),
        run_seconds=own_runs,
        fixed_seconds=SECONDS_PER_CASE,
        optimising_seconds=optimising,
        planted=planted,
    )


def _training_seconds(federation: Federation, seconds: float) -> float:
    steps = sum(federation.recipe.steps(len(one)) for one in federation.clients) * federation.participation
    return federation.rounds * steps * seconds


def _planted(plan: Plan, prepared: Prepared, seconds: float, training: float) -> dict[str, Planted]:
    """The power check of every attack that can be made; the first of a kind bears the runs."""
    federation, seen, found = prepared.federation, set[str](), {}
    for part in plan.attacks:
        attack = part.make(plan.folder)
        units = len(asked(plan, part)) * len(plan.seeds)
        if _is_oracle(part, attack) or units < LEAST_UNITS:  # no verdict waits for it
            continue
        runs, cases = planted_work(plan, [part.title], prepared)
        fresh = [run for run in runs if run.id not in seen]
        seen |= {run.id for run in fresh}
        clients = planted_clients(plan, attack.kind, federation.space) if runs else 0
        records = COMPANY if attack.kind in FROM_NOTHING else len(federation.clients[0])
        steps = _local_steps(part, attack, federation, records)
        everyone = clients - len(part.seats) if is_about_everyone(plan, part) else 1
        found[part.title] = Planted(
            cases=len(cases),
            optimising=steps * everyone * REPLAY * seconds,
            running=len(fresh) * training * clients / len(federation.clients),
        )
    return found


def _is_oracle(part: AttackPart, attack: Attack) -> bool:
    names = part.grants if part.grants is not None else declared_grants(attack)
    return any(name.startswith("oracle-") for name in names)


def _local_steps(part: AttackPart, attack: Attack, federation: Federation, records: int) -> int:
    """About how many local steps a case replays: with its controls; inversions share the held-out one."""
    if part.restore is not None:  # the raw case has done it
        return 0
    inverts = attack.kind in FROM_NOTHING
    replayed = federation.recipe.steps(records) if inverts else 1
    again = [name for name in chosen_controls(part, attack) if not inverts or name != "held-out"]
    trials = 1 if part.search is None else study_of(attack, part.search, "search").trials
    return attack_steps(attack) * replayed * (1 + len(again)) * trials


def planned_steps(attack: Attack) -> int:
    """Optimisation steps of one attempt of an attack, 0 where it has no such setting."""
    return _whole_number(attack, "steps", 0)


def attack_steps(attack: Attack) -> int:
    """The same over all restarts."""
    return planned_steps(attack) * _whole_number(attack, "restarts", 1)


def _whole_number(attack: Attack, name: str, otherwise: int) -> int:
    """A setting that is a whole number, where the attack has it."""
    named = {field.name: getattr(attack, field.name) for field in fields(attack)}  # type: ignore[arg-type]
    found = named.get(name, otherwise)
    return found if isinstance(found, int) else otherwise
