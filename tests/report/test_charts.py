"""Charts: what stands in the SVG, and what never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from fedxray.report.charts import (
    MARK,
    PAPER,
    SETTINGS,
    SVG,
    ChartLine,
    Point,
    _at_least,
    interval_chart,
    metric_chart,
    on_page,
    scatter_chart,
)

HOSTILE = "</text><script>alert(1)</script>&<!-- $\\frac$]]>\x00\n\u202e 漢字 🙂"
LINE = ChartLine(
    label="none", mean=0.9, low=0.85, high=0.95, floor=0.5, ceiling=1.0, controls={"held-out": 0.7}, state="leaks"
)


def draw(
    *lines: ChartLine, name: str = "c", down: bool = False, title: str = "accuracy", axis: str = "accuracy"
) -> str:
    return on_page(interval_chart(lines, name=name, title=title, axis=axis, down=down))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{{{SVG}}}text")]


def place_of_mean(svg: str) -> float:
    """Where the mean of a leaking line stands, in points from the left."""
    marks = [
        float(use.get("x", "nan"))
        for group in ET.fromstring(svg).iter(f"{{{SVG}}}g")
        for use in group.findall(f"{{{SVG}}}use")
        if "--leaks" in use.get("style", "")
    ]
    assert len(marks) == 1
    return marks[0]


def test_the_same_chart_is_the_same_text() -> None:
    assert draw(LINE) == draw(LINE)


def test_it_has_a_title_a_description_and_the_colours_of_the_page() -> None:
    root = ET.fromstring(draw(LINE, name="a"))
    assert root.get("role") == "img" and root.get("aria-labelledby") == "a-title a-description"
    described = root.find(f"{{{SVG}}}desc")
    assert described is not None and described.text == (
        "none: mean 0.900, interval 0.850 to 0.950, floor 0.500, control held-out 0.700, leaks."
    )
    svg = draw(LINE)
    assert "var(--leaks)" in svg and "var(--band)" in svg
    for number in range(1, 9):
        assert f"#0{number}0{number}0{number}" not in svg


def test_an_interval_ends_where_its_metric_does() -> None:
    line = replace(LINE, mean=0.002, low=-0.003, high=0.007)
    described = [metric_chart([line], metric, name="c", title="t").description for metric in ("mse", "psnr")]
    assert "interval 0.000 to 0.007" in described[0] and "interval -0.003 to 0.007" in described[1]


def test_a_number_at_the_end_of_the_axis_is_not_cut_off() -> None:
    drawing = interval_chart([LINE], name="c", title="t", axis="a", down=False, bounded=True, percent=True)
    with rc_context(SETTINGS):
        figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
        drawing.paint(figure, PAPER)
        figure.draw_without_rendering()
    (last,) = [one for one in figure.axes[0].get_xticklabels() if one.get_text().startswith("100")]
    assert last.get_window_extent().x1 <= drawing.size[0]


def test_ids_are_the_charts_own_and_every_reference_leads_somewhere() -> None:
    both = [ET.fromstring(draw(LINE, name=name)) for name in ("a", "b")]
    ids = [{e.get("id") for e in root.iter() if e.get("id")} for root in both]
    assert not ids[0] & ids[1]
    for root, own in zip(both, ids, strict=True):
        links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
        assert links and {link.removeprefix("#") for link in links} <= own


@pytest.mark.parametrize("down", [False, True])
def test_further_right_leaks_more(down: bool) -> None:
    values = {"mean": 0.2, "low": 0.15, "high": 0.25, "floor": 0.8, "ceiling": 0.0}
    turned = values if down else {key: 1 - value for key, value in values.items()}
    svg = draw(ChartLine(label="x", state="leaks", **turned), down=down)  # type: ignore[arg-type]
    assert place_of_mean(svg) > 220, "the mean stands right of the middle"


def test_hostile_names_stay_text() -> None:
    svg = draw(ChartLine(label=HOSTILE, mean=1.0, low=None, high=None), title=HOSTILE, axis=HOSTILE)
    root = ET.fromstring(svg)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "g", "path", "use", "defs", "clipPath", "rect", "text"}
    assert "<script" not in svg and "\x00" not in svg and "\u202e" not in svg
    assert any("<script>alert(1)</script>" in text and "漢字 🙂" in text for text in texts(svg))


def test_long_labels_are_cut_and_missing_numbers_are_left_out() -> None:
    shown = texts(draw(ChartLine(label="x" * 500, mean=None, low=None, high=None)))
    assert any(text.startswith("xxx") and len(text) <= 62 for text in shown)


def ticks(svg: str) -> list[float]:
    """The numbers on the axis."""
    shown = [text.replace("%", "").strip() for text in texts(svg)]
    return [float(text) for text in shown if text.replace(".", "").isdigit()]


def test_a_share_keeps_within_its_ends_and_small_differences_look_small() -> None:
    near = ChartLine(label="x", mean=0.98, low=0.955, high=1.005, floor=0.96, least=1.01)
    settings: dict[str, Any] = {"down": False, "bounded": True, "percent": True}
    svg = on_page(interval_chart([near], name="c", title="t", axis="accuracy", **settings))
    assert min(ticks(svg)) >= 75 and max(ticks(svg)) == 100
    assert max(ticks(svg)) - min(ticks(svg)) >= 20 and any(text.endswith("%") for text in texts(svg))
    assert "interval 95.5 % to 100.0 %" in svg and "a leak starts" not in svg
    free = draw(near)
    assert "interval 0.955 to 1.005" in free and "a leak starts at 1.010" in free


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_the_axis_of_a_share_spans_a_quarter_and_ends_at_0_and_1(place: float) -> None:
    low, high = _at_least(place - 0.01, place + 0.01)
    assert 0 <= low <= place <= high <= 1 and high - low == pytest.approx(0.25)
    assert _at_least(-0.05, 1.05) == (0.0, 1.0)


def test_the_start_of_a_leak_is_a_dashed_line() -> None:
    assert "stroke-dasharray" in draw(ChartLine(label="x", mean=0.5, low=0.4, high=0.6, floor=0.4, least=0.45))
    assert "stroke-dasharray" not in draw(LINE)


def test_equal_numbers_still_have_an_axis() -> None:
    assert draw(ChartLine(label="x", mean=0.0, low=0.0, high=0.0, floor=0.0))
    assert draw(ChartLine(label="x", mean=5.0, low=5.0, high=5.0), down=True)


def test_marks_of_equal_points_stand_beside_one_another() -> None:
    places = [((0.12, None, None), (0.40, None, None)), ((0.15, None, None), (0.0, None, None))]
    points = [
        Point(mark=mark, label=mark, state="leaks", across=across, up=up, frontier=True)
        for mark, (across, up) in zip("ABC", (*places, places[0]), strict=True)
    ]
    drawing = scatter_chart(points, name="x", title="x", across="a", up="b")
    with rc_context(SETTINGS):
        figure = Figure()
        drawing.paint(figure, PAPER)
    offsets = {text.get_text(): text.xyann[0] for text in figure.axes[0].texts}
    assert offsets == {"@0": 6.0, "@1": 6.0, "@2": 6.0 + MARK}


@pytest.mark.parametrize("mean", [1e-6, 53.0, 1e7])
def test_numbers_of_an_axis_need_no_offset(mean: float) -> None:
    line = ChartLine(label="a", mean=mean, low=mean, high=mean * (1 + 1e-7))
    numbers = [
        text for text in texts(draw(line, line)) if text not in ("a", "accuracy \N{RIGHTWARDS ARROW} more leakage")
    ]
    assert all("e" not in text and "+" not in text for text in numbers)
    assert all(abs(float(text.replace("\N{MINUS SIGN}", "-")) / mean - 1) < 0.05 for text in numbers)


def test_rounding_errors_are_drawn_as_equal() -> None:
    points = [Point(mark=str(place), label="p", across=(0.95 + 1e-9 * place, None, None), up=(3.0, None, None))
              for place in (0, 1)]  # fmt: skip
    chart, figure = scatter_chart(points, name="s", title="t", across="x", up="y"), Figure()
    with rc_context(SETTINGS):
        chart.paint(figure, PAPER)
    (axes,) = figure.axes
    left, right = axes.get_xlim()
    assert right - left > 0.01
