"""What is checked and reckoned before anything starts: seats, grants, time and room."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace

from fedxray.adversary.roles import ROLES
from fedxray.attacks.base import Attack, compute
from fedxray.audit.cases import ABOUT_WHOLE_SUMS, Case, Run, expand, is_about_everyone
from fedxray.audit.comparisons import FROM_NOTHING
from fedxray.audit.evaluate import Bench, check_inner_kinds, chosen_controls, make_view
from fedxray.audit.extras import check_usable
from fedxray.audit.plan import AttackPart, Plan
from fedxray.audit.plan.checks import check_controls
from fedxray.audit.power import planted_share
from fedxray.audit.prepare import Prepared, prepare
from fedxray.audit.recorded_checks import check_recording
from fedxray.audit.restoring import check_restoring, check_unseen, make_restorer, prior_of
from fedxray.defences.base import NoDefence
from fedxray.errors import BadInput
from fedxray.federation.folder import transcript_bytes
from fedxray.federation.round_loop import Federation, simulate
from fedxray.federation.transcript import Transcript
from fedxray.naming import users_code

REHEARSED_EXAMPLES = 2
SECONDS_PER_CASE = 1.0  # reading, floors, controls and scoring
LONG_ENOUGH, MOST_TIMES = 0.5, 10  # seconds and repeats of what is timed
REPLAY = 3  # local steps of training that one step of an attack costs for each local step that it replays


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What an audit will take; the time is rough."""

    runs: int
    cases: int
    seconds: float
    bytes: int
    run_seconds: float  # of one run
    fixed_seconds: float  # of one case, whatever its attack
    optimising_seconds: Mapping[str, float]  # of one case on top, by attack

    def case_seconds(self, attack: str) -> float:
        """Of one case of an attack."""
        return self.fixed_seconds + self.optimising_seconds[attack]


def preflight(plan: Plan) -> Estimate:
    """Refuse what cannot work, and reckon the rest from a rehearsal with two examples per client."""
    runs, cases = expand(plan)
    for part in plan.attacks:
        attack = part.make(plan.folder)
        check_role(attack, part.role, f"attack {part.title}")
        check_inner_kinds(attack, f"attack {part.title}")
        check_controls(f"attack {part.title}", part, attack)
    for defence in plan.defences:  # a defence with impossible settings is found before its turn comes
        with _of_the_user(defence.factory, f"defence {defence.title}", "a defence that can be used"):
            prepared = prepare(plan, defence.title, plan.seeds[0])
    if plan.transcript is None:
        transcript, seconds = _rehearse_own(plan, prepared)
    else:
        transcript, seconds = check_recording(plan, prepared), _step_seconds(prepared.federation)
    check_priors(plan, prepared)
    for part in plan.attacks:
        first = next(case for case in cases if case.attack == part.title)
        with _of_the_user(part.factory, f"attack {part.title}", "an attack that can be used"):
            check_case(plan, first, prepared, transcript)
    return _estimate(plan, runs, cases, prepared, seconds)


def check_role(attack: Attack, role: str, place: str) -> None:
    """Refuse a seat that the attack is not made for."""
    if role not in attack.roles:
        raise BadInput(
            f"{place}: role",
            expected=f"a role that {attack.name} can use ({', '.join(attack.roles)})",
            got=f"{role!r} ({ROLES[role].sees})",
            remedy=f"Try role = {attack.roles[0]!r}.",
        )


def check_case(plan: Plan, case: Case, prepared: Prepared, transcript: Transcript) -> None:
    """Refuse a case whose view lacks something the attack needs."""
    part = plan.attack_of(case.attack).model_copy(update={"rounds": None})
    attack = part.make(plan.folder)
    bench = Bench(
        part=part,
        attack=attack,
        transcript=transcript,
        truth=prepared.federation.truth(case.seed),
        client=case.client,
        aware=case.aware,
        memos=lambda view: compute,
        unknown=prepared.unknown,
    )
    check_usable(f"attack {part.title}: metrics", part.metrics or (), attack, prepared.federation.space)
    check_restoring(part, attack, prepared.federation.space)
    view = make_view(bench, attack)
    attack.check(view)
    if view.target is None and case.client is not None and attack.kind in ABOUT_WHOLE_SUMS:
        raise BadInput(
            f"attack {part.title}: role",
            expected="a seat that sees single replies",
            got=f"{part.role!r}, which sees sums over all clients here",
            remedy="A recording holds the records of one node, and a guess from a sum is about everyone's.",
        )


def check_priors(plan: Plan, prepared: Prepared) -> None:
    """Refuse a prior that has seen a record of any client under any seed of the plan."""
    parts = [part for part in plan.attacks if part.restore is not None]
    for seed in plan.seeds if parts else ():
        one = prepared if seed == prepared.seed else prepare(plan, plan.defences[0].title, seed)
        for part in parts:
            prior = prior_of(make_restorer(part.restore, f"attack {part.title}: restore"))
            held = (*one.federation.clients, *one.federation.holdout)
            check_unseen(part, prior, one.federation.space, held)


