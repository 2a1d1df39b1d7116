"""Charts as SVG without matplotlib, whose import alone takes longer than a whole report.

`SvgFigure` and `SvgAxes` have the few methods of matplotlib's figures and axes that charts of a report call, with the
same names and arguments, so each chart is written once; matplotlib makes a PDF, a PNG or a figure of a notebook of it.
Lengths are in points; y points down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

from fedxray.errors import printable

FONT = 11.0  # points
DIGIT, ASCENT, CENTRE, DESCENT = 0.62 * FONT, 0.76 * FONT, 0.27 * FONT, 0.24 * FONT  # sizes of letters
TICK, TICK_PAD, LABEL_PAD = 3.0, 3.5, 4.0
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # of an axis, times a power of ten
MARGIN = 0.05  # of the data, around them where no limits are set
PLAIN = (1e-9, 1e12)  # numbers in between are written without a power of ten
BAND_LAYER, LINE_LAYER, AXIS_LAYER, TEXT_LAYER = 1.0, 2.0, 2.5, 3.0  # as matplotlib orders them
SHARES, BESIDE = "shares", "beside"  # coordinates in shares of the axes: both, or x alone
LINE_ENDS = {"projecting": "square", "butt": "butt"}
SHAPES: Mapping[str, Sequence[tuple[float, float]]] = {  # corners; the circle is an arc
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((0, -1), (1, 1), (-1, 1)),
    "v": ((0, 1), (1, -1), (-1, -1)),
    "D": ((0, -math.sqrt(2)), (math.sqrt(2), 0), (0, math.sqrt(2)), (-math.sqrt(2), 0)),
    "*": [
        ((0.381966 if corner % 2 else 1) * math.sin(angle), (0.381966 if corner % 2 else 1) * -math.cos(angle))
        for corner, angle in ((corner, corner * math.pi / 5) for corner in range(10))
    ],
}


def number(value: float) -> str:
    """Return a length in hundredths of a point; a coordinate that is not finite cannot be drawn."""
    if not math.isfinite(value):
        raise ValueError(f"{value} as a coordinate")
    return f"{round(value, 2):g}" if abs(value) < 1e5 else f"{value:.0f}"


# Axes


@dataclass
class Side:
    """One spine of the axes, or their background, which is never drawn."""

    visible: bool = True
    colour: str = "black"

    def set_visible(self, visible: bool) -> None:
        """Show or hide the spine."""
        self.visible = visible

    def set_color(self, colour: str) -> None:
        """Set the colour of the spine."""
        self.colour = colour


@dataclass
class Axis:
    """Limits, scale, ticks and label of one direction."""

    limits: tuple[float, float] | None = None
    data: list[float] = field(default_factory=list)  # to set the limits by
    log: bool = False
    visible: bool = True
    most: int = 9  # intervals between ticks
    integer: bool = False
    formatter: Callable[[float, int | None], str] | None = None
    label: tuple[str, str, float] | None = None  # text, colour and distance

    def set_visible(self, visible: bool) -> None:
        """Show or hide ticks and label."""
        self.visible = visible

    def set_major_formatter(self, formatter: Callable[[float, int | None], str]) -> None:
        """Set how ticks are written."""
        self.formatter = formatter

    def ends(self) -> tuple[float, float]:
        """Return the limits; where none are set, those of the data and some margin."""
        if self.limits is not None:
            return self.limits
        low, high = (min(self.data), max(self.data)) if self.data else (0.0, 1.0)
        if low == high:
            low, high = (low / 2, high * 2) if self.log else (low - (abs(low) or 1) / 20, high + (abs(high) or 1) / 20)
        if self.log:
            room = (high / low) ** MARGIN
            return low / room, high * room
        room = MARGIN * (high - low)
        return low - room, high + room

    def share(self, value: float) -> float:
        """Return where a value stands between the limits, 0 to 1."""
        start, end = self.ends()
        if self.log:
            return (math.log(value) - math.log(start)) / (math.log(end) - math.log(start))
        return (value - start) / (end - start)

    def ticks(self) -> list[float]:
        """Return the values of the ticks, as many as asked for at most."""
        low, high = sorted(self.ends())
        return _log_ticks(low, high, self.most) if self.log else _ticks(low, high, self.most, self.integer)

    def texts(self) -> list[str]:
        """Return the ticks as they are written."""
        ticks = self.ticks()
        if self.formatter is not None:
            return [self.formatter(tick, None) for tick in ticks]
        largest = max((abs(tick) for tick in ticks), default=0.0)
        if largest and not PLAIN[0] <= largest < PLAIN[1]:
            return [f"{tick:g}" for tick in ticks]
        decimals = next((n for n in range(16) if all(abs(round(t, n) - t) <= 1e-9 * largest for t in ticks)), 16)
        return [f"{tick:.{decimals}f}".replace("-", "\N{MINUS SIGN}") for tick in ticks]


def _ticks(low: float, high: float, most: int, integer: bool) -> list[float]:
    """Return multiples of the smallest usual step of which at most `most` fit."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [step * power for step in (*STEPS, 10 * STEPS[1])]
    if integer:
        steps = [step for step in steps if step >= 1 and step == int(step)] or [1.0]
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first <= most:
            break
    return [index * step for index in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return powers of ten, where these are fewer than two also their doubles and halves."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last > first:
        stride = -(-(last - first) // most)
        return [10.0**power for power in range(first, last + 1, stride)]
    near = [step * 10.0**power for power in range(first - 1, last + 2) for step in (1, 2, 5)]
    return [tick for tick in near if low <= tick <= high]


class SvgAxes:
    """A plot within a figure; `area` is left, bottom, width and height in shares of it."""

    def __init__(self, figure: SvgFigure, area: tuple[float, float, float, float]) -> None:
        (width, height), (left, bottom, wide, tall) = figure.size, area
        self.figure, self.left, self.right = figure, left * width, (left + wide) * width
        self.top, self.bottom = (1 - bottom - tall) * height, (1 - bottom) * height
        self.clip = f"{figure.name}-clip-{len(figure.axes)}"
        self.xaxis, self.yaxis, self.transAxes = Axis(), Axis(), SHARES
        self.patch = Side()
        self.spines = {side: Side() for side in ("left", "right", "top", "bottom")}
        self.tick_colour = "black"
        self.items: list[tuple[float, Callable[[], str]]] = []  # layer, and what is drawn once the limits are known

    # Limits, scales and labels

    def set_xlim(self, start: float, end: float) -> None:
        """Set the values at the left and at the right."""
        self.xaxis.limits = start, end

    def set_ylim(self, start: float, end: float) -> None:
        """Set the values at the bottom and at the top."""
        self.yaxis.limits = start, end

    def get_xlim(self) -> tuple[float, float]:
        """Return the values at the left and at the right."""
        return self.xaxis.ends()

    def get_ylim(self) -> tuple[float, float]:
        """Return the values at the bottom and at the top."""
        return self.yaxis.ends()

    def set(self, *, xscale: str | None = None, yscale: str | None = None) -> None:
        """Set which axes are logarithmic."""
        self.xaxis.log, self.yaxis.log = self.xaxis.log or xscale == "log", self.yaxis.log or yscale == "log"

    def minorticks_off(self) -> None:
        """Do nothing: there are no minor ticks."""

    def locator_params(self, *, axis: str = "both", nbins: int, integer: bool = False) -> None:
        """Set the largest number of intervals between ticks, and whether these are whole numbers."""
        for name, one in (("x", self.xaxis), ("y", self.yaxis)):
            if axis in (name, "both"):
                one.most, one.integer = nbins, integer

    def tick_params(self, *, colors: str, length: float) -> None:
        """Set the colour of ticks; their length is always that of the charts."""
        self.tick_colour = colors

    def set_xlabel(self, text: str, *, color: str = "", labelpad: float = LABEL_PAD) -> None:
        """Set the text below the axis."""
        self.xaxis.label = text, color, labelpad

    def set_ylabel(self, text: str, *, color: str = "", labelpad: float = LABEL_PAD) -> None:
        """Set the text left of the axis."""
        self.yaxis.label = text, color, labelpad

    def get_yaxis_transform(self) -> str:
        """Return coordinates with x in shares of the axes."""
        return BESIDE

    def at(self, x: float, y: float, transform: str | None = None) -> tuple[float, float]:
        """Return the place of a value in points from the left and the top of the figure."""
        across = self.xaxis.share(x) if transform is None else x
        up = y if transform == SHARES else self.yaxis.share(y)
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    # Marks

    def plot(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        marker: str = "",
        *,
        zorder: float = LINE_LAYER,
        transform: str | None = None,
        **style: Any,
    ) -> None:
        """Draw a line through points, or a marker at each."""
        if not transform:
            self.xaxis.data += xs
            self.yaxis.data += ys
        draw = self._markers if marker else self._line
        if xs:
            self.items.append((zorder, lambda: draw(xs, ys, marker, transform, **style)))

    def axhline(self, y: float, *, color: str, linewidth: float) -> None:
        """Draw a line from left to right."""
        start, end = self.get_xlim()
        self.plot([start, end], [y, y], color=color, linewidth=linewidth)

    def axvline(self, x: float, *, color: str, linewidth: float, linestyle: Any) -> None:
        """Draw a line from bottom to top."""
        self.xaxis.data.append(x)

        def draw() -> str:
            return self._line(
                [x, x], [*self.get_ylim()], "", None, color=color, linewidth=linewidth, linestyle=linestyle
            )

        self.items.append((LINE_LAYER, draw))

    def fill_betweenx(self, ys: Sequence[float], start: float, end: float, *, color: str, linewidth: float) -> None:
        """Fill a rectangle."""
        self.items.append((BAND_LAYER, lambda: self._filled((start, ys[0]), (end, ys[-1]), None, color)))

    def axvspan(self, start: float, end: float, *, color: str, linewidth: float, zorder: float) -> None:
        """Fill from bottom to top."""
        low, high = self.get_ylim()
        self.items.append((zorder, lambda: self._filled((start, low), (end, high), None, color)))

    def text(self, x: float, y: float, text: str, *, transform: str, color: str, va: str) -> None:
        """Write a text that starts at a place and is centred vertically."""

        def draw() -> str:
            left, middle = self.at(x, y, transform)
            return self.figure.text(left, middle + CENTRE, text, color)

        self.items.append((TEXT_LAYER, draw))

    def annotate(
        self,
        text: str,
        place: tuple[float, float],
        *,
        textcoords: str,
        xytext: tuple[float, float],
        color: str,
        zorder: float,
    ) -> None:
        """Write a text some points right of a place and above it."""

        def draw() -> str:
            x, y = self.at(*place)
            return self.figure.text(x + xytext[0], y - xytext[1], text, color)

        self.items.append((zorder, draw))

    def _clipped(self, clip_on: bool) -> str:
        return f' clip-path="url(#{self.clip})"' if clip_on else ""

    def _line(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        _: str,
        transform: str | None,
        *,
        color: str,
        linewidth: float,
        linestyle: Any = "-",
        alpha: float = 1.0,
        drawstyle: str = "default",
        solid_capstyle: str = "projecting",
        clip_on: bool = True,
    ) -> str:
        points = [self.at(x, y, transform) for x, y in zip(xs, ys, strict=True)]
        if drawstyle != "default":  # steps change where the next point stands, or at once
            corners = [
                (nxt[0], one[1]) if drawstyle == "steps-post" else (one[0], nxt[1]) for one, nxt in pairwise(points)
            ]
            points = [point for pair in zip(points, [*corners, points[-1]], strict=True) for point in pair]
        style = f"fill: none; stroke: {color}; stroke-width: {linewidth:g}"
        if isinstance(linestyle, tuple):
            style += "; stroke-dasharray: " + ",".join(number(length * linewidth) for length in linestyle[1])
        else:
            style += f"; stroke-linecap: {LINE_ENDS[solid_capstyle]}"
        style += f"; stroke-opacity: {alpha:g}" if alpha < 1 else ""
        return f'<path d="{_path(points)}"{self._clipped(clip_on)} style="{style}"/>'

    def _filled(self, one: tuple[float, float], other: tuple[float, float], transform: str | None, colour: str) -> str:
        (left, top), (right, low) = self.at(*one, transform), self.at(*other, transform)
        corners = [(left, top), (right, top), (right, low), (left, low)]
        return f'<path d="{_path(corners)}Z"{self._clipped(True)} style="fill: {colour}"/>'

    def _markers(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        marker: str,
        transform: str | None,
        *,
        markersize: float,
        color: str = "",
        markerfacecolor: str = "",
        markeredgecolor: str = "",
        markeredgewidth: float = 1.0,
        fillstyle: str = "full",
        alpha: float = 1.0,
        clip_on: bool = True,
    ) -> str:
        fill = "none" if fillstyle == "none" else markerfacecolor or color
        style = f"fill: {fill}"
        if markeredgewidth:
            style += f"; stroke: {markeredgecolor or color}; stroke-width: {markeredgewidth:g}"
        style += f"; opacity: {alpha:g}" if alpha < 1 else ""
        shape = self.figure.shape(marker, markersize)
        places = [self.at(x, y, transform) for x, y in zip(xs, ys, strict=True)]
        uses = [f'<use xlink:href="#{shape}" x="{number(x)}" y="{number(y)}" style="{style}"/>' for x, y in places]
        return f"<g{self._clipped(clip_on)}>{''.join(uses)}</g>"

    # Rendering

    def content(self) -> Iterator[str]:
        """Yield the elements, the lowest layer first."""
        for axis in (self.xaxis, self.yaxis):
            axis.limits = axis.ends()
        width, height = number(self.right - self.left), number(self.bottom - self.top)
        area = f'x="{number(self.left)}" y="{number(self.top)}" width="{width}" height="{height}"'
        yield f'<clipPath id="{self.clip}"><rect {area}/></clipPath>'
        frame = [(AXIS_LAYER, lambda: "".join(self._frame()))]
        yield from (draw() for _, draw in sorted([*self.items, *frame], key=lambda item: item[0]))

    def _frame(self) -> Iterator[str]:
        """Yield spines, ticks and labels."""
        (left, right), (top, low) = (self.left, self.right), (self.top, self.bottom)
        lines = {"left": ((left, top), (left, low)), "right": ((right, top), (right, low))}
        lines |= {"top": ((left, top), (right, top)), "bottom": ((left, low), (right, low))}
        for side, spine in self.spines.items():
            if spine.visible:
                yield _stroke(lines[side], spine.colour, "; stroke-linecap: square")
        if self.xaxis.visible:
            for tick, text in zip(self.xaxis.ticks(), self.xaxis.texts(), strict=True):
                x = self.left + self.xaxis.share(tick) * (right - left)
                yield _stroke([(x, low), (x, low + TICK)], self.tick_colour)
                yield self.figure.text(x, low + TICK + TICK_PAD + ASCENT, text, self.tick_colour, "middle")
            yield from self._x_label()
        if self.yaxis.visible:
            for tick, text in zip(self.yaxis.ticks(), self.yaxis.texts(), strict=True):
                y = low - self.yaxis.share(tick) * (low - top)
                yield _stroke([(left - TICK, y), (left, y)], self.tick_colour)
                yield self.figure.text(left - TICK - TICK_PAD, y + ASCENT / 2, text, self.tick_colour, "end")
            yield from self._y_label()

    def _x_label(self) -> Iterator[str]:
        if self.xaxis.label and self.xaxis.label[0]:
            text, colour, pad = self.xaxis.label
            y = self.bottom + TICK + TICK_PAD + ASCENT + DESCENT + pad + ASCENT
            yield self.figure.text((self.left + self.right) / 2, y, text, colour, "middle")

    def _y_label(self) -> Iterator[str]:
        """Yield the label left of the longest tick, whose width is estimated, and within the figure."""
        if self.yaxis.label and self.yaxis.label[0]:
            text, colour, pad = self.yaxis.label
            longest = DIGIT * max(map(len, self.yaxis.texts()), default=0)
            x = max(ASCENT, self.left - TICK - TICK_PAD - longest - pad - DESCENT)
            yield self.figure.text(x, (self.top + self.bottom) / 2, text, colour, "middle", upright=True)


# Figures


class SvgFigure:
    """A figure of a size in points; a text "@3" in it stands for texts[3]. `name` begins all ids."""

    def __init__(self, name: str, size: tuple[float, float], texts: Sequence[str]) -> None:
        self.name, self.size, self.texts = name, size, texts
        self.axes: list[SvgAxes] = []
        self.shapes: dict[tuple[str, float], str] = {}

    def add_axes(self, area: tuple[float, float, float, float]) -> SvgAxes:
        """Return new axes, in shares of the figure."""
        self.axes.append(SvgAxes(self, area))
        return self.axes[-1]

    def text(self, x: float, y: float, text: str, colour: str, anchor: str = "start", *, upright: bool = False) -> str:
        """Return a text on one line; upright ones are read from below."""
        shown = escape(printable(self.texts[int(text[1:])] if text.startswith("@") else text))
        turned = f' transform="rotate(-90 {number(x)} {number(y)})"' if upright else ""
        style = f"text-anchor: {anchor}; fill: {colour}"
        return f'<text x="{number(x)}" y="{number(y)}"{turned} style="{style}">{shown}</text>'

    def shape(self, marker: str, size: float) -> str:
        """Return the id of a marker, which is defined once."""
        return self.shapes.setdefault((marker, size), f"{self.name}-m{len(self.shapes)}")

    def content(self) -> str:
        """Return all elements within the figure, each on its line."""
        lines = [line for axes in self.axes for line in axes.content()]
        markers = [f'<path id="{name}" d="{_outline(*key)}"/>' for key, name in self.shapes.items()]
        return "\n".join([f"<defs>{''.join(markers)}</defs>", *lines])


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _stroke(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    return f'<path d="{_path(points)}" style="fill: none; stroke: {colour}; stroke-width: 0.8{more}"/>'


def _outline(marker: str, size: float) -> str:
    """Return the path of a marker around (0, 0)."""
    half = size / 2
    if marker == "o":
        arc = f"A{number(half)} {number(half)} 0 1 1"
        return f"M{number(-half)} 0{arc} {number(half)} 0{arc} {number(-half)} 0Z"
    return _path([(half * x, half * y) for x, y in SHAPES[marker]]) + "Z"
