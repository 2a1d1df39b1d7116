"""How attacks went: their own loss by step, and the settings that they searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from fedxray.audit.judge.results import best_trial, nearly_as_good
from fedxray.audit.recorded.describe import recordings_of
from fedxray.report import words
from fedxray.report.charts import Drawing, Inks
from fedxray.report.rows import plan_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# --- Charts of how attacks went: thin lines of single cases with their median.


WIDTH, HEIGHT = 440.0, 230.0  # points
ROOM = (0.17, 0.22, 0.79, 0.72)
FAR_APART = 20  # times the smallest loss: from there on the axis is logarithmic
SMALL = 0.01  # losses below are counted in a power of ten
OWN_LOSS = "attacker's own loss"


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The loss of one case at some steps; a missing one was no number."""

    steps: Sequence[int]
    losses: Sequence[float | None]
    ended: bool  # well


def curve_chart(walks: Sequence[Walk], *, name: str, title: str) -> Drawing:
    """All cases as thin lines, those that did not end well dashed, and the median of the others."""
    losses = [loss for walk in walks for loss in walk.losses]

    def paint(figure: Figure, inks: Inks) -> None:
        axes = axes_in(figure, ROOM, losses, inks)
        axes.locator_params(axis="x", nbins=6, integer=True)
        for walk in walks:
            style = "solid" if walk.ended else (0, (3, 2))
            ink = inks.muted if walk.ended else inks.open
            axes.plot(*_known(walk), color=ink, linewidth=0.8, alpha=0.6, linestyle=style)
        middle = _middle(walks)
        axes.plot([step for step, _ in middle], [loss for _, loss in middle], color=inks.ink, linewidth=2.2)

    ends = [one[-1] for one in (_known(walk)[1] for walk in walks) if one]
    first = [one[0] for one in (_known(walk)[1] for walk in walks) if one]
    return Drawing(
        name=name,
        title=title,
        description=f"{words.count(len(walks), 'case')}: the median loss goes from "
        f"{words.short(median(first))} to {words.short(median(ends))}.",
        texts=("step", in_units(OWN_LOSS, losses)),
        size=(WIDTH, HEIGHT),
        paint=paint,
    )


def axes_in(
    figure: Figure,
    room: tuple[float, float, float, float],
    losses: Sequence[float | None],
    inks: Inks,
    *,
    labels: tuple[int, int] = (0, 1),
    ticks: int = 6,
) -> Axes:
    """Axes with little around them, logarithmic where losses are positive and far apart; `labels` are of x and y."""
    axes = figure.add_axes(room)
    if _far_apart(losses):
        on_log_scale(axes, "y")
    elif (unit := unit_of(losses)) != 1:
        axes.yaxis.set_major_formatter(lambda place, _: f"{place / unit:g}")
    axes.patch.set_visible(False)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(inks.line)
    axes.tick_params(colors=inks.muted, length=3)
    axes.locator_params(axis="x", nbins=ticks)
    axes.set_xlabel(f"@{labels[0]}", color=inks.muted)
    axes.set_ylabel(f"@{labels[1]}", color=inks.muted, labelpad=6)
    return axes


def unit_of(losses: Sequence[float | None]) -> float:
    """What small losses are counted in, so that their numbers are short: a power of ten, or 1."""
    most = max((abs(loss) for loss in losses if loss is not None), default=1.0)
    if not 0 < most < SMALL or _far_apart(losses):
        return 1.0
    return float(f"1e{math.floor(math.log10(most))}")


def in_units(label: str, losses: Sequence[float | None]) -> str:
    """The label of an axis of such losses."""
    unit = unit_of(losses)
    return label if unit == 1 else f"{label} / {unit:g}"


def _far_apart(losses: Sequence[float | None]) -> bool:
    known = [loss for loss in losses if loss is not None]
    return bool(known) and min(known) > 0 and max(known) > FAR_APART * min(known)


def on_log_scale(axes: Axes, side: Literal["x", "y"]) -> None:
    """Make one axis logarithmic, with its numbers written out: formulas cannot be drawn."""
    axes.set(**{f"{side}scale": "log"})
    axes.minorticks_off()
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_formatter(lambda place, _: f"{place:g}")


def _known(walk: Walk) -> tuple[list[int], list[float]]:
    """Steps and losses that are numbers."""
    pairs = [(step, loss) for step, loss in zip(walk.steps, walk.losses, strict=False) if loss is not None]
    return [step for step, _ in pairs], [loss for _, loss in pairs]


def _middle(walks: Sequence[Walk]) -> list[tuple[int, float]]:
    """The median loss at the steps that most cases that ended well share; none of fewer than three cases."""
    well = [dict(zip(*_known(walk), strict=True)) for walk in walks if walk.ended]
    if len(well) < 3:
        return []
    steps = sorted({step for one in well for step in one})
    shared = [step for step in steps if sum(step in one for one in well) > len(well) / 2]
    return [(step, median(one[step] for one in well if step in one)) for step in shared]


def drawable(losses: Sequence[float | None]) -> bool:
    """Whether there are two losses or more, all of a size that can be drawn."""
    known = [loss for loss in losses if loss is not None]
    return len(known) > 1 and all(math.isfinite(loss) and abs(loss) < 1e30 for loss in known)


# --- Charts of a search: the loss of every trial in order, and over every setting that was searched.