def _rehearse_own(plan: Plan, prepared: Prepared) -> tuple[Transcript, float]:
    """A rehearsal in which a user's own network that breaks is bad input; an error of ours comes through as it is."""
    expected = f"a network of {plan.model.factory} that can be trained"
    with _of_the_user(plan.model.factory, "model.factory", expected):
        return rehearse(prepared)


def _of_the_user(factory: str | None, argument: str, expected: str) -> AbstractContextManager[None]:
    """A block in which an error is told as the user's, where they gave the code that runs in it."""
    return nullcontext() if factory is None else users_code(argument, expected)


def rehearse(prepared: Prepared) -> tuple[Transcript, float]:
    """The same protocol for one round with two examples per client, and the seconds of one local step."""
    federation = prepared.federation
    short = replace(
        federation,
        rounds=1,
        participation=1.0,
        record="all",
        defence=NoDefence(),
        clients=tuple(
            replace(one, x=one.x[:REHEARSED_EXAMPLES], y=one.y[:REHEARSED_EXAMPLES])
            for one in federation.clients
        ),
        recipe=replace(federation.recipe, epochs=1, batch_size="all"),
    )
    transcript, _ = simulate(short, seed=prepared.seed)
    return transcript, _step_seconds(federation)


def _step_seconds(federation: Federation) -> float:
    """Seconds of one local step of the first client at its real batch size."""
    first = federation.clients[0]
    length = federation.recipe.batch_length(len(first))
    one = replace(first, x=first.x[:length], y=first.y[:length])
    short = replace(
        federation,
        clients=(one,),
        holdout=(),
        rounds=1,
        participation=1.0,
        record="all",
        defence=NoDefence(),
        recipe=replace(federation.recipe, epochs=1),
    )
    simulate(short, seed=0)
    return _timed(lambda: simulate(short, seed=0))


def _timed(work: Callable[[], object]) -> float:
    """Mean seconds of a piece of work over half a second or ten times, whatever comes first."""
    before, times = time.perf_counter(), 0
    while times < MOST_TIMES and (times == 0 or time.perf_counter() - before < LONG_ENOUGH):
        work()
        times += 1
    return (time.perf_counter() - before) / times


def _estimate(plan: Plan, runs: list[Run], cases: list[Case], prepared: Prepared, seconds: float) -> Estimate:
    federation = prepared.federation
    steps = sum(federation.recipe.steps(len(one)) for one in federation.clients) * federation.participation
    training = federation.rounds * steps * seconds if plan.transcript is None else 0.0
    needed = {
        part.title: _local_steps(part, part.make(plan.folder), federation)
        * (len(federation.clients) - len(part.seats) if is_about_everyone(plan, part) else 1)
        for part in plan.attacks
    }
    kinds = [part.make(plan.folder).kind for part in plan.attacks]
    optimising = {label: count * REPLAY * seconds for label, count in needed.items()}
    attacking = sum(optimising[case.attack] for case in cases)
    return Estimate(
        runs=len(runs),
        cases=len(cases),
        bytes=math.ceil((len(runs) + planted_share(plan, kinds, prepared)) * transcript_bytes(federation)),
        seconds=len(runs) * training + attacking + SECONDS_PER_CASE * len(cases),
        run_seconds=training,
        fixed_seconds=SECONDS_PER_CASE,
        optimising_seconds=optimising,
    )


def _local_steps(part: AttackPart, attack: Attack, federation: Federation) -> int:
    """About how many local steps a case replays: with its controls; inversions share the held-out one."""
    if part.restore is not None:  # the raw case has done it
        return 0
    inverts = attack.kind in FROM_NOTHING
    replayed = federation.recipe.steps(len(federation.clients[0])) if inverts else 1
    again = [name for name in chosen_controls(part, attack) if not inverts or name != "held-out"]
    return _attack_steps(attack) * replayed * (1 + len(again))


def planned_steps(attack: Attack) -> int:
    """Optimisation steps of one attempt of an attack, 0 where it has no such setting."""
    return _whole_number(attack, "steps", 0)


def _attack_steps(attack: Attack) -> int:
    """The same over all restarts."""
    return planned_steps(attack) * _whole_number(attack, "restarts", 1)


def _whole_number(attack: Attack, name: str, otherwise: int) -> int:
    """A setting that is a whole number, where the attack has it."""
    named = {field.name: getattr(attack, field.name) for field in fields(attack)}  # type: ignore[arg-type]
    found = named.get(name, otherwise)
    return found if isinstance(found, int) else otherwise
