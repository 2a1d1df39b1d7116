"""Charts of how attacks went: thin lines of single cases with their median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from fedxray.report import words
from fedxray.report.drawing import Drawing, Inks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
