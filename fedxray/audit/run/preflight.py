"""Checks before anything starts (roles, grants, priors, own code), and an estimate of time and disk space."""

from __future__ import annotations

import math
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import NamedTuple

from fedxray.adversary.grants import ROLES
from fedxray.attacks.base import Attack, Workload
from fedxray.attacks.inversion.tabular import TabularInversion
from fedxray.audit.catalog import attack_settings, resolve, table
from fedxray.audit.judge.verdict import LEAST_RUNS
from fedxray.audit.own_code.apart import OutOfTime, OwnCodeError, OwnRefusal, check_apart, do_apart, seconds_allowed
from fedxray.audit.own_code.carry import Parts, StatedDefence, words_of
from fedxray.audit.plan import AttackPart, Plan, make_plan
from fedxray.audit.plan.checks import check_controls
from fedxray.audit.plan.schema import DefencePart
from fedxray.audit.restoring import check_restoring, check_unseen, tools_of
from fedxray.audit.run.canaries import check_canaries
from fedxray.audit.run.comparisons import (
    FROM_NOTHING,
    CaseContext,
    check_inner_kinds,
    chosen_controls,
    grant_names,
    is_swapped,
    others_read,
)
from fedxray.audit.run.grid import ABOUT_WHOLE_SUMS, Case, asked, expand, is_about_everyone
from fedxray.audit.run.power import COMPANY, Check, planted_clients, planted_share, planted_work
from fedxray.audit.run.prepare import Prepared, one_round, prepare, prepare_first
from fedxray.audit.search import example_trial, study_of
from fedxray.audit.workers.engines import follow_parent, start_worker
from fedxray.data.dataset import Records
from fedxray.errors import BadInput, FedxrayError
from fedxray.federation.folder import transcript_bytes
from fedxray.federation.local import stacked_layers
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, recorded_rounds
from fedxray.federation.transcript import Transcript
from fedxray.lookup import harmless_output, users_code
from fedxray.metrics.table import check_usable
from fedxray.params import parameters_of

# The estimate, from the time of one local step: runs, cases and power checks

STARTING = 10.0  # seconds of any audit: imports, the rehearsal, workers and the report
SECONDS_PER_CASE = 0.1  # reading, floors, controls and scoring
CLASSIFIERS = {"attributes": 0.2}  # seconds of a case on top, by kind of attack, whose floors train classifiers
SAME_FOR_ALL = {"recipe"}  # grants on which answers about all clients agree, so that a stored one serves as a control
REPLAY = 3  # local steps of training that one step of an attack costs for each local step that it replays


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The power check of one attack: its cases, the optimising seconds of each, and its runs, shared within a kind."""

    cases: int
    optimising: float
    running: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The expected time and disk space of an audit; the time is rough."""

    runs: int
    cases: int
    seconds: float  # without power checks
    power_seconds: float  # of all power checks; only those are run for which a verdict waits
    bytes: int
    run_seconds: float  # of one run
    fixed_seconds: float  # of one case, whatever its attack
    optimising_seconds: Mapping[str, float]  # of one case on top, by attack
    planted: Mapping[str, Planted]  # by attack, where a verdict may wait for it

    def case_seconds(self, attack: str) -> float:
        """Return the seconds of one case of an attack."""
        return self.fixed_seconds + self.optimising_seconds[attack]


def estimate(plan: Plan, prepared: Prepared, seconds: float) -> Estimate:
    """Return the estimate of a plan, where one local step takes `seconds`."""
    runs, cases = expand(plan)
    federation = prepared.federation
    steps = sum(federation.recipe.steps(len(records)) for records in federation.clients)  # of one round
    training = federation.rounds * (steps * federation.participation) * seconds
    own_runs = training if plan.transcript is None else 0.0
    attacks = {part.title: part.make(plan.folder) for part in plan.attacks}
    optimising = {
        part.title: _answering(part, attacks[part.title], federation, seconds)
        * (1 + _repeats(plan, part, attacks[part.title], federation))
        * (len(federation.clients) - len(part.seats) if is_about_everyone(plan, part) else 1)
        + CLASSIFIERS.get(attacks[part.title].kind, 0.0)
        for part in plan.attacks
    }
    kinds = [attack.kind for attack in attacks.values()]
    planted = _planted(plan, prepared, seconds, training)
    guests = 0 if plan.canaries is None else plan.canaries.clients  # canary clients, of which messages are stored too
    more = sum(run.plant is not None for run in runs) * guests / len(federation.clients)
    return Estimate(
        runs=len(runs),
        cases=len(cases),
        bytes=math.ceil((len(runs) + more + planted_share(plan, kinds, prepared)) * transcript_bytes(federation)),
        seconds=len(runs) * own_runs + sum(SECONDS_PER_CASE + optimising[case.attack] for case in cases),
        power_seconds=sum(
            check.cases * (SECONDS_PER_CASE + check.optimising) + check.running for check in planted.values()
        ),
        run_seconds=own_runs,
        fixed_seconds=SECONDS_PER_CASE,
        optimising_seconds=optimising,
        planted=planted,
    )


