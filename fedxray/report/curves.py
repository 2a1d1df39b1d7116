"""Loss curves of attacks, and the searches of their settings: charts, notes and tables.

Thin lines are single cases, dashed where they failed or were cut off; the thick line is their median, where all have
the same steps. In a search every
trial is a dot, hollow where it was stopped early, and a line marks the best loss so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from fedxray.audit.judge.results import best_trial, nearly_as_good
from fedxray.audit.recorded.describe import recordings_of
from fedxray.metrics import units
from fedxray.report import charts, words
from fedxray.report.charts import Drawing, Inks, bare
from fedxray.report.rows import grouped, plan_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

Case = Mapping[str, Any]

MOST_CURVES = 30  # lines of a drawing
MOST_DRAWINGS = 12

# Loss curves

LEAST_FALL = 0.5  # of its first value: a loss that falls by less had no useful signal
OWN_LOSS = "attacker's own loss"


@dataclass(frozen=True, kw_only=True)
class LossCurves:
    """The loss curves of one attack against one defence."""

    title: str
    note: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class CaseCurve:
    """The loss of one case at some steps; None where it was not a finite number."""

    steps: Sequence[int]
    losses: Sequence[float | None]
    ok: bool  # neither failed nor cut off


def loss_curves(document: Mapping[str, Any]) -> list[LossCurves]:
    """Return one drawing per attack, role and defence with loss curves; the first few."""
    groups = list(_groups(document, _has_curve).items())[:MOST_DRAWINGS]
    return [_loss_curves(f"curves-{index}", title, cases) for index, (title, cases) in enumerate(groups)]


def curves_left_out(document: Mapping[str, Any]) -> int:
    """Return the number of groups with loss curves beyond those shown."""
    return max(0, len(_groups(document, _has_curve)) - MOST_DRAWINGS)


def _has_curve(case: Case) -> bool:
    return drawable((case.get("curve") or {}).get("losses") or ())


def drawable(losses: Sequence[float | None]) -> bool:
    """Whether there are two losses or more, all of a size that can be drawn."""
    known = [loss for loss in losses if loss is not None]
    return len(known) > 1 and all(math.isfinite(loss) and abs(loss) < 1e30 for loss in known)


def _loss_curves(name: str, title: str, cases: Sequence[Case]) -> LossCurves:
    curves = [
        CaseCurve(steps=case["curve"]["steps"], losses=case["curve"]["losses"], ok=case["status"] == "ok")
        for case in cases
    ]
    failed = sum(not curve.ok for curve in curves)
    flat = sum(_hardly_fell(curve.losses) for curve in curves)
    notes = [words.count(len(curves), "case")]
    notes += [f"{failed} failed or cut off (dashed)"] if failed else []
    notes += [f"loss fell by less than half in {flat}"] if flat else []
    notes += [f"the first {MOST_CURVES} are drawn"] if len(curves) > MOST_CURVES else []
    notes += _assumed([case.get("taken") or {} for case in cases])
    drawing = curve_chart(curves[:MOST_CURVES], name=name, title=f"{title}: {OWN_LOSS} by step")
    return LossCurves(title=title, note=", ".join(notes), drawing=drawing)


def _hardly_fell(losses: Sequence[float | None]) -> bool:
    """Whether a loss stayed near its first value; False for losses that begin at 0 or below."""
    known = [loss for loss in losses if loss is not None]
    return len(known) > 1 and known[0] > 0 and min(known) > (1 - LEAST_FALL) * known[0]


def _assumed(taken: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the attack assumed in all cases, such as which of a paper's cases, and the settings from it."""
    shared = {key: value for key, value in taken[0].items() if all(one.get(key) == value for one in taken)}
    facts = [value if str(value).startswith(key) else f"{key} {_text(value)}" for key, value in shared.items()]
    return [f"assumed: {', '.join(facts)}"] if facts else []


