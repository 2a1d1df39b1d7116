"""Charts as SVG: where everything stands, compared with matplotlib; numbers of the axes."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.special import stdtrit

from fedxray.errors import BadInput
from fedxray.report.charts import (
    PAPER,
    SETTINGS,
    SVG,
    ChartLine,
    Drawing,
    Point,
    interval_chart,
    on_page,
    scatter_chart,
    t_quantile,
)
from fedxray.report.curves import CaseCurve, TrialPoint, curve_chart, trials_chart
from fedxray.report.svg import Axis

LINES = [
    ChartLine(label="a", mean=0.9, low=0.8, high=0.95, floor=0.5, least=0.55, ceiling=1.0, controls={"held-out": 0.6}),
    ChartLine(label="b", mean=0.4, low=None, high=None, floor=0.3, state="no leak found"),
]
POINTS = [
    Point(mark="A", label="a", across=(0.9, 0.8, 1.0), up=(0.3, 0.2, 0.4), frontier=True),
    Point(mark="B", label="b", across=(0.7, None, None), up=(0.1, None, None), frontier=True),
]
TRIALS = [TrialPoint(point={"a": 1.0 * step}, loss=3.0 / (1 + step % 3), given_up=step == 4) for step in range(6)]
DRAWINGS = {
    "interval": interval_chart(LINES, name="c", title="t", axis="a", down=False, bounded=True),
    "reversed": interval_chart(LINES, name="c", title="t", axis="a", down=True),
    "scatter": scatter_chart(POINTS, name="c", title="t", across="x", up="y"),
    "curves": curve_chart([CaseCurve(steps=[0, 5, 9], losses=[3.0, 1.0, 2.0], ok=True)], name="c", title="t"),
    "logarithmic": curve_chart([CaseCurve(steps=[1, 5], losses=[9.0, 0.01], ok=False)], name="c", title="t"),
    "steps": trials_chart([TRIALS], name="c", title="t", starts=2),
}


def svg_places(drawing: Drawing) -> list[tuple[float, float]]:
    """Return every corner of lines and every marker, ticks and spines left out."""
    root = ET.fromstring(on_page(drawing))
    places = [(float(use.get("x", "")), float(use.get("y", ""))) for use in root.iter(f"{{{SVG}}}use")]
    for path in root.iter(f"{{{SVG}}}path"):
        style = path.get("style", "")
        if "stroke" in style and "stroke-width: 0.8" not in style:
            numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.get("d", ""))]
            places += zip(numbers[::2], numbers[1::2], strict=True)
    return places


def paper_places(drawing: Drawing) -> list[tuple[float, float]]:
    """Return the same by matplotlib; its own corners of steps included."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
        drawing.paint(figure, PAPER)
        figure.draw_without_rendering()
        return [
            (x, drawing.size[1] - y)
            for axes in figure.axes
            for line in axes.lines
            if line.get_linewidth() != 0.8
            for x, y in line.get_transform().transform(line.get_path().vertices)
        ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_everything_stands_where_matplotlib_puts_it(name: str) -> None:
    ours, theirs = svg_places(DRAWINGS[name]), paper_places(DRAWINGS[name])
    for some, others in ((ours, theirs), (theirs, ours)):
        for x, y in some:
            assert min(math.hypot(x - a, y - b) for a, b in others) < 0.02, (x, y)


@pytest.mark.parametrize(
    ("limits", "most", "integer", "texts"),
    [
        ((0.0, 1.0), 6, False, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((0.9, 0.5), 6, False, ["0.5", "0.6", "0.7", "0.8", "0.9"]),
        ((-3.0, 4.0), 3, False, ["\N{MINUS SIGN}2", "0", "2", "4"]),
        ((0.0, 2.2), 6, True, ["0", "1", "2"]),
        ((1e-12, 3e-12), 6, False, ["1e-12", "1.5e-12", "2e-12", "2.5e-12", "3e-12"]),
    ],
)
def test_ticks_are_few_round_numbers(limits: tuple[float, float], most: int, integer: bool, texts: list[str]) -> None:
    assert Axis(limits=limits, most=most, integer=integer).texts() == texts


def test_ticks_of_a_logarithmic_axis() -> None:
    assert Axis(limits=(0.002, 1.0), log=True).ticks() == pytest.approx([0.01, 0.1, 1.0])
    assert Axis(limits=(0.3, 3.0), log=True).ticks() == pytest.approx([0.5, 1.0, 2.0])
    assert len(Axis(limits=(1e-30, 1.0), log=True, most=6).ticks()) <= 7


def test_numbers_too_large_to_draw_are_refused() -> None:
    line = ChartLine(label="a", mean=1.7e308, low=-1.7e308, high=1.7e308)
    with pytest.raises(BadInput, match="numbers of a size that can be drawn"):
        on_page(interval_chart([line], name="c", title="t", axis="a", down=False))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 299])
def test_quantiles_of_t_are_those_of_scipy(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stdtrit(freedom, 0.975), rel=1e-12)
