"""Charts of the report: intervals by defence or client, and leakage against utility.

A `Drawing` is painted once for the page, as SVG in the colours of its light or dark scheme, and once for files in the
colours of paper; matplotlib paints PDF and PNG. Further right always means more leakage, so the axis of a metric where
smaller values leak more is reversed. Texts are inserted after drawing: no name is interpreted as markup or mathematics.
Loss curves and search charts are in `curves`.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fedxray.errors import BadInput, printable
from fedxray.metrics import units
from fedxray.metrics.table import base_metric
from fedxray.report.rows import Row, grouped
from fedxray.report.states import TONES
from fedxray.report.svg import FONT, SvgFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

# Style: every colour, marker, line width and size of all charts, here and in `curves`

COLOURS: Mapping[str, str] = {  # on paper; on the page each is a variable of this name
    "ink": "#16202c",  # text, control markers, the margin
    "muted": "#55606e",  # axes, the floor's edge, the ceiling, single cases
    "band": "#e3e7ed",  # the floor
    "line": "#cdd3db",  # spines
    "page": "#ffffff",  # fill of hollow markers
    "leaks": "#b3261e",
    "open": "#7a5200",  # inconclusive; a small leak, filled
    "safe": "#17663f",  # no leak found; stopped, hollow
}

# Shape and fill repeat what the colour says, for readers who cannot distinguish the colours.
STATE_MARKERS: Mapping[str, str] = {"no leak found": "s", "stopped": "s"}  # others are "o", hollow where inconclusive
CONTROL_MARKERS: Mapping[str, str] = {"held-out": "^", "other-client": "D", "global-model": "v"}
OTHER_CONTROL, CEILING_MARKER, POINT_MARKER, BEST_TRIAL_MARKER = "s", "*", "o", "D"
MEAN_SIZE, CONTROL_SIZE, CEILING_SIZE, POINT_SIZE, TRIAL_SIZE, BEST_TRIAL_SIZE = 8.5, 6.5, 10, 7.5, 4, 7
INTERVAL_WIDTH, CAP_WIDTH, FLOOR_WIDTH, MARGIN_WIDTH = 2.4, 1.8, 1.6, 1.3
CASE_WIDTH, MEDIAN_WIDTH, BEST_WIDTH, FRONTIER_WIDTH, BAR_WIDTH = 0.8, 2.2, 1.4, 1.2, 1.4
MARGIN_DASH, FAILED_DASH, FRONTIER_DASH = (0, (3, 2)), (0, (3, 2)), (0, (4, 3))

WIDTH = 440.0  # points, of every chart but panels of settings
LINE_HEIGHT, FOOT, HEAD = 46.0, 46.0, 6.0  # points, of an interval chart
SCATTER_HEIGHT, CURVE_HEIGHT = 300.0, 230.0
SIDE = 0.045  # of the width, for marks and numbers at the ends of the axis: half of "100 %" must fit
LEAST_SPAN = 0.25  # of a bounded axis, so that a small difference looks small
LEAST_SHARE = 0.1  # of its largest number, the span of any other axis: rounding errors are drawn as equal
PAGE_WIDTH = 36.0  # rem, of a chart on the page: max-width of .chart in style.css
PNG_DPI = 200
ARROW = "\N{RIGHTWARDS ARROW}"

SETTINGS: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": FONT,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,  # every number of an axis stands for itself,
    "axes.formatter.limits": (-9, 12),  # without a power of ten at its end
    "text.usetex": False,
    "path.simplify": False,
}

# Drawings, for the page and as files

FORMATS = ("svg", "pdf", "png")
METADATA: Mapping[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FAMILY = "font-family: 'DejaVu Sans', Verdana, Arial, Helvetica, sans-serif"  # of a file; the page has its own


@dataclass(frozen=True, kw_only=True)
class Inks:
    """The colours of a drawing, named as in COLOURS."""

    ink: str
    muted: str
    band: str
    line: str
    page: str
    leaks: str
    open: str
    safe: str

    def of(self, state: str | None) -> str:
        """Return the colour of a state, plain ink where there is none."""
        return self.ink if state is None else str(getattr(self, TONES.get(state, "open")))


PAGE = Inks(**{name: f"var(--{name})" for name in COLOURS})  # light or dark
PAPER = Inks(**COLOURS)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A chart before rendering; a text "@3" in it stands for texts[3], which matplotlib never sees in an SVG."""

    name: str  # for ids and files, of plain letters
    title: str
    description: str
    texts: tuple[str, ...]
    size: tuple[float, float]  # points
    paint: Callable[[Any, Inks], None]  # on a figure of matplotlib's or an SvgFigure