def _planted(plan: Plan, prepared: Prepared, seconds: float, training: float) -> dict[str, Planted]:
    """Return the power check of every attack for which a verdict may wait; the first of a kind bears the runs."""
    federation, seen, checks = prepared.federation, set[str](), {}
    for part in plan.attacks:
        attack = part.make(plan.folder)
        oracle = any(name.startswith("oracle-") for name in grant_names(part, attack, None))
        if oracle or len(plan.seeds) < LEAST_RUNS:  # no verdict waits for it
            continue
        runs, cases = planted_work(plan, _checks(plan, part.title), prepared)
        fresh = [run for run in runs if run.id not in seen]
        seen |= {run.id for run in fresh}
        clients = planted_clients(plan, attack.kind, federation.space) if runs else 0
        records = COMPANY if attack.kind in FROM_NOTHING else len(federation.clients[0])
        everyone = clients - len(part.seats) if is_about_everyone(plan, part) else 1
        checks[part.title] = Planted(
            cases=len(cases),
            optimising=_answering(part, attack, federation, seconds, records) * everyone
            + CLASSIFIERS.get(attack.kind, 0.0),
            running=len(fresh) * training * clients / len(federation.clients),
        )
    return checks


def _checks(plan: Plan, attack: str) -> list[Check]:
    """Return all power checks of an attack that verdicts may wait for."""
    defended = [part.title for part in plan.defences if not part.is_none]
    each = [Check(attack=attack, defence=label, aware=aware) for label in defended for aware in (False, True)]
    return [Check(attack=attack), *each]


def _answering(
    part: AttackPart, attack: Attack, federation: Federation, seconds: float, records: int | None = None
) -> float:
    """Return about how long one answer takes, where one local step takes `seconds`."""
    records = len(federation.clients[0]) if records is None else records
    if isinstance(attack, TabularInversion):
        records = min(records, attack.rows_in_time(parameters_of(federation.model), federation.recipe))
    rounds = len(recorded_rounds(federation.record, federation.rounds))
    work = Workload(
        records=records,
        rounds=rounds,
        clients=len(federation.clients),
        local_steps=federation.recipe.steps(records),
        step_seconds=seconds,
    )
    return _local_steps(part, attack, federation, records) * REPLAY * seconds + attack.seconds(work)


def _local_steps(part: AttackPart, attack: Attack, federation: Federation, records: int) -> int:
    """Return about how many local steps an attack replays."""
    if part.restore is not None:  # the raw case has done it
        return 0
    inverts = attack.kind in FROM_NOTHING
    replayed = federation.recipe.steps(records) if inverts else 1
    trials = 1 if part.search is None else study_of(attack, part.search, "search").trials
    together = isinstance(attack, TabularInversion) and stacked_layers(federation.model) is not None
    return planned_steps(attack, restarts=not together) * replayed * trials  # restarts in one loop take as long as one


def _repeats(plan: Plan, part: AttackPart, attack: Attack, federation: Federation) -> int:
    """Return how often the controls of a case repeat its attack; inversions share the held-out one."""
    held_out = any(map(len, federation.holdout))
    free = attack.kind in FROM_NOTHING or not held_out
    controls = set(chosen_controls(part, attack)) - ({"held-out"} if free else set())
    stored = part.targets == "all" and attack.reads is not None and set(attack.reads) <= SAME_FOR_ALL
    others = others_read(
        part,
        attack,
        client=asked(plan, part)[0],
        clients=len(federation.clients),
        seed=plan.seeds[0],
        sums=federation.secure_aggregation,
        swapped=is_swapped(part, attack, held_out=held_out),
    )
    shared = stored or attack.kind == "sources"
    return len(controls - {"other-client"}) + (0 if shared else len(others))


def planned_steps(attack: Attack, *, restarts: bool = False) -> int:
    """Return the optimisation steps of one restart of an attack, or of all; 0 where it has no such setting."""
    settings = attack_settings(attack)
    steps, times, rates = settings.get("steps", 0), settings.get("restarts", 1), settings.get("rates", ())
    if not isinstance(steps, int):
        return 0
    steps *= 1 + (len(rates) if isinstance(rates, tuple) else 0)  # further learning rates are descents of their own
    return steps * times if restarts and isinstance(times, int) else steps