ACROSS = 3  # panels beside each other
PANEL = (155.0, 135.0)  # points
LEFT, BELOW = 50.0, 44.0  # of a panel, for its labels
MOST_PANELS = 12
SHORT = "own loss"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One trial: its settings, its loss (missing where it was no number), and whether it was given up."""

    point: Mapping[str, Any]
    loss: float | None
    given_up: bool = False


def study_chart(cases: Sequence[Sequence[Attempt]], *, name: str, title: str, starts: int = 0) -> Drawing:
    """The loss of every trial as a dot, open where it was given up; a line per case for the best so far."""
    losses = _ended(cases)

    def paint(figure: Figure, inks: Inks) -> None:
        axes = axes_in(figure, ROOM, losses, inks)
        axes.locator_params(axis="x", nbins=6, integer=True)
        if starts:  # what was drawn at random is left of it
            axes.axvline(starts + 0.5, color=inks.line, linewidth=1.0, linestyle=(0, (4, 3)))
        for case in cases:
            _dots(axes, list(enumerate(case, 1)), max(losses), inks)
            steps = best_so_far(case)
            axes.plot(
                [x for x, _ in steps], [y for _, y in steps],
                color=inks.ink, linewidth=1.4, drawstyle="steps-post",
            )  # fmt: skip

    best = min(steps[-1][1] for case in cases if (steps := best_so_far(case)))
    trials = words.count(sum(len(case) for case in cases), "trial")
    return Drawing(
        name=name,
        title=title,
        description=f"{trials} in {words.count(len(cases), 'case')}; the best has a loss of {words.short(best)}.",
        texts=("trial", in_units(OWN_LOSS, losses)),
        size=(WIDTH, HEIGHT),
        paint=paint,
    )


def settings_chart(
    cases: Sequence[Sequence[Attempt]], *, name: str, title: str, logarithmic: Sequence[str] = ()
) -> Drawing | None:
    """A panel for every setting with numbers that differ: its value and the loss of every trial, the best marked."""
    shown = _numbers(cases)[:MOST_PANELS]
    if len(shown) < 2:  # of one setting the table says enough
        return None
    rows, columns = -(-len(shown) // ACROSS), min(len(shown), ACROSS)
    losses = _ended(cases)

    def paint(figure: Figure, inks: Inks) -> None:
        for place, setting in enumerate(shown):
            labels = place + 1, 0
            axes = axes_in(figure, _room(place, rows, columns), losses, inks, labels=labels, ticks=3)
            if place % ACROSS:
                axes.set_ylabel("")
            if setting in logarithmic:
                on_log_scale(axes, "x")
            for case in cases:
                _dots(axes, [(one.point[setting], one) for one in case], max(losses), inks)
                _mark_best(axes, case, setting, inks)

    return Drawing(
        name=name,
        title=title,
        description=f"{words.listed(shown)} of every trial with its loss; the best trial is marked.",
        texts=(in_units(SHORT, losses), *shown),
        size=(columns * PANEL[0], rows * PANEL[1]),
        paint=paint,
    )


def _ended(cases: Sequence[Sequence[Attempt]]) -> list[float]:
    """Losses of trials that went to their end: they span the axis, and those given up are drawn no higher."""
    return [one.loss for case in cases for one in case if one.loss is not None and not one.given_up]


def _room(place: int, rows: int, columns: int) -> tuple[float, float, float, float]:
    """Where a panel is, in shares of the figure: left, below, width and height."""
    row, column = divmod(place, ACROSS)
    width, height = columns * PANEL[0], rows * PANEL[1]
    left, below = column * PANEL[0] + LEFT, height - (row + 1) * PANEL[1] + BELOW
    return left / width, below / height, (PANEL[0] - LEFT - 10) / width, (PANEL[1] - BELOW - 8) / height


def _mark_best(axes: Axes, case: Sequence[Attempt], setting: str, inks: Inks) -> None:
    ended = [(one.loss, one) for one in case if one.loss is not None and not one.given_up]
    if ended:
        loss, best = min(ended, key=lambda one: one[0])
        axes.plot([best.point[setting]], [loss], "D", markersize=7, color=inks.ink, clip_on=False)


def best_so_far(case: Sequence[Attempt]) -> list[tuple[int, float]]:
    """The smallest loss after every trial that ended with one."""
    steps: list[tuple[int, float]] = []
    for place, one in enumerate(case, 1):
        if one.loss is not None and not one.given_up:
            steps.append((place, min(one.loss, steps[-1][1]) if steps else one.loss))
    return [*steps, (len(case), steps[-1][1])] if steps else []


def _numbers(cases: Sequence[Sequence[Attempt]]) -> list[str]:
    """Settings that every trial has as a number, not always the same."""
    trials = [one.point for case in cases for one in case]
    return [
        name
        for name in trials[0]
        if all(isinstance(one.get(name), int | float) for one in trials)
        and len({one[name] for one in trials}) > 1
    ]


def _dots(axes: Axes, trials: Sequence[tuple[float, Attempt]], top: float, inks: Inks) -> None:
    """Trials that ended are filled, those given up are open and no higher than the top."""
    for open_ones in (False, True):
        known = [(x, one.loss) for x, one in trials if one.loss is not None and one.given_up is open_ones]
        axes.plot(
            [x for x, _ in known], [min(y, top) for _, y in known], "o", markersize=4, color=inks.muted, alpha=0.7,
            fillstyle="none" if open_ones else "full",
        )  # fmt: skip


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