def on_page(drawing: Drawing) -> Markup:
    """Return the drawing as SVG that follows the colours of the page."""
    return Markup(_svg(drawing, PAGE, alone=False))


def as_file(drawing: Drawing, ending: str) -> bytes:
    """Return the content of a file (svg, pdf or png); the same drawing gives the same bytes."""
    if ending == "svg":
        return (_svg(drawing, PAPER, alone=True) + "\n").encode()
    from matplotlib import rc_context

    with rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        figure = _painted(drawing)
        fill_in(figure, drawing.texts)
        content = io.BytesIO()
        figure.savefig(content, format=ending, dpi=PNG_DPI, facecolor="white", metadata=METADATA[ending])
    return content.getvalue()


def fill_in(figure: FigureBase, texts: Sequence[str]) -> None:
    """Put the real texts into a painted figure; none is interpreted as mathematics."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        match = re.fullmatch(r"@(\d+)", text.get_text())
        text.set_parse_math(False)
        if match:
            text.set_text(printable(texts[int(match.group(1))]))


def _svg(drawing: Drawing, inks: Inks, *, alone: bool) -> str:
    """Return SVG for a page, or for a file that stands alone."""
    (width, height), figure = drawing.size, SvgFigure(drawing.name, drawing.size, drawing.texts)
    try:
        drawing.paint(figure, inks)
        content = figure.content()
    except (OverflowError, ValueError, ZeroDivisionError) as problem:  # numbers near the end of the range of floats
        expected, remedy = "numbers of a size that can be drawn", "Check that results.json was not altered."
        raise BadInput("results.json", expected=expected, got=str(problem), remedy=remedy) from problem
    size, style = f'viewBox="0 0 {width:g} {height:g}"', f"font-size: {FONT:g}px"
    if alone:
        size, style = f'width="{width:g}pt" height="{height:g}pt" {size}', f"{style}; {FAMILY}"
    elif width < WIDTH:  # letters as large as in the other charts
        style += f"; max-width: {PAGE_WIDTH * width / WIDTH:.3g}rem"
    title, description = f"{drawing.name}-title", f"{drawing.name}-description"
    return (
        f'<svg xmlns="{SVG}" xmlns:xlink="{XLINK}" {size} class="chart" role="img" '
        f'aria-labelledby="{title} {description}" stroke-linejoin="round" style="{style}">\n'
        f'<title id="{title}">{escape(printable(drawing.title))}</title>'
        f'<desc id="{description}">{escape(printable(drawing.description))}</desc>\n{content}\n</svg>'
    )


def _painted(drawing: Drawing) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
    FigureCanvasAgg(figure)  # savefig replaces it by the canvas of each format
    drawing.paint(figure, PAPER)
    return figure


def bare(axes: Axes, inks: Inks, sides: Sequence[str] = ("left", "bottom")) -> None:
    """Leave nothing around a plot but the spines of `sides` and their ticks."""
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(inks.line)
    axes.tick_params(colors=inks.muted, length=3)


def _text(number: float, percent: bool) -> str:
    return f"{100 * number:.1f} %" if percent else units.short(number)


def clipped(text: str, most: int = 62) -> str:
    """Return a text that fits beside a drawing."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