def curve_chart(curves: Sequence[CaseCurve], *, name: str, title: str) -> Drawing:
    """Return all cases as thin lines, failed ones dashed, and the median of the others where they have equal steps."""
    losses = [loss for curve in curves for loss in curve.losses]

    def paint(figure: FigureBase, inks: Inks) -> None:
        axes = loss_axes(figure, WHOLE, losses, inks)
        axes.locator_params(axis="x", nbins=6, integer=True)
        for curve in curves:
            style: Any = "solid" if curve.ok else charts.FAILED_DASH
            ink = inks.muted if curve.ok else inks.open
            axes.plot(*_known(curve), color=ink, linewidth=charts.CASE_WIDTH, alpha=0.6, linestyle=style)
        middle = _median_curve(curves)
        axes.plot(
            [step for step, _ in middle], [loss for _, loss in middle], color=inks.ink, linewidth=charts.MEDIAN_WIDTH
        )

    known = [numbers for _, numbers in map(_known, curves) if numbers]
    first, last = (median(numbers[index] for numbers in known) for index in (0, -1))
    return Drawing(
        name=name,
        title=title,
        description=f"{words.count(len(curves), 'case')}: the median loss is {units.short(first)} "
        f"at first and {units.short(last)} at last.",
        texts=("step", in_units(OWN_LOSS, losses)),
        size=(charts.WIDTH, charts.CURVE_HEIGHT),
        paint=paint,
    )


def _known(curve: CaseCurve) -> tuple[list[int], list[float]]:
    """Return the steps and losses that are numbers."""
    pairs = [(step, loss) for step, loss in zip(curve.steps, curve.losses, strict=False) if loss is not None]
    return [step for step, _ in pairs], [loss for _, loss in pairs]


def _median_curve(curves: Sequence[CaseCurve]) -> list[tuple[int, float]]:
    """Return the median loss at every step; empty for fewer than three completed cases, or of unequal length.

    Where cases end at different steps, such a line would jump as they leave it.
    """
    completed = [dict(zip(*_known(curve), strict=True)) for curve in curves if curve.ok]
    if len(completed) < 3 or any(losses.keys() != completed[0].keys() for losses in completed):
        return []
    return [(step, median(losses[step] for losses in completed)) for step in completed[0]]


# Axes of losses

WHOLE = (0.17, 0.22, 0.79, 0.72)  # left, bottom, width and height of a single plot, in shares of its figure
FAR_APART = 20  # ratio of largest to smallest loss from which the axis is logarithmic
SMALL = 0.01  # losses below are shown in a power of ten


def loss_axes(
    figure: FigureBase,
    area: tuple[float, float, float, float],
    losses: Sequence[float | None],
    inks: Inks,
    *,
    labels: tuple[int, int] = (0, 1),
    ticks: int = 6,
) -> Axes:
    """Return axes for losses, logarithmic where they are positive and far apart.

    `labels` are the numbers of the drawing's texts for x and y.
    """
    axes = figure.add_axes(area)
    if _far_apart(losses):
        on_log_scale(axes, "y")
    else:
        unit, known = unit_of(losses), [loss for loss in losses if loss is not None]
        if unit != 1:
            axes.yaxis.set_major_formatter(lambda tick, _: f"{tick / unit:g}")
        if known and (ends := charts.wide_enough(min(known), max(known))) != (min(known), max(known)):
            axes.set_ylim(*ends)
    bare(axes, inks)
    axes.locator_params(axis="x", nbins=ticks)
    axes.set_xlabel(f"@{labels[0]}", color=inks.muted)
    axes.set_ylabel(f"@{labels[1]}", color=inks.muted, labelpad=6)
    return axes


def unit_of(losses: Sequence[float | None]) -> float:
    """Return the power of ten in which small losses are shown, so that their numbers are short; else 1."""
    most = max((abs(loss) for loss in losses if loss is not None), default=1.0)
    if not 0 < most < SMALL or _far_apart(losses):
        return 1.0
    return float(f"1e{math.floor(math.log10(most))}")


def in_units(label: str, losses: Sequence[float | None]) -> str:
    """Return the label of an axis of such losses."""
    unit = unit_of(losses)
    return label if unit == 1 else f"{label} / {unit:g}"


def _far_apart(losses: Sequence[float | None]) -> bool:
    known = [loss for loss in losses if loss is not None]
    return bool(known) and min(known) > 0 and max(known) > FAR_APART * min(known)


