"""How attacks went: their own loss by step, and the settings that they searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.recorded.whole import recordings_of
from fedxray.audit.trials import best_trial, nearly_as_good
from fedxray.report import words
from fedxray.report.course_charts import Walk, curve_chart, drawable
from fedxray.report.drawing import Drawing
from fedxray.report.plans import plan_of
from fedxray.report.study_charts import Attempt, settings_chart, study_chart

MOST_WALKS = 30  # lines of a drawing
MOST_DRAWINGS = 12
MOST_CHOICES = 4
LEAST_FALL = 0.5  # of its first value: a loss that falls by less had nothing to follow
IDLE, MISSING = "without effect on this network", "–"
RECIPE = "recipe of the recorded node"

Case = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Course:
    """The curves of one attack against one defence."""

    title: str
    note: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a search: its name, the range that was tried, what was chosen, and what did nearly as well."""

    name: str
    tried: str
    chosen: str
    nearly: str  # what trials of nearly the same loss had, case by case


@dataclass(frozen=True, kw_only=True)
class Study:
    """The searches of one attack against one defence."""

    title: str
    note: str
    drawing: Drawing
    over_settings: Drawing | None  # the loss over each of them, where there are several
    settings: tuple[Setting, ...]


def courses(document: Mapping[str, Any]) -> list[Course]:
    """One drawing per attack, seat and defence with curves; the first few."""
    groups = list(_groups(document, _has_curve).items())[:MOST_DRAWINGS]
    return [_course(f"course-{index}", title, cases) for index, (title, cases) in enumerate(groups)]


def left_over(document: Mapping[str, Any]) -> int:
    """How many groups with curves are beyond those shown."""
    return max(0, len(_groups(document, _has_curve)) - MOST_DRAWINGS)


def _has_curve(case: Case) -> bool:
    return drawable((case.get("curve") or {}).get("losses") or ())


def _course(name: str, title: str, cases: Sequence[Case]) -> Course:
    walks = [
        Walk(steps=one["curve"]["steps"], losses=one["curve"]["losses"], ended=one["status"] == "ok")
        for one in cases
    ]
    lost = sum(not walk.ended for walk in walks)
    parts = [words.count(len(walks), "case")]
    parts += [f"{lost} did not end well (dashed)"] if lost else []
    stuck = sum(_hardly_fell(walk.losses) for walk in walks)
    parts += [f"{stuck} whose loss fell by less than half"] if stuck else []
    parts += [f"the first {MOST_WALKS} are drawn"] if len(walks) > MOST_WALKS else []
    parts += _taken([one.get("taken") or {} for one in cases])
    drawing = curve_chart(walks[:MOST_WALKS], name=name, title=f"{title}: the attacker's own loss by step")
    return Course(title=title, note=", ".join(parts), drawing=drawing)


def _hardly_fell(losses: Sequence[float | None]) -> bool:
    """Whether a loss stayed near where it began; of losses that begin at 0 or below nothing can be said."""
    told = [one for one in losses if one is not None]
    return len(told) > 1 and told[0] > 0 and min(told) > (1 - LEAST_FALL) * told[0]