# Interval charts: a line per defence with mean and interval, floor, margin, controls and ceiling


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """One line of an interval chart."""

    label: str
    mean: float | None
    low: float | None
    high: float | None
    floor: float | None = None
    least: float | None = None  # floor and margin together: where a leak starts
    ceiling: float | None = None
    controls: Mapping[str, float] = field(default_factory=dict)
    state: str | None = None  # None where the line is not judged


def metric_chart(lines: Sequence[ChartLine], metric: str | None, *, name: str, title: str) -> Drawing:
    """Return the chart of a metric, with its own direction, bounds and unit."""
    base = base_metric(metric or "")
    if base in units.NOT_NEGATIVE:  # an interval may pass zero, which the metric itself cannot
        lines = [replace(line, low=_not_negative(line.low), high=_not_negative(line.high)) for line in lines]
    return interval_chart(
        lines,
        name=name,
        title=title,
        axis=str(metric),
        down=units.is_down(metric),
        bounded=base in units.BOUNDED,
        percent=base in units.SHARES,
    )


def interval_chart(
    lines: Sequence[ChartLine],
    *,
    name: str,
    title: str,
    axis: str,
    down: bool,
    bounded: bool = False,
    percent: bool = False,
) -> Drawing:
    """Return a dot-and-interval chart; `down` reverses the axis, a `bounded` metric stays within 0 and 1."""
    lines = [_clip(line) for line in lines] if bounded else lines
    height = HEAD + LINE_HEIGHT * len(lines) + FOOT

    def paint(figure: FigureBase, inks: Inks) -> None:
        axes = figure.add_axes((SIDE, FOOT / height, 1 - 2 * SIDE, 1 - (FOOT + HEAD) / height))
        _interval_axes(axes, lines, inks, down, bounded)
        if percent:
            axes.xaxis.set_major_formatter(lambda tick, _: f"{100 * tick:.4g}{units.GLUE}%")
        for index, line in enumerate(lines):
            _draw_line(axes, line, index, inks)
        axes.set_xlabel(f"@{len(lines)}", color=inks.muted)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_describe_line(line, percent) for line in lines),
        texts=(*(clipped(line.label) for line in lines), f"{clipped(axis)} {ARROW} more leakage"),
        size=(WIDTH, height),
        paint=paint,
    )


def _interval_axes(axes: Axes, lines: Sequence[ChartLine], inks: Inks, down: bool, bounded: bool) -> None:
    """Set limits that include everything, and show the x axis alone."""
    numbers = [number for line in lines for number in _numbers(line)] or [0.0, 1.0]
    least, most = min(numbers), max(numbers)
    least, most = wide_enough(least, most)
    room = 0.06 * (most - least)
    ends = _at_least(least - room, most + room) if bounded else (least - room, most + room)
    axes.set_xlim(*(ends[::-1] if down else ends))
    axes.set_ylim(len(lines) - 0.5, -0.5)
    bare(axes, inks, ("bottom",))
    axes.yaxis.set_visible(False)
    axes.locator_params(axis="x", nbins=6)


