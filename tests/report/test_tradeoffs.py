"""Leakage against utility: which points nothing beats, which attacker counts, and what the picture holds."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, strategies as st

from fedxray.report import setup
from fedxray.report.attacks import frontier, tradeoffs
from fedxray.report.charts import SVG, Point, on_page, scatter_chart
from tests.report.synthetic import make_document

HOSTILE = "</text><script>alert(1)</script>&<!-- $\\frac$]]>\x00\n\u202e 漢字 🙂"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_frontier_is_what_no_other_point_beats(values: list[tuple[int, int]]) -> None:
    found = frontier(values)
    assert any(found)
    for one, best in zip(values, found, strict=True):
        beaten = any(x >= one[0] and y >= one[1] and (x > one[0] or y > one[1]) for x, y in values)
        assert best is not beaten


def test_every_attack_has_a_picture_with_all_of_its_defences() -> None:
    found = tradeoffs(make_document())
    titles = [one.title for one in found]
    assert titles and len(set(titles)) == len(titles) and not any("oracle" in title for title in titles)
    for one in found:
        assert [line["mark"] for line in one.lines] == ["A", "B", "C"] and one.more == 0
        assert [line["defence"] for line in one.lines] == ["no defence", "gaussian-noise", "dp-sgd"]
        assert [line["epsilon"] for line in one.lines] == [None, None, "10"]
        assert all(line["frontier"] for line in one.lines)  # each costs more and leaks less than the one before


def test_the_stronger_attacker_counts() -> None:
    document = make_document()
    rows = [row for row in document["summary"] if row["attack"] == "membership-loss" and row["metric"] == "auc"]
    for row in rows:
        if row["defence"] == "dp-sgd":
            row.update({"difference": 0.3 if row["aware"] else 0.1, "low": 0.05, "high": 0.35})
    picture = next(one for one in tradeoffs(document) if one.title.startswith("membership-loss"))
    line = picture.lines[2]
    assert line["gain"].startswith("+0.300") and line["aware"] == "attacker knows the defence" and not line["frontier"]


def test_the_table_states_which_utility_is_better() -> None:
    document = make_document()
    assert {one.measure for one in tradeoffs(document)} == {"accuracy, more is better"}
    losses = {**document, "utility": [{**row, "metric": "loss"} for row in document["utility"]]}
    assert {one.measure for one in tradeoffs(losses)} == {"loss, less is better"}


def test_one_defence_or_no_utility_makes_no_picture() -> None:
    document = make_document()
    alone = {**document, "summary": [row for row in document["summary"] if row["defence"] == "none"]}
    assert tradeoffs(alone) == []
    assert tradeoffs({**document, "utility": []}) == []
    unknown = copy.deepcopy(document)
    for row in unknown["utility"]:
        row["value"] = None
    assert tradeoffs(unknown) == []


def test_of_many_points_the_first_are_shown_and_the_rest_counted() -> None:
    document = make_document()
    row, worth = document["summary"][0], document["utility"][0]
    many = {
        **document,
        "summary": [{**row, "defence": f"noise[{k}]"} for k in range(30)],
        "utility": [{**worth, "defence": f"noise[{k}]"} for k in range(30)],
    }
    (picture,) = tradeoffs(many)
    assert len(picture.lines) == 26 and picture.more == 4


def points(**more: Any) -> list[Point]:
    first = Point(mark="A", label="no defence", across=(0.9, 0.8, 1.0), up=(0.3, 0.2, 0.4), frontier=True, state="open")
    return [
        first,
        Point(
            **{"mark": "B", "label": "b", "across": (0.7, None, None), "up": (0.1, None, None), "state": "open", **more}
        ),
    ]


def draw(*given: Point, reverse: bool = False) -> str:
    return on_page(scatter_chart(given, name="t", title="title", across="accuracy", up="auc", reverse=reverse))


def dots(svg: str) -> list[float]:
    """Where the marks stand, in points from the left."""
    uses = [use for use in ET.fromstring(svg).iter(f"{{{SVG}}}use") if "--open" in use.get("style", "")]
    return [float(use.get("x", "nan")) for use in uses]


def test_right_is_always_better() -> None:
    first, second = dots(draw(*points()))
    assert first > second
    first, second = dots(draw(*points(), reverse=True))
    assert first < second


def test_it_is_described_and_the_same_each_time() -> None:
    svg = draw(*points())
    assert svg == draw(*points())
    described = ET.fromstring(svg).find(f"{{{SVG}}}desc")
    assert described is not None and described.text == (
        "A no defence: utility 0.900, gain 0.300, on the frontier. B b: utility 0.700, gain 0.100."
    )


def test_no_name_can_break_the_picture() -> None:
    svg = draw(*points(mark=HOSTILE, label=HOSTILE))
    ET.fromstring(svg)
    assert "<script" not in svg


def test_the_page_states_delta_and_accountant() -> None:
    document = make_document()
    document["utility"][2]["privacy"] = "delta 1e-05, accountant prv"
    assert setup.privacy(document) == [("dp-sgd", "delta 1e-05, accountant prv")]


def test_the_ledger_names_the_largest_budget_that_was_spent() -> None:
    document = make_document()
    for case in document["cases"]:
        if case["defence"] == "dp-sgd":
            case["ledger"]["privacy"] = {"epsilon": 3.0 + case["client"]}
    lines = {line["attack"]: line["spent"] for line in setup.ledger(document)}
    assert lines["membership-loss"] == {"dp-sgd": 4.0} and lines["local-model-oracle"] == {}
