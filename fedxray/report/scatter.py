"""A chart of points with intervals both ways and the line through those that nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedxray.report import words
from fedxray.report.drawing import Drawing, Inks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 440.0, 300.0  # points
ARROW = "\N{RIGHTWARDS ARROW}"
Measured = tuple[float, float | None, float | None]  # value, lower and upper end


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point; its mark stands beside it, its label in the description."""

    mark: str
    label: str
    across: Measured
    up: Measured
    verdict: str = "inconclusive"
    frontier: bool = False


def scatter_chart(
    points: Sequence[Point], *, name: str, title: str, across: str, up: str, reverse: bool = False
) -> Drawing:
    """Points with their intervals; with reverse, smaller values across are better."""

    def paint(figure: Figure, inks: Inks) -> None:
        axes = figure.add_axes((0.18, 0.17, 0.77, 0.78))
        _frame(axes, points, inks, reverse)
        _frontier(axes, points, inks, reverse)
        for place, point in enumerate(points):
            _draw(axes, point, place, inks)
        axes.set_xlabel(f"@{len(points)}", color=inks.muted)
        axes.set_ylabel(f"@{len(points) + 1}", color=inks.muted, labelpad=6)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_spoken(point) for point in points),
        texts=(*(point.mark for point in points), f"{across} {ARROW} better", f"{up} {ARROW} more leak"),
        size=(WIDTH, HEIGHT),
        paint=paint,
    )


def _frame(axes: Axes, points: Sequence[Point], inks: Inks, reverse: bool) -> None:
    """Limits by the points, the line of the guess, and little else."""
    low, high = _ends([point.across for point in points])
    axes.set_xlim(*((high, low) if reverse else (low, high)))
    axes.set_ylim(*_ends([point.up for point in points] + [(0.0, None, None)]))
    axes.axhline(0.0, color=inks.muted, linewidth=1.0)
    axes.patch.set_visible(False)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(inks.line)
    axes.locator_params(nbins=5)
    axes.tick_params(colors=inks.muted, length=3)


def _ends(measured: Sequence[Measured]) -> tuple[float, float]:
    """Ends of an axis that hold every value, and its interval unless that would press the values together."""
    values = [value for value, _, _ in measured]
    least, most = min(values), max(values)
    span = (most - least) or 0.2 * abs(most) or 1.0
    lows = [end for _, end, _ in measured if end is not None]
    highs = [end for _, _, end in measured if end is not None]
    low, high = max(min([least, *lows]), least - span), min(max([most, *highs]), most + span)
    return low - 0.08 * span, high + 0.08 * span


def _frontier(axes: Axes, points: Sequence[Point], inks: Inks, reverse: bool) -> None:
    """Steps through the points that nothing beats: the least leak that was reached at no less utility."""
    best = sorted((point.across[0], point.up[0]) for point in points if point.frontier)
    if len(best) > 1:
        steps = "steps-post" if reverse else "steps-pre"
        places = [x for x, _ in best], [y for _, y in best]
        axes.plot(*places, color=inks.ink, linewidth=1.2, linestyle=(0, (4, 3)), drawstyle=steps, zorder=2)


def _draw(axes: Axes, point: Point, place: int, inks: Inks) -> None:
    ink = inks.of(point.verdict)
    (x, left, right), (y, low, high) = point.across, point.up
    if left is not None and right is not None:
        axes.plot([left, right], [y, y], color=ink, linewidth=1.4, zorder=3)
    if low is not None and high is not None:
        axes.plot([x, x], [low, high], color=ink, linewidth=1.4, zorder=3)
    fill = ink if point.frontier else inks.page
    axes.plot([x], [y], "o", markersize=7.5, markerfacecolor=fill, markeredgecolor=ink, zorder=4)
    axes.annotate(f"@{place}", (x, y), textcoords="offset points", xytext=(6, 6), color=inks.ink, zorder=5)


def _spoken(point: Point) -> str:
    """One point for a reader who hears the chart."""
    best = ", on the frontier" if point.frontier else ""
    return (
        f"{point.mark} {point.label}: utility {words.short(point.across[0])}, "
        f"gain {words.short(point.up[0])}{best}."
    )