def _draw_line(axes: Axes, line: ChartLine, index: int, inks: Inks) -> None:
    """Draw label, floor, margin, controls, ceiling, interval and mean of one line."""
    y, ink = index + 0.18, inks.of(line.state)
    start, label_at = axes.get_xlim()[0], axes.get_yaxis_transform()
    axes.text(0.0, index - 0.2, f"@{index}", transform=label_at, color=inks.ink, va="center")
    if line.floor is not None:
        axes.fill_betweenx([y - 0.17, y + 0.17], start, line.floor, color=inks.band, linewidth=0)
        axes.plot([line.floor] * 2, [y - 0.17, y + 0.17], color=inks.muted, linewidth=FLOOR_WIDTH)
    if line.least is not None:
        ends = [y - 0.26, y + 0.26]
        axes.plot([line.least] * 2, ends, color=inks.ink, linewidth=MARGIN_WIDTH, linestyle=MARGIN_DASH)
    over: dict[str, Any] = {"zorder": 4.5, "clip_on": False}  # drawn above the interval
    for control, mean in line.controls.items():
        marker = CONTROL_MARKERS.get(control, OTHER_CONTROL)
        hollow: dict[str, Any] = {"markerfacecolor": inks.page, "markeredgecolor": inks.ink}
        axes.plot([mean], [y], marker, markersize=CONTROL_SIZE, **hollow, **over)
    if line.ceiling is not None:
        star: dict[str, Any] = {"color": inks.muted, "markeredgewidth": 0, "markersize": CEILING_SIZE}
        axes.plot([line.ceiling], [y], CEILING_MARKER, **star, **over)
    if line.low is not None and line.high is not None:
        bar: dict[str, Any] = {"linewidth": INTERVAL_WIDTH, "solid_capstyle": "butt"}
        axes.plot([line.low, line.high], [y, y], color=ink, zorder=4, **bar)
        for end in (line.low, line.high):
            axes.plot([end] * 2, [y - 0.08, y + 0.08], color=ink, linewidth=CAP_WIDTH, zorder=4)
    if line.mean is not None:
        fill = ink if line.state in ("leaks", "small", "no leak found", None) else inks.page
        marks: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": ink, "markeredgewidth": 2.0}
        marker = STATE_MARKERS.get(line.state or "", POINT_MARKER)
        axes.plot([line.mean], [y], marker, markersize=MEAN_SIZE, zorder=5, clip_on=False, **marks)


def wide_enough(least: float, most: float) -> tuple[float, float]:
    """Return the ends of an axis at least LEAST_SHARE of its largest number apart, 1 where that is 0."""
    span = LEAST_SHARE * max(abs(least), abs(most)) or 1.0
    missing = max(0.0, span - (most - least)) / 2
    return least - missing, most + missing