def on_log_scale(axes: Axes, side: Literal["x", "y"]) -> None:
    """Make one axis logarithmic, with plain numbers: formulas cannot be drawn."""
    axes.set(**{f"{side}scale": "log"})
    axes.minorticks_off()
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_formatter(lambda tick, _: f"{tick:g}")


# Searches of settings

MOST_CHOICES = 4  # different values that a table lists
NO_EFFECT, MISSING = "without effect on this network", "–"
RECIPE = "recipe of the recorded node"


@dataclass(frozen=True, kw_only=True)
class SearchedSetting:
    """One searched setting: its name, the range that was tried, the chosen value, and values nearly as good."""

    name: str
    tried: str
    chosen: str
    nearly: str  # values of trials with nearly the lowest loss, case by case


@dataclass(frozen=True, kw_only=True)
class SearchCharts:
    """The searches of one attack against one defence."""

    title: str
    note: str
    drawing: Drawing
    over_settings: Drawing | None  # the loss over each setting, where there are several
    settings: tuple[SearchedSetting, ...]


@dataclass(frozen=True, kw_only=True)
class TrialPoint:
    """One trial: its settings, its loss (None where it was not a number), and whether it was stopped early."""

    point: Mapping[str, Any]
    loss: float | None
    given_up: bool = False

    @property
    def completed(self) -> bool:
        """Whether the trial has a loss and was not stopped early."""
        return self.loss is not None and not self.given_up


def searches(document: Mapping[str, Any]) -> list[SearchCharts]:
    """Return the searches of settings by attack, role and defence, and of a recorded node's recipe."""
    groups = {
        title: [{**case["search"], "taken": case.get("taken")} for case in cases]
        for title, cases in _groups(document, _searched).items()
    }
    recorded = [_recipe_search(recording.get("recipe_searched")) for recording in recordings_of(document)]
    recipes = [search for search in recorded if search]
    listed = [*groups.items(), *([(RECIPE, recipes)] if recipes else [])]
    return [
        _search_charts(f"search-{index}", title, group) for index, (title, group) in enumerate(listed[:MOST_DRAWINGS])
    ]


def _searched(case: Case) -> bool:
    trials = (case.get("search") or {}).get("trials") or ()
    return drawable([trial["loss"] for trial in trials]) and any(
        trial["loss"] is not None and not trial.get("given_up") for trial in trials
    )


def _recipe_search(stored: Any) -> dict[str, Any] | None:
    """Return the search of a recipe in the form of any other search."""
    tried = stored.get("tried") if isinstance(stored, Mapping) else None
    if not tried or not drawable([candidate.get("misfit") for candidate in tried]):
        return None
    return {
        "trials": [
            {
                "point": {key: value for key, value in candidate.items() if key != "misfit"},
                "loss": candidate.get("misfit"),
            }
            for candidate in tried
        ]
    }


def _search_charts(name: str, title: str, group: Sequence[Mapping[str, Any]]) -> SearchCharts:
    cases = [_trials(search) for search in group]
    drawn, first = cases[:MOST_CURVES], group[0]
    ranges = first.get("ranges") or {}
    return SearchCharts(
        title=title,
        note=_search_note(group, cases),
        drawing=trials_chart(drawn, name=name, title=f"{title}: loss of every trial", starts=first.get("starts") or 0),
        over_settings=settings_chart(
            drawn,
            name=f"{name}-settings",
            title=f"{title}: loss over every setting",
            logarithmic=[key for key, ends in ranges.items() if "log" in ends],
        ),
        settings=tuple(_setting(key, group) for key in first["trials"][0]["point"]),
    )


def _trials(search: Mapping[str, Any]) -> list[TrialPoint]:
    return [
        TrialPoint(point=trial["point"], loss=trial["loss"], given_up=bool(trial.get("given_up")))
        for trial in search["trials"]
    ]


def _search_note(group: Sequence[Mapping[str, Any]], cases: Sequence[Sequence[TrialPoint]]) -> str:
    """Return the number of trials, of random ones, and of those stopped early."""
    counts = sorted({len(trials) for trials in cases})
    trials = f"{counts[0]} to {counts[-1]} trials" if len(counts) > 1 else words.count(counts[0], "trial")
    notes = [f"{trials} in each of {words.count(len(group), 'case')}"]
    starts = group[0].get("starts")
    notes += [f"the first {starts} at random, left of the dashed line"] if starts else []
    stopped = sum(trial.given_up for case in cases for trial in case)
    notes += [f"{stopped} stopped early (hollow dots, drawn no higher than the others)"] if stopped else []
    return ", ".join(notes)