# Checks and a rehearsal

REHEARSED_EXAMPLES = 2
LONG_ENOUGH, MOST_TIMES = 0.5, 10  # seconds and repeats of what is timed
LONG_STEP, STEPS = 0.05, 10  # seconds from which a round of one step is timed as it is, else one of ten
SMALL_RATE = 1e-6  # learning rate of steps that are timed, which must not diverge


@harmless_output()
def preflight(plan: Plan) -> Estimate:
    """Refuse what cannot work, and estimate the rest from a rehearsal with two examples per client."""
    _, cases = expand(plan)
    for part in plan.attacks:
        attack = part.make(plan.folder)
        check_role(attack, part.role, f"attack {part.title}")
        check_inner_kinds(attack, f"attack {part.title}")
        check_controls(f"attack {part.title}", part, attack)
    for defence in plan.defences:  # impossible settings are refused before any run
        with _of_the_user(defence.factory, f"defence {defence.title}", "a defence that can be used"):
            prepared = prepare(plan, defence.title, plan.seeds[0], stated=StatedDefence())
            _try_apart(plan, defence)  # the data are read by now, which takes none of its time
    if plan.canaries is not None:
        check_canaries(prepared.federation, plan.canaries)
    if plan.transcript is None:
        # An error of the user's own network is bad input, any other error is raised as it is.
        expected = f"a network of {plan.model.factory} that can be trained"
        with _of_the_user(plan.model.factory, "model.factory", expected):
            transcript, seconds = rehearse(prepared)
    else:
        from fedxray.audit.recorded.prepare import check_recording

        transcript, seconds = check_recording(plan, prepared), _step_seconds(prepared.federation)
    check_priors(plan, prepared)
    for part in plan.attacks:
        first = next(case for case in cases if case.attack == part.title)
        with _of_the_user(part.factory, f"attack {part.title}", "an attack that can be used"):
            check_case(plan, first, prepared, transcript)
    return estimate(plan, prepared, seconds)


class Fit(NamedTuple):
    """An attack of the catalogue on a plan's data: its kind, the seconds of all its cases, or why it cannot run."""

    name: str
    kind: str
    seconds: float | None
    reason: str


@harmless_output()
def fitting(plan: Plan) -> list[Fit]:
    """Return for every attack of the catalogue whether it can run on a plan's data and training, and what it takes.

    Each is tried in the role of a server, or in its first role where it knows no server, with its default settings.
    """
    if plan.transcript is not None:
        expected, remedy = "a plan that simulates", "For a recording, add the attack and use --dry-run."
        raise BadInput("--for", expected=expected, got="a plan with [transcript]", remedy=remedy)
    prepared = prepare_first(plan)
    transcript, seconds = rehearse(prepared)
    fits = []
    for name in table("attacks"):
        attack: type[Attack] = resolve("attacks", name)
        role = "server" if "server" in attack.roles else attack.roles[0]
        try:
            alone = _with_attack(plan, {"name": name, "role": role})
            check_case(alone, expand(alone)[1][0], prepared, transcript)
            needed = estimate(alone, prepared, seconds)
            fits.append(Fit(name, attack.kind, needed.seconds - needed.runs * needed.run_seconds, ""))
        except FedxrayError as error:
            reason = " ".join(str(error).split()).removeprefix(f"{name} cannot run: ")
            fits.append(Fit(name, attack.kind, None, reason))
    return fits


def _with_attack(plan: Plan, attack: Mapping[str, str]) -> Plan:
    """Return the plan with this attack alone, without limits and canaries."""
    content = {
        key: value for key, value in tomllib.loads(plan.text.decode()).items() if key not in ("gate", "canaries")
    }
    return make_plan({**content, "name": plan.name, "attack": [attack]}, plan.folder, plan.text)


def _try_apart(plan: Plan, part: DefencePart) -> None:
    """Refuse a defence of the user's that fails in one step, takes too long or cannot describe itself.

    It changes nothing here.
    """

    def work() -> None:
        with users_code(f"defence {part.title}", "a defence that can be used"):
            words_of(prepare(plan, part.title, plan.seeds[0]).federation.defence)

    if not part.is_own:
        return
    limit = seconds_allowed(VARIABLE, LIMIT)
    try:
        do_apart(work, time.time() + limit, quoting=True)
    except OutOfTime:
        expected = f"a defence that takes one step and describes itself within {limit:g} s"
        remedy = f"Let it do less, or set {VARIABLE} to more seconds."
        got = "no end, so it was stopped"
        raise BadInput(f"defence {part.title}", expected=expected, got=got, remedy=remedy) from None


