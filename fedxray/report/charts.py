"""Charts of results: one line per defence, with the mean and its interval, the floor, the controls and the ceiling.

Further right always means more leak, so the axis of a metric where smaller leaks more runs backwards.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

from fedxray.errors import printable
from fedxray.report import words
from fedxray.report.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# --- What matplotlib draws, made fit to stand inside a page: own ids, page colours, a text alternative, no
# scripts.


SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
KEPT = frozenset({"svg", "g", "path", "use", "defs", "clipPath", "rect", "text"})
# Colours of a drawing that stand for others: for variables of the page, so that a chart follows light and dark,
# and for those of the light page on paper.
PAGE_COLOURS: Mapping[str, str] = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--band)",
    "#040404": "var(--line)",
    "#050505": "var(--page)",
    "#060606": "var(--leaks)",
    "#070707": "var(--open)",
    "#080808": "var(--safe)",
}
PAPER_COLOURS: Mapping[str, str] = {
    "#010101": "#16202c",
    "#020202": "#55606e",
    "#030303": "#e3e7ed",
    "#040404": "#cdd3db",
    "#050505": "#ffffff",
    "#060606": "#b3261e",
    "#070707": "#7a5200",
    "#080808": "#17663f",
}


def embed(
    drawn: str,
    *,
    name: str,
    title: str,
    description: str,
    texts: Sequence[str],
    colours: Mapping[str, str] = PAGE_COLOURS,
    alone: bool = False,
) -> str:
    """SVG for a page, or a file that stands alone; a text "@3" becomes texts[3], which matplotlib never sees.

    So no name can be taken for markup or mathematics, or lack a glyph.
    """
    root = ET.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", drawn, count=1, flags=re.DOTALL))
    _prune(root)
    for element in root.iter():
        _adapt(element, name, texts, colours)
    for attribute in ("version",) if alone else ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        words = ET.Element(
            f"{{{SVG}}}{tag}", {"id": f"{name}-{'title' if tag == 'title' else 'description'}"}
        )
        words.text = printable(text)
        root.insert(place, words)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return ET.tostring(root, encoding="unicode")


def _prune(element: ET.Element) -> None:
    """Drop metadata, styles and everything else that a drawing does not need."""
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] not in KEPT:
            element.remove(child)
        else:
            _prune(child)


def _adapt(element: ET.Element, name: str, texts: Sequence[str], colours: Mapping[str, str]) -> None:
    """Ids that are unique in the page, colours of the page, and the real texts."""
    tag = element.tag.rpartition("}")[2]
    own = element.attrib.pop("id", None)
    if own is not None and tag in ("path", "clipPath"):
        element.set("id", f"{name}-{own}")
    for key, value in element.attrib.items():
        if key == f"{{{XLINK}}}href":
            element.set(key, f"#{name}-{value.removeprefix('#')}")
        elif key == "clip-path":
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key == "style":
            element.set(key, re.sub("|".join(colours), lambda found: colours[found.group()], value))
    if tag == "text":
        found = re.fullmatch(r"@(\d+)", (element.text or "").strip())
        if found:
            element.text = printable(texts[int(found.group(1))])


# --- A drawing by matplotlib that stands in the page and in files for papers, in the colours of each.


SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedxray",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.unicode_minus": True,
    "text.usetex": False,
    "path.simplify": False,
}
FORMATS = ("svg", "pdf", "png")
METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
SHARP = 200  # dots per inch of a PNG


@dataclass(frozen=True, kw_only=True)
class Inks:
    """The colours of a drawing."""

    ink: str = "#010101"
    muted: str = "#020202"
    band: str = "#030303"
    line: str = "#040404"
    page: str = "#050505"
    leaks: str = "#060606"
    open: str = "#070707"
    safe: str = "#080808"

    def of(self, verdict: str) -> str:
        """The colour of a verdict, plain ink where there is none."""
        known = {"leaks": self.leaks, "no leak found": self.safe, "inconclusive": self.open}
        return known.get(verdict, self.ink)


STANDING = Inks()  # colours that stand for others: every place gives them its own
PAPER = Inks(**{name: PAPER_COLOURS[colour] for name, colour in vars(STANDING).items()})
Paint = Callable[["Figure", Inks], None]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What is drawn; a text "@3" in it stands for texts[3], so that no name is taken for markup or mathematics."""

    name: str  # for ids and files, of plain letters
    title: str
    description: str
    texts: tuple[str, ...]
    size: tuple[float, float]  # points
    paint: Paint


def on_page(drawing: Drawing) -> Markup:
    """The drawing as SVG that follows the colours of the page."""
    return Markup(_svg(drawing, PAGE_COLOURS, alone=False))


def as_file(drawing: Drawing, ending: str) -> bytes:
    """The drawing as the content of a file: svg, pdf or png; the same drawing gives the same bytes."""
    if ending == "svg":
        return (_svg(drawing, PAPER_COLOURS, alone=True) + "\n").encode()
    from matplotlib import rc_context
    from matplotlib.text import Text

    with rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        figure = _painted(drawing, PAPER)
        for text in figure.findobj(Text):
            found = re.fullmatch(r"@(\d+)", text.get_text())
            text.set_parse_math(False)
            if found:
                text.set_text(printable(drawing.texts[int(found.group(1))]))
        drawn = io.BytesIO()
        figure.savefig(drawn, format=ending, dpi=SHARP, facecolor="white", metadata=METADATA[ending])
    return drawn.getvalue()