# The table of a search


def _setting(name: str, group: Sequence[Mapping[str, Any]]) -> SearchedSetting:
    tried = _span([trial["point"].get(name) for search in group for trial in search["trials"]])
    if all(search.get("taken") and name not in search["taken"] for search in group):
        # No layer of this network has such a weight.
        return SearchedSetting(name=name, tried=tried, chosen=NO_EFFECT, nearly=MISSING)
    near = [[trial["point"].get(name) for trial in nearly_as_good(search["trials"])] for search in group]
    return SearchedSetting(
        name=name,
        tried=tried,
        chosen=_first_few([_chosen(name, search) for search in group]),
        nearly=_first_few([_span(values) for values in near]),
    )


def _chosen(name: str, search: Mapping[str, Any]) -> str:
    """Return the value of the best trial, marked at an end of its range other than 0: better ones may lie beyond."""
    value = best_trial(search["trials"])["point"].get(name)
    ends = (search.get("ranges") or {}).get(name, ())[:2]
    # A sampler may write exp(log(end)), which is not exactly the end.
    at_end = any(end and math.isclose(value, end, rel_tol=1e-9) for end in ends)
    return _text(value) + (" (end of the range)" if at_end else "")


def _span(values: Sequence[Any]) -> str:
    """Return smallest and largest of numbers, or all values otherwise."""
    if all(isinstance(value, int | float) for value in values):
        return " to ".join(dict.fromkeys([_text(min(values)), _text(max(values))]))
    return words.listed(list(dict.fromkeys(map(_text, values))))