def check_role(attack: Attack, role: str, argument: str) -> None:
    """Refuse a role that the attack does not support."""
    if role not in attack.roles:
        expected = f"a role that {attack.name} can use ({', '.join(attack.roles)})"
        remedy = f"Try role = {attack.roles[0]!r}."
        raise BadInput(f"{argument}: role", expected=expected, got=f"{role!r} ({ROLES[role].sees})", remedy=remedy)


def check_case(plan: Plan, case: Case, prepared: Prepared, transcript: Transcript) -> None:
    """Refuse a case whose view lacks something the attack needs."""
    part = plan.attack_of(case.attack).model_copy(update={"rounds": None})
    attack = part.make(plan.folder)
    context = CaseContext(
        part=part,
        attack=attack,
        transcript=transcript,
        truth=prepared.federation.truth(case.seed),
        client=case.client,
        aware=case.aware,
        unknown=prepared.unknown,
    )
    wanted, space = part.metrics or (), prepared.federation.space
    check_usable(f"attack {part.title}: metrics", wanted, attack.name, attack.kind, space)
    check_restoring(part, attack, prepared.federation.space)
    view = context.view(attack)
    trial = example_trial(attack, part.search, f"attack {part.title}: search")
    if not context.own:
        trial.check(view)
    else:
        try:
            parts = Parts(attack=part, model=plan.model, defence=plan.defences[-1], folder=plan.folder)
            check_apart(trial, view, parts, attack)
        except OwnRefusal:
            raise
        except OwnCodeError as error:
            expected = "an attack that can be used"
            raise BadInput(f"attack {part.title}", expected=expected, got=error, remedy="Fix it there.") from error
    if view.target is None and case.client is not None and attack.kind in ABOUT_WHOLE_SUMS and not attack.by_reports:
        raise BadInput(
            f"attack {part.title}: role",
            expected="a role that sees single replies",
            got=f"{part.role!r}, which sees sums over all clients here",
            remedy="A recording holds the records of one node, and a guess from a sum is about everyone's.",
        )


def check_priors(plan: Plan, prepared: Prepared) -> None:
    """Refuse a prior that has seen a record of any client under any seed of the plan."""
    parts = [part for part in plan.attacks if part.restore is not None]
    for seed in plan.seeds if parts else ():
        run = prepared if seed == prepared.seed else prepare_first(plan, seed)
        for part in parts:
            records = (*run.federation.clients, *run.federation.holdout)
            check_unseen(part, tools_of(part)[1], run.federation.space, records)


def _of_the_user(factory: str | None, argument: str, expected: str) -> AbstractContextManager[None]:
    """Return a block that reports an error as one of the user's code, where `factory` names such code."""
    return nullcontext() if factory is None else users_code(argument, expected)


def rehearse(prepared: Prepared) -> tuple[Transcript, float]:
    """Simulate one round with two examples per client; returns its transcript and the seconds of one local step."""
    federation = prepared.federation
    few = [Records(client.x[:REHEARSED_EXAMPLES], client.y[:REHEARSED_EXAMPLES]) for client in federation.clients]
    short = one_round(federation, few, replace(federation.recipe, epochs=1, batch_size="all"))
    transcript, _ = simulate(short, seed=prepared.seed)
    return transcript, _step_seconds(federation)


def _step_seconds(federation: Federation) -> float:
    """Return the seconds of one local step of the first client at its real batch size.

    Short steps are timed several in a round, since what a round takes beside them would be longer than they are.
    """
    first = federation.clients[0]
    length = federation.recipe.batch_length(len(first))
    batch = Records(first.x[:length], first.y[:length])
    short = one_round(federation, [batch], replace(federation.recipe, epochs=1))
    simulate(short, seed=0)
    once = _timed(lambda: simulate(short, seed=0))
    if once > LONG_STEP:
        return once
    kind = "fedavg" if federation.recipe.kind == "gradient" else federation.recipe.algorithm
    together = replace(federation.recipe, algorithm=kind, epochs=STEPS, batch_size="all", learning_rate=SMALL_RATE)
    several = one_round(federation, [batch], together)
    return _timed(lambda: simulate(several, seed=0)) / STEPS


def _timed(work: Callable[[], object]) -> float:
    """Return the mean seconds of a piece of work, repeated for half a second or ten times."""
    before, times = time.perf_counter(), 0
    while times < MOST_TIMES and (times == 0 or time.perf_counter() - before < LONG_ENOUGH):
        work()
        times += 1
    return (time.perf_counter() - before) / times


# Own code of a plan, called in a process of its own before the audit, so that code that exits or hangs is reported

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