def _at_least(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis within 0 and 1 that are at least LEAST_SPAN apart."""
    missing = max(0.0, LEAST_SPAN - (high - low)) / 2
    low, high = low - missing, high + missing
    shift = max(0.0, -low) - max(0.0, high - 1)
    return max(0.0, low + shift), min(1.0, high + shift)


def _clip(line: ChartLine) -> ChartLine:
    """Return the line within 0 and 1; a leak that would start above 1 has no start."""
    inside = {name: _inside(getattr(line, name)) for name in ("mean", "low", "high", "floor", "ceiling")}
    controls = {name: min(max(mean, 0.0), 1.0) for name, mean in line.controls.items()}
    least = line.least if line.least is not None and 0 <= line.least <= 1 else None
    return replace(line, **inside, controls=controls, least=least)  # type: ignore[arg-type]


def _not_negative(number: float | None) -> float | None:
    return None if number is None else max(number, 0.0)


def _inside(number: float | None) -> float | None:
    return None if number is None else min(max(number, 0.0), 1.0)


def _numbers(line: ChartLine) -> list[float]:
    listed = [line.mean, line.low, line.high, line.floor, line.least, line.ceiling, *line.controls.values()]
    return [number for number in listed if number is not None]


def _describe_line(line: ChartLine, percent: bool) -> str:
    """Return one line for screen readers."""
    if line.mean is None:
        return f"{line.label}: no score."
    facts = [f"{line.label}: mean {_text(line.mean, percent)}"]
    if line.low is not None and line.high is not None:
        facts.append(f"interval {_text(line.low, percent)} to {_text(line.high, percent)}")
    if line.floor is not None:
        facts.append(f"floor {_text(line.floor, percent)}")
    if line.least is not None:
        facts.append(f"a leak starts at {_text(line.least, percent)}")
    facts += [f"control {name} {_text(mean, percent)}" for name, mean in line.controls.items()]
    return ", ".join([*facts, line.state] if line.state else facts) + "."


# Charts by client: a line per client over its runs, beside floor and controls

MOST_CLIENTS = 12
LEAST_RUNS = 3  # from which there is an interval
CONFIDENCE = 0.975  # one side of 95 %

Case = Mapping[str, Any]


def client_chart(cases: Sequence[Case], row: Row, *, name: str, title: str) -> Drawing | None:
    """Return the clients of one summary row, largest gain first; None for fewer than two."""
    metric, down = row["metric"], units.is_down(row["metric"])
    scored = [case for case in cases if case["scores"].get(metric) is not None]
    runs = grouped(scored, lambda case: case["client"])
    lines = [_client_line(client, own, row) for client, own in runs.items()]
    lines.sort(key=lambda line: _gain(line, down), reverse=True)
    if len(lines) < 2:
        return None
    return metric_chart(lines[:MOST_CLIENTS], metric, name=name, title=title)


def _client_line(client: Any, runs: Sequence[Case], row: Row) -> ChartLine:
    metric = row["metric"]
    mean, low, high = spread([float(run["scores"][metric]) for run in runs])
    names = dict.fromkeys(name for run in runs for name in run["controls"])
    controls = {name: _mean_of([run["controls"].get(name) for run in runs], metric) for name in names}
    return ChartLine(
        label=f"client {client}",
        mean=mean,
        low=low,
        high=high,
        floor=_mean_of([run["floors"].get(row["over"]) for run in runs], metric),
        controls={name: value for name, value in controls.items() if value is not None},
    )


def spread(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean over runs of one client with its t-interval, where there are enough runs."""
    mean = math.fsum(values) / len(values)
    if len(values) < LEAST_RUNS:
        return mean, None, None
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = t_quantile(len(values) - 1) * error
    return mean, mean - half, mean + half


@lru_cache(maxsize=1000)
def t_quantile(freedom: int) -> float:
    """Return the quantile of Student's t at CONFIDENCE; importing scipy takes as long as the rest of a report.

    With t = sqrt(freedom) tan(angle), P(|T| < t) is a finite sum in the angle (Abramowitz and Stegun 26.7.3, 26.7.4),
    which is solved by bisection.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        sine, square = math.sin(angle), math.cos(angle) ** 2
        odd = freedom % 2
        term, total = (math.cos(angle) if odd else 1.0), 0.0
        for index in range(2 + odd, freedom + 1, 2):
            total += term
            term *= square * (index - 1) / index
        within = 2 / math.pi * (angle + sine * total) if odd else sine * total
        low, high = (angle, high) if within < 2 * CONFIDENCE - 1 else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _mean_of(scores: Sequence[Mapping[str, Any] | None], metric: str) -> float | None:
    known = [score[metric] for score in scores if score and score.get(metric) is not None]
    return math.fsum(known) / len(known) if known else None


def _gain(line: ChartLine, down: bool) -> float:
    gain = (line.mean or 0.0) - (line.floor or 0.0)
    return -gain if down else gain


# Scatter charts: leakage against utility with intervals both ways, and the Pareto frontier

Measured = tuple[float, float | None, float | None]  # value, lower and upper end


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point; its mark stands beside it, its label in the description."""

    mark: str
    label: str
    across: Measured
    up: Measured
    state: str | None = None
    frontier: bool = False


def scatter_chart(
    points: Sequence[Point],
    *,
    name: str,
    title: str,
    across: str,
    up: str,
    reverse: bool = False,
    percent: tuple[bool, bool] = (False, False),
) -> Drawing:
    """Return points with their intervals.

    `across` and `up` label the axes, `percent` says which of them are shares; with `reverse`, smaller values across are
    better.
    """

    def paint(figure: FigureBase, inks: Inks) -> None:
        axes = figure.add_axes((0.18, 0.17, 0.77, 0.78))
        _scatter_axes(axes, points, inks, reverse)
        if percent[0]:
            axes.xaxis.set_major_formatter(lambda tick, _: f"{100 * tick:.4g}{units.GLUE}%")
        if percent[1]:  # points, which the label states
            axes.yaxis.set_major_formatter(lambda tick, _: f"{100 * tick:.4g}")
        _draw_frontier(axes, points, inks, reverse)
        for index, point in enumerate(points):
            beside = sum(_touch(axes, point, earlier) for earlier in points[:index])
            _draw_point(axes, point, index, inks, beside)
        axes.set_xlabel(f"@{len(points)}", color=inks.muted)
        axes.set_ylabel(f"@{len(points) + 1}", color=inks.muted, labelpad=6)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_describe_point(point, percent) for point in points),
        texts=(*(point.mark for point in points), f"{across} {ARROW} better", f"{up} {ARROW} more leakage"),
        size=(WIDTH, SCATTER_HEIGHT),
        paint=paint,
    )


