"""Charts of a search: the loss of every trial in order, and over every setting that was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedxray.report import words
from fedxray.report.course_charts import HEIGHT, OWN_LOSS, ROOM, WIDTH, axes_in, in_units, on_log_scale
from fedxray.report.drawing import Drawing, Inks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