def _first_few(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    more = [f"{len(different) - MOST_CHOICES} more"] if len(different) > MOST_CHOICES else []
    return words.listed([*different[:MOST_CHOICES], *more])


def _text(value: Any) -> str:
    return units.short(value) if isinstance(value, float) else str(value)


# The charts of a search

COLUMNS = 3  # panels beside each other
PANEL = (155.0, 135.0)  # points
LEFT, BELOW = 50.0, 44.0  # of a panel, for its labels
MOST_PANELS = 12
SHORT = "own loss"


def trials_chart(cases: Sequence[Sequence[TrialPoint]], *, name: str, title: str, starts: int = 0) -> Drawing:
    """Return the loss of every trial as a dot, hollow where stopped early, and the best so far as a line per case.

    The first `starts` trials were drawn at random; a dashed line separates them.
    """
    losses = _completed(cases)

    def paint(figure: FigureBase, inks: Inks) -> None:
        axes = loss_axes(figure, WHOLE, losses, inks)
        axes.locator_params(axis="x", nbins=6, integer=True)
        if starts:
            axes.axvline(starts + 0.5, color=inks.line, linewidth=1.0, linestyle=charts.FRONTIER_DASH)
        for case in cases:
            _draw_trials(axes, list(enumerate(case, 1)), max(losses), inks)
            steps = best_so_far(case)
            xs, ys = [x for x, _ in steps], [y for _, y in steps]
            axes.plot(xs, ys, color=inks.ink, linewidth=charts.BEST_WIDTH, drawstyle="steps-post")

    best = min(steps[-1][1] for case in cases if (steps := best_so_far(case)))
    trials = words.count(sum(len(case) for case in cases), "trial")
    return Drawing(
        name=name,
        title=title,
        description=f"{trials} in {words.count(len(cases), 'case')}; the best has a loss of {units.short(best)}.",
        texts=("trial", in_units(OWN_LOSS, losses)),
        size=(charts.WIDTH, charts.CURVE_HEIGHT),
        paint=paint,
    )


def settings_chart(
    cases: Sequence[Sequence[TrialPoint]], *, name: str, title: str, logarithmic: Sequence[str] = ()
) -> Drawing | None:
    """Return a panel per numeric setting with the loss of every trial over its value, the best one marked."""
    shown = _numeric_settings(cases)[:MOST_PANELS]
    if len(shown) < 2:  # the table suffices for one setting
        return None
    rows, columns = -(-len(shown) // COLUMNS), min(len(shown), COLUMNS)
    losses = _completed(cases)

    def paint(figure: FigureBase, inks: Inks) -> None:
        for index, setting in enumerate(shown):
            area = _panel(index, rows, columns)
            axes = loss_axes(figure, area, losses, inks, labels=(index + 1, 0), ticks=3)
            if index % COLUMNS:
                axes.set_ylabel("")
            if setting in logarithmic:
                on_log_scale(axes, "x")
            for case in cases:
                _draw_trials(axes, [(trial.point[setting], trial) for trial in case], max(losses), inks)
                _mark_best(axes, case, setting, inks)

    return Drawing(
        name=name,
        title=title,
        description=f"{words.listed(shown)} of every trial with its loss; the best trial is marked.",
        texts=(in_units(SHORT, losses), *shown),
        size=(columns * PANEL[0], rows * PANEL[1]),
        paint=paint,
    )


def _completed(cases: Sequence[Sequence[TrialPoint]]) -> list[float]:
    """Return the losses of completed trials: they set the axis, and trials stopped early are drawn no higher."""
    return [trial.loss for case in cases for trial in case if trial.completed and trial.loss is not None]


def best_so_far(case: Sequence[TrialPoint]) -> list[tuple[int, float]]:
    """Return the smallest loss after every completed trial."""
    steps: list[tuple[int, float]] = []
    for number, trial in enumerate(case, 1):
        if trial.completed and trial.loss is not None:
            steps.append((number, min(trial.loss, steps[-1][1]) if steps else trial.loss))
    return [*steps, (len(case), steps[-1][1])] if steps else []


def _numeric_settings(cases: Sequence[Sequence[TrialPoint]]) -> list[str]:
    """Return the settings that are a number in every trial, and not always the same."""
    points = [trial.point for case in cases for trial in case]
    return [
        name
        for name in points[0]
        if all(isinstance(point.get(name), int | float) for point in points)
        and len({point[name] for point in points}) > 1
    ]


def _panel(index: int, rows: int, columns: int) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of a panel in shares of the figure."""
    row, column = divmod(index, COLUMNS)
    width, height = columns * PANEL[0], rows * PANEL[1]
    left, below = column * PANEL[0] + LEFT, height - (row + 1) * PANEL[1] + BELOW
    return left / width, below / height, (PANEL[0] - LEFT - 10) / width, (PANEL[1] - BELOW - 8) / height


def _draw_trials(axes: Axes, trials: Sequence[tuple[float, TrialPoint]], top: float, inks: Inks) -> None:
    """Draw completed trials filled, and those stopped early hollow and no higher than `top`."""
    for hollow in (False, True):
        known = [(x, trial.loss) for x, trial in trials if trial.loss is not None and trial.given_up is hollow]
        axes.plot(
            [x for x, _ in known],
            [min(y, top) for _, y in known],
            charts.POINT_MARKER,
            markersize=charts.TRIAL_SIZE,
            color=inks.muted,
            alpha=0.7,
            fillstyle="none" if hollow else "full",
        )


def _mark_best(axes: Axes, case: Sequence[TrialPoint], setting: str, inks: Inks) -> None:
    completed = [(trial.loss, trial) for trial in case if trial.completed and trial.loss is not None]
    if completed:
        loss, best = min(completed, key=lambda pair: pair[0])
        marker: dict[str, Any] = {"markersize": charts.BEST_TRIAL_SIZE, "color": inks.ink, "clip_on": False}
        axes.plot([best.point[setting]], [loss], charts.BEST_TRIAL_MARKER, **marker)


# Cases of one attack, role and defence


def _groups(document: Mapping[str, Any], wanted: Callable[[Case], bool]) -> dict[str, list[Case]]:
    return grouped(filter(wanted, document["cases"]), _title)


def _title(case: Case) -> str:
    against = words.defence_words(case["defence"])
    named = [case["attack"], f"run by {words.role_words(case['role'])}", against, words.aware_words(case)]
    return ", ".join(part for part in (plan_of(case) or "", *named) if part)
