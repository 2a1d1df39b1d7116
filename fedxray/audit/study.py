"""`search` of an [[attack]]: settings that the attacker does not know, tried and judged by its own measure alone.

Every trial is the attack with other settings, kept in the store like any other answer, so that an interrupted search
goes on where it was. The best trial is the attack's answer, and all of them are told in its facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.course import SEARCH
from fedxray.audit.search import SAMPLERS, Point, Ranges, Scale, check, search
from fedxray.errors import BadInput, Refused, unknown_key, unknown_name
from fedxray.seeds import fork

KEYS = ("trials", "sampler", "batch", "ranges")
MOST_TRIALS = 10_000
Run = Callable[[Attack], Evidence]


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is searched: where, how often, and how points are chosen."""

    ranges: Ranges
    trials: int = 16
    sampler: str = "random"
    batch: int = 8


def study_of(attack: Attack, table: Any, place: str) -> Study:
    """The search that a plan asks for, or BadInput; ranges that it leaves out are the attack's own."""
    if not attack.searched:
        raise BadInput(
            place,
            expected="an attack with settings that can be searched",
            got=attack.name,
            remedy="`fedxray show NAME` tells which have any; leave search out.",
        )
    if not isinstance(table, Mapping):
        raise BadInput(
            place, expected="a table", got=repr(table), remedy="For instance search = { trials = 16 }."
        )
    for key in table:
        if key not in KEYS:
            raise unknown_key(f"{place}.{key}", str(key), KEYS)
    sampler = table.get("sampler", "random")
    if sampler not in SAMPLERS:
        raise unknown_name(f"{place}.sampler", str(sampler), SAMPLERS)
    made = Study(
        ranges=_ranges(attack, table.get("ranges"), f"{place}.ranges"),
        trials=_count(table, "trials", 16, place),
        sampler=sampler,
        batch=_count(table, "batch", 8, place),
    )
    check(made.ranges, made.trials, made.batch, made.sampler)
    for name, (low, high, scale) in made.ranges.items():  # what a trial could not be made with is found now
        for value in (low, high):
            with_point(attack, {name: int(value) if scale == "int" else value})
    return made


def studied(attack: Attack, study: Study, run: Run, generator: torch.Generator) -> Evidence:
    """The answer of the best trial, with all trials in its facts."""
    answers: list[Evidence] = []

    def loss(point: Point) -> float:
        answers.append(run(with_point(attack, point)))
        return own_measure(attack, answers[-1])

    found = search(
        loss, study.ranges, trials=study.trials, batch=study.batch, sampler=study.sampler,
        generator=fork(generator, "search", attack.name),
    )  # fmt: skip
    if found.status != "ok":
        return replace(
            answers[0],
            status="undetermined",
            reason=found.reason,
            facts={**answers[0].facts, SEARCH: found.told()},
        )
    best = answers[found.trials.index(found.best)]
    return replace(best, facts={**best.facts, SEARCH: found.told(), "chosen": dict(found.best.point)})


def search_settings(attack: Attack, view: View, *, generator: torch.Generator, **settings: Any) -> Evidence:
    """The same in Python, on one view: `settings` are those of `search` in a plan."""
    study = study_of(attack, settings, "search")
    return studied(attack, study, lambda one: one.run(view, generator=generator), generator)


def with_point(attack: Attack, point: Point) -> Attack:
    """The attack with these settings."""
    return replace(attack, **point)  # type: ignore[type-var]


def a_trial(attack: Attack, table: Any, place: str) -> Attack:
    """The attack as some trial would run it, to see whether it could; itself where nothing is searched."""
    if table is None:
        return attack
    ranges = study_of(attack, table, place).ranges
    return with_point(
        attack, {name: int(low) if scale == "int" else low for name, (low, _, scale) in ranges.items()}
    )


def own_measure(attack: Attack, evidence: Evidence) -> float:
    """The attacker's own measure of a guess, smaller is better; infinite where the attack did not end well."""
    told = evidence.facts.get(attack.judged_by)
    if told is None:
        raise Refused(
            attack.name,
            missing=f"its own measure of a trial ({attack.judged_by})",
            remedy='The curious client needs own images among those sought: own_share = "recover" from its seat.',
        )
    if evidence.status in ("diverged", "undetermined"):
        return math.inf
    return float(min(told)) if isinstance(told, list | tuple) else float(told)


def _ranges(attack: Attack, given: Any, place: str) -> Ranges:
    """The ranges of a plan, lists of lowest and highest; how they are spaced is the attack's to say."""
    if given is None:
        return cast(Ranges, dict(attack.searched))
    if not isinstance(given, Mapping) or not given:
        raise BadInput(
            place, expected="a table of [lowest, highest]", got=repr(given), remedy="Leave it out."
        )
    found: dict[str, tuple[float, float, Scale]] = {}
    for name, value in given.items():
        if name not in attack.searched:
            raise unknown_key(f"{place}.{name}", str(name), attack.searched, of=attack.name)
        numbers = isinstance(value, list | tuple) and len(value) == 2 and all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in value
        )  # fmt: skip
        if not numbers:
            raise BadInput(
                f"{place}.{name}",
                expected="[lowest, highest]",
                got=repr(value),
                remedy="For instance [0.001, 0.1].",
            )
        found[name] = (value[0], value[1], cast(Scale, attack.searched[name][2]))
    return found


def _count(table: Mapping[str, Any], key: str, otherwise: int, place: str) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TRIALS:
        raise BadInput(
            f"{place}.{key}",
            expected=f"a whole number from 1 to {MOST_TRIALS:,}",
            got=repr(value),
            remedy="Try 16.",
        )
    return value