def _svg(drawing: Drawing, colours: Mapping[str, str], *, alone: bool) -> str:
    return embed(
        _drawn(drawing),
        name=drawing.name,
        title=drawing.title,
        description=drawing.description,
        texts=drawing.texts,
        colours=colours,
        alone=alone,
    )


@lru_cache(maxsize=200)  # for the page and for a file
def _drawn(drawing: Drawing) -> str:
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        drawn = io.StringIO()
        _painted(drawing, STANDING).savefig(drawn, format="svg", metadata=METADATA["svg"])
    return drawn.getvalue()


def _painted(drawing: Drawing, inks: Inks) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
    FigureCanvasAgg(figure)  # savefig takes the canvas of each format
    figure.patch.set_visible(inks is not STANDING)
    drawing.paint(figure, inks)
    return figure


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


# --- A leak by client: one line per client with its runs, beside what could be guessed and what the
# controls reach.


MOST_CLIENTS = 12
LEAST_RUNS = 3  # from which there is an interval
CONFIDENCE = 0.975  # one side of 95 %

Case = Mapping[str, Any]


def client_chart(cases: Sequence[Case], row: Row, *, name: str, title: str) -> Drawing | None:
    """The clients of one row of the summary, those with the largest gain first; None for fewer than two."""
    metric, down = row["metric"], words.is_down(row["metric"])
    units: dict[Any, list[Case]] = {}
    for case in cases:
        if case["scores"].get(metric) is not None:
            units.setdefault(case["client"], []).append(case)
    lines = [_line(client, runs, row) for client, runs in units.items()]
    lines.sort(key=lambda line: _gain(line, down), reverse=True)
    if len(lines) < 2:
        return None
    return metric_chart(lines[:MOST_CLIENTS], metric, name=name, title=title)


def _line(client: Any, runs: Sequence[Case], row: Row) -> Line:
    scores = [float(one["scores"][row["metric"]]) for one in runs]
    mean, low, high = spread(scores)
    floors = [one["floors"].get(row["over"]) for one in runs]
    controls = {name: [one["controls"].get(name) for one in runs] for one in runs for name in one["controls"]}
    means = {name: _mean_of(listed, row["metric"]) for name, listed in controls.items()}
    return Line(
        label=f"client {client}",
        mean=mean,
        low=low,
        high=high,
        floor=_mean_of(floors, row["metric"]),
        controls={name: one for name, one in means.items() if one is not None},
        verdict="",
    )


def spread(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of the runs of one client with its t-interval, where there are enough runs."""
    mean = math.fsum(values) / len(values)
    if len(values) < LEAST_RUNS:
        return mean, None, None
    from scipy.special import stdtrit

    error = math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))
    wide = float(stdtrit(len(values) - 1, CONFIDENCE)) * error
    return mean, mean - wide, mean + wide


def _mean_of(listed: Sequence[Mapping[str, Any] | None], metric: str) -> float | None:
    known = [one[metric] for one in listed if one and one.get(metric) is not None]
    return math.fsum(known) / len(known) if known else None


def _gain(line: Line, down: bool) -> float:
    gain = (line.mean or 0.0) - (line.floor or 0.0)
    return -gain if down else gain


# --- A chart of points with intervals both ways and the line through those that nothing beats.


SCATTER_WIDTH, HEIGHT = 440.0, 300.0  # points
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
        _scatter_frame(axes, points, inks, reverse)
        _frontier(axes, points, inks, reverse)
        for place, point in enumerate(points):
            _draw_scatter(axes, point, place, inks)
        axes.set_xlabel(f"@{len(points)}", color=inks.muted)
        axes.set_ylabel(f"@{len(points) + 1}", color=inks.muted, labelpad=6)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_describe_scatter(point) for point in points),
        texts=(*(point.mark for point in points), f"{across} {ARROW} better", f"{up} {ARROW} more leak"),
        size=(SCATTER_WIDTH, HEIGHT),
        paint=paint,
    )


def _scatter_frame(axes: Axes, points: Sequence[Point], inks: Inks, reverse: bool) -> None:
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


def _draw_scatter(axes: Axes, point: Point, place: int, inks: Inks) -> None:
    ink = inks.of(point.verdict)
    (x, left, right), (y, low, high) = point.across, point.up
    if left is not None and right is not None:
        axes.plot([left, right], [y, y], color=ink, linewidth=1.4, zorder=3)
    if low is not None and high is not None:
        axes.plot([x, x], [low, high], color=ink, linewidth=1.4, zorder=3)
    fill = ink if point.frontier else inks.page
    axes.plot([x], [y], "o", markersize=7.5, markerfacecolor=fill, markeredgecolor=ink, zorder=4)
    axes.annotate(f"@{place}", (x, y), textcoords="offset points", xytext=(6, 6), color=inks.ink, zorder=5)


def _describe_scatter(point: Point) -> str:
    """One point for a reader who hears the chart."""
    best = ", on the frontier" if point.frontier else ""
    return (
        f"{point.mark} {point.label}: utility {words.short(point.across[0])}, "
        f"gain {words.short(point.up[0])}{best}."
    )