def _taken(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """What all cases took their client for, and the settings that followed from it."""
    shared = {key: value for key, value in told[0].items() if all(one.get(key) == value for one in told)}
    said = [
        value if str(value).startswith(key) else f"{key} {_spoken(value)}" for key, value in shared.items()
    ]
    return [f"taken: {', '.join(said)}"] if said else []


def studies(document: Mapping[str, Any]) -> list[Study]:
    """One drawing per attack, seat and defence that searched settings, and of the search of a recipe."""
    groups = {
        title: [{**one["search"], "taken": one.get("taken")} for one in cases]
        for title, cases in _groups(document, _searched).items()
    }
    recipes = [found for one in recordings_of(document) if (found := _of_recipe(one.get("recipe_searched")))]
    listed = [*groups.items(), *([(RECIPE, recipes)] if recipes else [])]
    return [
        _study(f"study-{index}", title, found) for index, (title, found) in enumerate(listed[:MOST_DRAWINGS])
    ]


def _searched(case: Case) -> bool:
    trials = (case.get("search") or {}).get("trials") or ()
    return drawable([one["loss"] for one in trials]) and any(
        one["loss"] is not None and not one.get("given_up") for one in trials
    )


def _of_recipe(told: Any) -> dict[str, Any] | None:
    """The search of a recipe in the form of any other search."""
    tried = told.get("tried") if isinstance(told, Mapping) else None
    if not tried or not drawable([one.get("misfit") for one in tried]):
        return None
    return {
        "trials": [
            {
                "point": {key: value for key, value in one.items() if key != "misfit"},
                "loss": one.get("misfit"),
            }
            for one in tried
        ]
    }


def _study(name: str, title: str, searches: Sequence[Mapping[str, Any]]) -> Study:
    cases = [_attempts(one) for one in searches]
    drawn, first = cases[:MOST_WALKS], searches[0]
    spaced = first.get("ranges") or {}
    return Study(
        title=title,
        note=_note(searches, cases),
        drawing=study_chart(
            drawn, name=name, title=f"{title}: loss of every trial", starts=first.get("starts") or 0
        ),
        over_settings=settings_chart(
            drawn,
            name=f"{name}-settings",
            title=f"{title}: loss over every setting",
            logarithmic=[key for key, one in spaced.items() if "log" in one],
        ),
        settings=tuple(_setting(key, searches) for key in first["trials"][0]["point"]),
    )


def _attempts(search: Mapping[str, Any]) -> list[Attempt]:
    return [
        Attempt(point=one["point"], loss=one["loss"], given_up=bool(one.get("given_up")))
        for one in search["trials"]
    ]


def _note(searches: Sequence[Mapping[str, Any]], cases: Sequence[Sequence[Attempt]]) -> str:
    """How many trials there were, how many of them at random, and how many were given up."""
    counts = sorted({len(one) for one in cases})
    trials = f"{counts[0]} to {counts[-1]} trials" if len(counts) > 1 else words.count(counts[0], "trial")
    parts = [f"{trials} in each of {words.count(len(searches), 'case')}"]
    starts = searches[0].get("starts")
    parts += [f"the first {starts} at random, left of the dashed line"] if starts else []
    ended = sum(one.given_up for case in cases for one in case)
    parts += [f"{ended} given up early (open dots, drawn no higher than the others)"] if ended else []
    return ", ".join(parts)


def _setting(name: str, searches: Sequence[Mapping[str, Any]]) -> Setting:
    tried = [trial["point"].get(name) for one in searches for trial in one["trials"]]
    if all(one.get("taken") and name not in one["taken"] for one in searches):  # no layer has such a weight
        return Setting(name=name, tried=_span(tried), chosen=IDLE, nearly=MISSING)
    near = [[trial["point"].get(name) for trial in nearly_as_good(one["trials"])] for one in searches]
    return Setting(
        name=name,
        tried=_span(tried),
        chosen=_first_few([_chosen(name, one) for one in searches]),
        nearly=_first_few([_span(one) for one in near]),
    )


def _chosen(name: str, search: Mapping[str, Any]) -> str:
    """The value of the best trial, marked at an end of its range other than 0: there may be better ones beyond."""
    value = best_trial(search["trials"])["point"].get(name)
    ends = (search.get("ranges") or {}).get(name, ())[:2]
    # A sampler may write exp(log(end)), which is not quite the end.
    there = any(end and math.isclose(value, end, rel_tol=1e-9) for end in ends)
    return _spoken(value) + (" (end of the range)" if there else "")


def _span(values: Sequence[Any]) -> str:
    """From the least to the greatest, or all of them where they are no numbers."""
    ends = [_spoken(min(values)), _spoken(max(values))] if all(map(_is_number, values)) else None
    if ends is None:
        return words.listed(list(dict.fromkeys(map(_spoken, values))))
    return " to ".join(dict.fromkeys(ends))


def _first_few(found: Sequence[str]) -> str:
    different = list(dict.fromkeys(found))
    more = [f"{len(different) - MOST_CHOICES} more"] if len(different) > MOST_CHOICES else []
    return words.listed([*different[:MOST_CHOICES], *more])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _spoken(value: Any) -> str:
    return words.short(value) if isinstance(value, float) else str(value)


def _groups(document: Mapping[str, Any], wanted: Any) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in document["cases"]:
        if wanted(case):
            found.setdefault(_title(case), []).append(case)
    return found


def _title(case: Case) -> str:
    against = words.defence_words(case["defence"])
    parts = [case["attack"], f"run by {words.role_words(case['role'])}", against, words.aware_words(case)]
    return ", ".join(part for part in (plan_of(case) or "", *parts) if part)