NEAR = 0.05  # of the axes, between points whose marks would overprint
MARK = 10.0  # points, width of a mark


def _scatter_axes(axes: Axes, points: Sequence[Point], inks: Inks, reverse: bool) -> None:
    """Set limits by the points, and draw the line of zero gain."""
    low, high = _ends([point.across for point in points])
    axes.set_xlim(*((high, low) if reverse else (low, high)))
    axes.set_ylim(*_ends([point.up for point in points] + [(0.0, None, None)]))
    axes.axhline(0.0, color=inks.muted, linewidth=1.0)
    bare(axes, inks)
    axes.locator_params(nbins=5)


def _ends(measured: Sequence[Measured]) -> tuple[float, float]:
    """Return axis ends that include every value, and its interval unless that would squeeze the values together."""
    values = [value for value, _, _ in measured]
    least, most = min(values), max(values)
    least, most = wide_enough(least, most)
    span = most - least
    lows = [end for _, end, _ in measured if end is not None]
    highs = [end for _, _, end in measured if end is not None]
    low, high = max(min([least, *lows]), least - span), min(max([most, *highs]), most + span)
    return low - 0.08 * span, high + 0.08 * span


def _draw_frontier(axes: Axes, points: Sequence[Point], inks: Inks, reverse: bool) -> None:
    """Draw steps through the Pareto-optimal points: the least leakage at no less utility."""
    best = sorted((point.across[0], point.up[0]) for point in points if point.frontier)
    if len(best) > 1:
        steps = "steps-post" if reverse else "steps-pre"
        style: dict[str, Any] = {"linewidth": FRONTIER_WIDTH, "linestyle": FRONTIER_DASH}
        xs, ys = [x for x, _ in best], [y for _, y in best]
        axes.plot(xs, ys, color=inks.ink, drawstyle=steps, zorder=2, **style)


def _touch(axes: Axes, point: Point, other: Point) -> bool:
    """Whether the marks of two points would overprint one another."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    apart = abs(point.across[0] - other.across[0]) / abs(right - left), abs(point.up[0] - other.up[0]) / (high - low)
    return apart[0] < NEAR and apart[1] < NEAR


def _draw_point(axes: Axes, point: Point, index: int, inks: Inks, beside: int) -> None:
    """Draw a point with its intervals; its mark stands right of those of the points `beside` it."""
    ink = inks.of(point.state)
    (x, left, right), (y, low, high) = point.across, point.up
    if left is not None and right is not None:
        axes.plot([left, right], [y, y], color=ink, linewidth=BAR_WIDTH, zorder=3)
    if low is not None and high is not None:
        axes.plot([x, x], [low, high], color=ink, linewidth=BAR_WIDTH, zorder=3)
    marks: dict[str, Any] = {"markerfacecolor": ink if point.frontier else inks.page, "markeredgecolor": ink}
    axes.plot([x], [y], POINT_MARKER, markersize=POINT_SIZE, zorder=4, **marks)
    axes.annotate(
        f"@{index}", (x, y), textcoords="offset points", xytext=(6 + MARK * beside, 6), color=inks.ink, zorder=5
    )


def _describe_point(point: Point, percent: tuple[bool, bool]) -> str:
    """Return one point for screen readers."""
    best = ", on the frontier" if point.frontier else ""
    utility, gain = _text(point.across[0], percent[0]), _text(point.up[0], percent[1])
    gain = gain.replace("%", "points")
    return f"{point.mark} {point.label}: utility {utility}, gain {gain}{best}."
