"""What is checked and reckoned before anything starts: seats, grants, time and room."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from fedxray.adversary.roles import ROLES
from fedxray.attacks.base import Attack, compute
from fedxray.audit.cases import ABOUT_WHOLE_SUMS, Case, expand
from fedxray.audit.estimate import Estimate, estimate
from fedxray.audit.evaluate import Bench, check_inner_kinds, make_view
from fedxray.audit.extras import check_usable
from fedxray.audit.plan import Plan
from fedxray.audit.plan.checks import check_controls
from fedxray.audit.prepare import Prepared, prepare
from fedxray.audit.recorded.checks import check_recording
from fedxray.audit.restoring import check_restoring, check_unseen, tools_of
from fedxray.audit.study import a_trial
from fedxray.defences.base import NoDefence
from fedxray.errors import BadInput
from fedxray.federation.round_loop import Federation, simulate
from fedxray.federation.transcript import Transcript
from fedxray.naming import users_code

REHEARSED_EXAMPLES = 2
LONG_ENOUGH, MOST_TIMES = 0.5, 10  # seconds and repeats of what is timed


def preflight(plan: Plan) -> Estimate:
    """Refuse what cannot work, and reckon the rest from a rehearsal with two examples per client."""
    _, cases = expand(plan)
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
    return estimate(plan, prepared, seconds)


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
    wanted, space = part.metrics or (), prepared.federation.space
    check_usable(f"attack {part.title}: metrics", wanted, attack.name, attack.kind, space)
    check_restoring(part, attack, prepared.federation.space)
    view = make_view(bench, attack)
    a_trial(attack, part.search, f"attack {part.title}: search").check(view)
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
            held = (*one.federation.clients, *one.federation.holdout)
            check_unseen(part, tools_of(part)[1], one.federation.space, held)


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
