"""`search` of an [[attack]]: settings that the attacker does not know, tried and judged by its own measure alone.

Every trial is the attack with other settings, kept in the store like any other answer, so that an interrupted search
goes on where it was. The best trial is the attack's answer, and all of them are told in its facts.

With `give_up` a trial is ended after that share of its steps if its loss is then above the median that trials of
earlier batches had after as many steps. It is told to the sampler by its loss so far, which is too high rather than
too low, and it is never the answer. Batches are fixed, so that this does not depend on who works when.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.course import SEARCH
from fedxray.audit.search import Point, Recall, Study, Trial, afresh, ask, check_library, finite, found_in
from fedxray.audit.search_table import judged_after, study_of, with_point
from fedxray.errors import BadInput, Refused
from fedxray.seeds import fork

LEAST_BEFORE = 5  # earlier trials that a median is taken of
Run = Callable[[Attack], Evidence]


@dataclass(frozen=True)
class Tried:
    """A trial and the answer that it gave."""

    trial: Trial
    answer: Evidence


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search of one attack on one view: what is searched, who runs a trial, and who remembers points."""

    attack: Attack
    study: Study
    run: Run
    generator: torch.Generator
    recall: Recall = afresh

    def asked_after(self, done: Sequence[Tried]) -> list[tuple[Point, Attack]]:
        """The next batch after these trials: every point with the attack that tries it."""
        draws = fork(self.generator, "search", self.attack.name)
        points = ask(self.study, [one.trial for one in done], draws, self.recall)
        limit = limit_after(self.attack, self.study, [one.answer for one in done])
        return [(point, trial_of(self.attack, point, limit)) for point in points]

    def tried(self, batches: int | None = None) -> list[Tried]:
        """All trials, or those of the first batches, in the order of the plan."""
        done: list[Tried] = []
        while batches is None or batches > 0:
            asked = self.asked_after(done)
            if not asked:
                break
            done += [self._judged(point, self.run(attack)) for point, attack in asked]
            batches = None if batches is None else batches - 1
        return done

    def _judged(self, point: Point, answer: Evidence) -> Tried:
        loss = finite(own_measure(self.attack, answer))
        return Tried(Trial(point, loss, given_up=answer.status == "truncated"), answer)


def studied(search: Search) -> Evidence:
    """The answer of the best trial, with all trials in its facts."""
    check_library(search.study)
    done = search.tried()
    found = found_in([one.trial for one in done])
    told = {SEARCH: {**found.told(), **_how(search)}}
    if found.status != "ok":
        first = done[0].answer
        return replace(first, status="undetermined", reason=found.reason, facts={**first.facts, **told})
    best = done[found.trials.index(found.best)].answer
    return replace(best, facts={**best.facts, **told, "chosen": dict(found.best.point)})


def _how(search: Search) -> dict[str, Any]:
    """How trials were chosen and judged, in plain values."""
    study = search.study
    return {
        "ranges": {name: list(one) for name, one in study.ranges.items()},
        "sampler": study.sampler,
        "batch": study.batch,
        "starts": study.first(),
        "give_up": study.give_up,
        "judged_by": search.attack.judged_by,
    }


def search_settings(attack: Attack, view: View, *, generator: torch.Generator, **settings: Any) -> Evidence:
    """The same in Python, on one view: `settings` are those of `search` in a plan."""
    study = study_of(attack, settings, "search")
    return studied(
        Search(
            attack=attack,
            study=study,
            run=lambda one: one.run(view, generator=generator),
            generator=generator,
        )
    )


def trial_of(attack: Attack, point: Point, limit: tuple[int, float] | None) -> Attack:
    """The attack of one trial; with a limit it gives up where its loss is above after so many steps."""
    found = with_point(attack, point)
    return found if limit is None else replace(found, give_up=limit)  # type: ignore[type-var]


def limit_after(attack: Attack, study: Study, earlier: Sequence[Evidence]) -> tuple[int, float] | None:
    """After how many steps a trial is given up whose lowest loss so far is above what, None where it is not yet."""
    if study.give_up is None:
        return None
    steps = judged_after(attack, study.give_up)
    went_on = [one for one in earlier if one.status in ("ok", "truncated") and len(one.curve) > steps]
    lowest = [min(one.curve[: steps + 1]) for one in went_on]
    return (steps, median(lowest)) if len(lowest) >= LEAST_BEFORE else None


def a_trial(attack: Attack, table: Any, place: str) -> Attack:
    """The attack as some trial would run it, to see whether it could; itself where nothing is searched."""
    if table is None:
        return attack
    study = study_of(attack, table, place)
    try:
        check_library(study)
    except BadInput as error:
        raise error.at(f"{place}.{error.argument}") from None
    return with_point(
        attack, {name: int(low) if scale == "int" else low for name, (low, _, scale) in study.ranges.items()}
    )


def own_measure(attack: Attack, evidence: Evidence) -> float:
    """The attacker's own measure of a guess, smaller is better; infinite where the attack did not end well."""
    told = evidence.facts.get(attack.judged_by)
    if told is None:
        raise Refused(
            attack.name,
            missing=f"its own measure of a trial ({attack.judged_by})",
            remedy=attack.unjudged,
        )
    if evidence.status in ("diverged", "undetermined"):
        return math.inf
    return float(min(told)) if isinstance(told, list | tuple) else float(told)
