"""Charts of results: one line per defence, with the mean and its interval, the floor, the controls and the ceiling.

Further right always means more leak, so the axis of a metric where smaller leaks more runs backwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedxray.report import words
from fedxray.report.drawing import Drawing, Inks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PITCH, FOOT, HEAD = 440.0, 46.0, 46.0, 6.0  # points
SIDE = 0.045  # of the width, for marks and numbers at the ends of the axis: half of "100 %" must fit
LEAST_SPAN = 0.25  # of a bounded axis, so that a small difference looks small
CONTROL_MARKS: Mapping[str, str] = {"held-out": "^", "other-client": "D", "global-model": "v"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    label: str
    mean: float | None
    low: float | None
    high: float | None
    floor: float | None = None
    least: float | None = None  # where a leak starts
    ceiling: float | None = None
    controls: Mapping[str, float] = field(default_factory=dict)
    verdict: str = "inconclusive"  # empty where none was given


def metric_chart(lines: Sequence[Line], metric: str | None, *, name: str, title: str) -> Drawing:
    """The chart of a metric, with its own direction, bounds and unit."""
    base = words.base_metric(metric or "")
    return interval_chart(
        lines,
        name=name,
        title=title,
        axis=str(metric),
        down=words.is_down(metric),
        bounded=base in words.BOUNDED,
        percent=base in words.SHARES,
    )


def interval_chart(
    lines: Sequence[Line],
    *,
    name: str,
    title: str,
    axis: str,
    down: bool,
    bounded: bool = False,
    percent: bool = False,
) -> Drawing:
    """A dot-and-interval chart; a bounded metric stays within 0 and 1."""
    lines = [_clip(line) for line in lines] if bounded else lines
    height = HEAD + PITCH * len(lines) + FOOT

    def paint(figure: Figure, inks: Inks) -> None:
        axes = figure.add_axes((SIDE, FOOT / height, 1 - 2 * SIDE, 1 - (FOOT + HEAD) / height))
        _frame(axes, lines, inks, down, bounded)
        if percent:
            axes.xaxis.set_major_formatter(lambda place, _: f"{100 * place:.4g}{words.GLUE}%")
        for place, line in enumerate(lines):
            _draw(axes, line, place, inks)
        axes.set_xlabel(f"@{len(lines)}", color=inks.muted)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_spoken(line) for line in lines),
        texts=(*(clipped(line.label) for line in lines), f"{clipped(axis)} \N{RIGHTWARDS ARROW} more leak"),
        size=(WIDTH, height),
        paint=paint,
    )


def _frame(axes: Axes, lines: Sequence[Line], inks: Inks, down: bool, bounded: bool) -> None:
    """Limits that hold everything, and nothing around the plot but its axis."""
    numbers = [number for line in lines for number in _numbers(line)] or [0.0, 1.0]
    least, most = min(numbers), max(numbers)
    room = 0.06 * (most - least) or 0.05 * abs(most) or 0.5
    ends = _at_least(least - room, most + room) if bounded else (least - room, most + room)
    axes.set_xlim(*(ends[::-1] if down else ends))
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.patch.set_visible(False)
    axes.yaxis.set_visible(False)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(inks.line)
    axes.locator_params(axis="x", nbins=6)
    axes.tick_params(axis="x", colors=inks.muted, length=3)


def _draw(axes: Axes, line: Line, place: int, inks: Inks) -> None:
    """One line: its label, the guessable part, the controls, the ceiling, and the mean with its interval."""
    y, ink = place + 0.18, inks.of(line.verdict)
    start = axes.get_xlim()[0]
    axes.text(
        0.0, place - 0.2, f"@{place}", transform=axes.get_yaxis_transform(), color=inks.ink, va="center"
    )
    if line.floor is not None:
        axes.fill_betweenx([y - 0.17, y + 0.17], start, line.floor, color=inks.band, linewidth=0)
        axes.plot([line.floor] * 2, [y - 0.17, y + 0.17], color=inks.muted, linewidth=1.6)
    if line.least is not None:
        axes.plot(
            [line.least] * 2, [y - 0.26, y + 0.26], color=inks.ink, linewidth=1.3, linestyle=(0, (3, 2))
        )
    for control, mean in line.controls.items():
        mark = CONTROL_MARKS.get(control, "s")
        axes.plot(
            [mean],
            [y],
            mark,
            markersize=6.5,
            markerfacecolor=inks.page,
            markeredgecolor=inks.ink,
            zorder=4.5,
            clip_on=False,
        )
    if line.ceiling is not None:
        axes.plot(
            [line.ceiling],
            [y],
            "*",
            markersize=10,
            color=inks.muted,
            markeredgewidth=0,
            zorder=4.5,
            clip_on=False,
        )
    if line.low is not None and line.high is not None:
        axes.plot([line.low, line.high], [y, y], color=ink, linewidth=2.4, solid_capstyle="butt", zorder=4)
        for end in (line.low, line.high):
            axes.plot([end] * 2, [y - 0.08, y + 0.08], color=ink, linewidth=1.8, zorder=4)
    if line.mean is not None:
        # Filled or hollow says the same as the colour, for readers who cannot tell the colours apart.
        fill = inks.page if line.verdict == "inconclusive" else ink
        shape = "s" if line.verdict == "no leak found" else "o"
        marks: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": ink, "markeredgewidth": 2.0}
        axes.plot([line.mean], [y], shape, markersize=8.5, zorder=5, clip_on=False, **marks)


def _at_least(low: float, high: float) -> tuple[float, float]:
    """Ends of an axis within 0 and 1 that are not too near to each other."""
    missing = max(0.0, LEAST_SPAN - (high - low)) / 2
    low, high = low - missing, high + missing
    shift = max(0.0, -low) - max(0.0, high - 1)
    return max(0.0, low + shift), min(1.0, high + shift)


def _clip(line: Line) -> Line:
    """The line within 0 and 1; a leak that would start above has no start."""
    kept = {name: _inside(getattr(line, name)) for name in ("mean", "low", "high", "floor", "ceiling")}
    controls = {name: min(max(mean, 0.0), 1.0) for name, mean in line.controls.items()}
    least = line.least if line.least is not None and 0 <= line.least <= 1 else None
    return replace(line, **kept, controls=controls, least=least)  # type: ignore[arg-type]


def _inside(number: float | None) -> float | None:
    return None if number is None else min(max(number, 0.0), 1.0)


def _numbers(line: Line) -> list[float]:
    listed = [line.mean, line.low, line.high, line.floor, line.least, line.ceiling, *line.controls.values()]
    return [number for number in listed if number is not None]


def _spoken(line: Line) -> str:
    """One line for a reader who hears the chart."""
    if line.mean is None:
        return f"{line.label}: no score."
    parts = [f"{line.label}: mean {words.short(line.mean)}"]
    if line.low is not None and line.high is not None:
        parts.append(f"interval {words.short(line.low)} to {words.short(line.high)}")
    if line.floor is not None:
        parts.append(f"floor {words.short(line.floor)}")
    if line.least is not None:
        parts.append(f"a leak starts at {words.short(line.least)}")
    parts += [f"control {name} {words.short(mean)}" for name, mean in line.controls.items()]
    return ", ".join([*parts, line.verdict] if line.verdict else parts) + "."


def clipped(text: str, most: int = 62) -> str:
    """A text that fits beside a drawing."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
