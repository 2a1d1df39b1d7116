"""A limit on time, turned into step counts and a choice of cases before anything starts.

What is given up, in this order, always from the attack that costs most: target clients, while six units are left for
a verdict; steps of an optimisation, down to a quarter; more target clients; at last seeds. An attack that takes less
than its share of the time is spared as long as that helps. The choice is kept in the audit's folder, so that a resumed
audit makes the same one. The clock itself only aborts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedxray.audit.judge import results
from fedxray.audit.judge.verdict import LEAST_RUNS, LEAST_UNITS
from fedxray.audit.plan import Plan
from fedxray.audit.run.grid import asked
from fedxray.audit.run.preflight import Estimate, Planted, planned_steps
from fedxray.errors import BadInput
from fedxray.files import read_object, write_whole

NAME = "budget.json"
SPARE = 0.75  # share of the time that is planned with: estimates are rough
LEAST_STEPS = 0.25  # share of an attack's steps that is left at least
SHORTER = 0.8  # how much the steps go down at once
ROUNDING = 0.999  # so that what is added up fits
UNITS = {"s": 1, "m": 60, "h": 3600}
NOT_PLANTED = Planted(cases=0, optimising=0.0, running=0.0)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit in seconds of the clock, with a number of workers; `text` is how the user wrote it."""

    text: str
    seconds: float
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one attack of a plan: clients attacked, seconds of a case, and the share of its steps left."""

    clients: tuple[int | None, ...]  # a single None: all clients at once
    groups: int  # cases of every client and seed: one per defence, aware and not
    fixed: float  # seconds of a case that do not depend on steps
    optimising: float  # seconds of a case with all its steps
    stepped: bool = True  # whether it has steps that can be reduced
    share: float = 1.0  # of its steps
    planted: Planted = NOT_PLANTED

    def seconds(self, seeds: int) -> float:
        """Return the seconds of all of its cases, and of its power check where a verdict may wait for it."""
        own = len(self.clients) * self.groups * seeds * (self.fixed + self.optimising * self.share)
        return own + self.power_seconds(seeds)

    def power_seconds(self, seeds: int) -> float:
        """Return the seconds of its power check, which uses the same steps; with too few runs there is none."""
        if seeds < LEAST_RUNS:
            return 0.0
        check, optimising = self.planted, self.planted.optimising * self.share
        return check.cases * (self.fixed + optimising) + check.running


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The attacks (with clients and steps) and seeds of a plan that are run."""

    costs: Mapping[str, Cost]
    seeds: tuple[int, ...]
    run_seconds: float  # all federations of one seed

    def seconds(self) -> float:
        """Return the seconds of everything, with one worker."""
        return len(self.seeds) * self.run_seconds + sum(cost.seconds(len(self.seeds)) for cost in self.costs.values())


def parse_budget(text: str, workers: int = 1) -> Budget:
    """Return the budget of a text such as 90s, 10m or 1h30m."""
    parts = re.fullmatch(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", text.strip())
    seconds = sum(
        int(count or 0) * UNITS[unit] for count, unit in zip(parts.groups() if parts else (), "hms", strict=bool(parts))
    )
    if not seconds:
        raise BadInput("--budget", expected="a time such as 90s, 10m or 1h30m", got=text, remedy="Add a unit.")
    return Budget(text=text.strip(), seconds=float(seconds), workers=workers)


def full_choice(plan: Plan, estimate: Estimate) -> Choice:
    """Return everything that the plan asks for."""
    groups = sum(1 if defence.is_none else 2 for defence in plan.defences)
    return Choice(
        costs={
            part.title: Cost(
                clients=tuple(asked(plan, part)),
                groups=groups,
                fixed=estimate.fixed_seconds,
                optimising=estimate.optimising_seconds[part.title],
                stepped=planned_steps(part.make(plan.folder)) > 0,
                planted=estimate.planted.get(part.title, NOT_PLANTED),
            )
            for part in plan.attack  # restored versions follow their raw ones
        },
        seeds=tuple(plan.seeds),
        run_seconds=estimate.run_seconds * len(plan.defences),
    )


def choose(full: Choice, budget: Budget) -> Choice:
    """Return as much of a plan as fits into the budget; BadInput where not even the least does."""
    room, choice = budget.seconds * budget.workers * SPARE, full
    shares = [room / len(full.costs)] * 3 + [0.0] * 4
    steps: tuple[Callable[[Choice, float], Choice | None], ...] = (*SHRINKING, *SHRINKING, _fewer_seeds)
    for shrink, share in zip(steps, shares, strict=True):
        while choice.seconds() > room:
            smaller = shrink(choice, share)
            if smaller is None:
                break
            choice = smaller
    if choice.seconds() > room:
        least = choice.seconds() / SPARE / budget.workers
        expected = f"at least {words(least)}, for one client and one seed of every attack"
        remedy = "Give more time, or take attacks or defences out of the plan."
        raise BadInput("--budget", expected=expected, got=budget.text, remedy=remedy)
    return _with_the_rest(choice, room)


def _with_the_rest(choice: Choice, room: float) -> Choice:
    """Give the time that is left to attacks whose steps were reduced."""
    for name, cost in choice.costs.items():
        if cost.share < 1:
            # The part of the cost that is proportional to the steps, with all of them.
            steps = replace(cost, fixed=0.0, share=1.0, planted=replace(cost.planted, running=0.0))
            each = steps.seconds(len(choice.seeds))
            more = min(1.0, cost.share + (room - choice.seconds()) / each * ROUNDING)
            choice = replace(choice, costs={**choice.costs, name: replace(cost, share=more)})
    return choice


def _reduced(choice: Choice, share: float, smaller: Mapping[str, Cost]) -> Choice | None:
    """Reduce the attack that takes longest, and longer than its share; `smaller` are those that can be reduced."""
    times = {name: choice.costs[name].seconds(len(choice.seeds)) for name in smaller}
    dearest = max((name for name in times if times[name] > share), key=lambda name: times[name], default=None)
    return None if dearest is None else replace(choice, costs={**choice.costs, dearest: smaller[dearest]})


def _enough_clients(choice: Choice, share: float) -> Choice | None:
    """One client less, where a verdict keeps enough units."""
    return _fewer_clients(choice, share, least=max(1, -(-LEAST_UNITS // len(choice.seeds))))


def _fewer_clients(choice: Choice, share: float, least: int = 1) -> Choice | None:
    """One client less, whatever that means for the verdict."""
    several = {name: cost for name, cost in choice.costs.items() if len(cost.clients) > least}
    return _reduced(choice, share, {name: replace(cost, clients=cost.clients[:-1]) for name, cost in several.items()})


def _fewer_steps(choice: Choice, share: float) -> Choice | None:
    """Fewer steps of an attack that optimises."""
    long = {
        name: cost
        for name, cost in choice.costs.items()
        if cost.stepped and cost.optimising > 0 and cost.share > LEAST_STEPS
    }
    shorter = {name: replace(cost, share=max(LEAST_STEPS, cost.share * SHORTER)) for name, cost in long.items()}
    return _reduced(choice, share, shorter)


def _fewer_seeds(choice: Choice, _: float) -> Choice | None:
    """One seed less, with its federations."""
    return replace(choice, seeds=choice.seeds[:-1]) if len(choice.seeds) > 1 else None


SHRINKING = (_enough_clients, _fewer_steps, _fewer_clients)


def decide(plan: Plan, estimate: Estimate, budget: Budget) -> dict[str, Any]:
    """The choice as plain values: the calibration that it rests on, and what is left."""
    full = full_choice(plan, estimate)
    choice = choose(full, budget)
    steps = {part.title: planned_steps(part.make(plan.folder)) for part in plan.attack}
    return {
        "budget": budget.text,
        "seconds": budget.seconds,
        "workers": budget.workers,
        "estimate": {
            "planned": round(full.seconds(), 3),
            "chosen": round(choice.seconds(), 3),
            "power": round(sum(cost.power_seconds(len(choice.seeds)) for cost in choice.costs.values()), 3),
        },
        "calibration": {
            "run_seconds": estimate.run_seconds,
            "case_seconds": {name: cost.fixed + cost.optimising for name, cost in full.costs.items()},
        },
        "seeds": list(choice.seeds),
        "targets": {name: list(cost.clients) for name, cost in choice.costs.items()},
        "steps": {
            name: max(1, round(steps[name] * cost.share)) for name, cost in choice.costs.items() if cost.share < 1
        },
    }


def stored_budget(folder: Path, budget: Budget | None, resume: bool) -> dict[str, Any] | None:
    """Return the choice that a resumed audit stored when it began; another limit than then is refused."""
    if not resume or not (folder / "audit.json").is_file():
        return None
    stored = read_object(folder / NAME) if (folder / NAME).is_file() else None
    if stored is not None:
        results.check_part(stored, "budget", folder / NAME, "Put it back as it was, or choose another --out.")
    began = None if stored is None else str(stored["budget"])
    if budget is not None and budget.text != began:
        expected = f"{began}, with which this audit began" if began else "none, as when this audit began"
        remedy = "Leave it out to continue as it began, or choose another --out."
        raise BadInput("--budget", expected=expected, got=budget.text, remedy=remedy)
    return stored


def write_budget(folder: Path, chosen: Mapping[str, Any]) -> None:
    """Store a choice beside the results."""
    write_whole(folder / NAME, (json.dumps(chosen, indent=1, allow_nan=False) + "\n").encode(), "budget")


def within_budget(plan: Plan, chosen: Mapping[str, Any]) -> Plan:
    """Return the plan that is really run."""
    document = plan.to_document()
    document["seeds"] = list(chosen["seeds"])
    for table, part in zip(document["attack"], plan.attack, strict=True):
        if len(chosen["targets"][part.title]) < len(asked(plan, part)):
            table["targets"] = chosen["targets"][part.title]
        if part.title in chosen["steps"]:
            table["steps"] = chosen["steps"][part.title]
    return Plan.from_document(document, plan.folder, plan.text)


def left_out(plan: Plan, chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a budget leaves out of a plan, one line each."""
    for part in plan.attack:
        planned, kept = asked(plan, part), chosen["targets"][part.title]
        if len(kept) < len(planned):
            few = " (too few for a verdict)" if len(kept) * len(chosen["seeds"]) < LEAST_UNITS else ""
            yield f"{part.title}: {len(kept)} of {len(planned)} clients are attacked{few}"
        if part.title in chosen["steps"]:
            steps = planned_steps(part.make(plan.folder))
            yield f"{part.title}: {chosen['steps'][part.title]} of {steps} steps, so it is weaker than planned"
    if len(chosen["seeds"]) < len(plan.seeds):
        yield f"{len(chosen['seeds'])} of {len(plan.seeds)} seeds are run"


def words(seconds: float) -> str:
    """Return a time as text, rounded up."""
    rounded = max(1, int(-(-seconds // 1)))
    return f"{rounded}s" if rounded < 120 else f"{-(-rounded // 60)}m"
