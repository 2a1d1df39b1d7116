"""Our numbers relative to published ones, and whether the order that a paper found holds."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedxray.reproduce.base import REPRODUCTIONS, Difference, Number, Paper, Reproduction, TableColumn, Unit, find
from fedxray.reproduce.document import (
    Cell,
    _numbers,
    _side,
    _verdict,
    cells_of_audit,
    costs_of_audit,
    differences,
    document,
    place,
    read,
    validate,
)
from fedxray.reproduce.pages import COMPARISONS, DIFFERENCES, NUMBERS, answer, markdown, print_tables, sheets

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize(
    ("side", "expected", "verdict"),
    [
        ("above", "above", "holds"),
        ("below", "below", "holds"),
        ("above", "below", "reversed"),
        ("below", "above", "reversed"),
        ("undecided", "above", "undecided"),
        ("undecided", "below", "undecided"),
        ("above", None, None),
        ("undecided", None, None),
        (None, "above", None),
        (None, None, None),
    ],
)
def test_verdicts(side: str | None, expected: str | None, verdict: str | None) -> None:
    assert _verdict(side, expected) == verdict


@pytest.mark.parametrize(
    ("gap", "side"),
    [
        (0.1, "above"),
        (-0.1, "below"),
        (1e-3, "above"),
        (-1e-3, "below"),
        (0.0, None),
        (0.423 - 0.423, None),
        (0.3 - 0.1 - 0.2, None),  # equal but for rounding
        (0.1 + 0.2 - 0.3, None),
    ],
)
def test_the_order_of_two_published_numbers(gap: float, side: str | None) -> None:
    assert _side(gap) == side


@pytest.mark.parametrize(
    ("low", "high", "number", "where"),
    [
        (0.4, 0.6, 0.5, "around"),
        (0.4, 0.6, 0.4, "around"),
        (0.4, 0.6, 0.6, "around"),
        (0.4, 0.6, 0.61, "below"),
        (0.4, 0.6, 0.39, "above"),
        (0.4, 0.6, (0.61, 0.5), "below"),  # a spread over clients is no interval of the mean
        (0.4, 0.6, (0.5, 0.01), "around"),
        (-0.6, -0.4, -0.7, "above"),
        (0.4, 0.6, 0.0, "above"),
        (None, None, 0.5, None),
        (0.4, 0.6, None, None),
    ],
)
def test_the_position_of_our_interval(
    low: float | None, high: float | None, number: Number | None, where: str | None
) -> None:
    assert place({"low": low, "high": high, "n": 3}, number, "accuracy", []) == where


@pytest.mark.parametrize(
    ("n", "low", "high", "floors", "where"),
    [
        (3, 0.4, 0.8, [0.3], "around"),
        (2, 0.4, 0.8, [0.3], "too wide"),  # two values
        (2, 0.61, 0.8, [0.3], "above"),  # a number outside is outside also of a wide interval
        (9, 0.4, 0.8, [0.3, 0.5], "too wide"),  # as near to no leak at all as to the paper's number
        (9, 0.4, 0.8, [None], "around"),
        (9, 0.56, 0.64, [0.58], "around"),  # contains the floor, within one margin of 5 points
    ],
)
def test_an_interval_that_says_nothing_confirms_nothing(
    n: int, low: float, high: float, floors: list[float | None], where: str
) -> None:
    assert place({"low": low, "high": high, "n": n}, 0.6, "accuracy", floors) == where


def test_sentences_do_not_count_intervals_that_are_too_wide() -> None:
    row = {"row": "r", "column": "c", "metric": "accuracy", "paper": {"mean": 0.6}, "ours": {"mean": 0.55}}
    (line,) = _numbers([{**row, "place": "around"}, {**row, "place": "too wide"}, {**row, "place": "below"}])
    assert "1 of 3 published numbers inside our interval, 1 inside one too wide to confirm it;" in line
    (line,) = _numbers([{**row, "place": "around"}])
    assert "1 of 1 published number inside our interval; fedxray minus paper" in line


def test_the_answer_comes_first_and_rows_that_are_numbers_say_of_what() -> None:
    content = read(RESULTS / "aia-regression-table1.json")
    first = (
        "Answer: 2 of 20 published numbers inside our interval; the paper's order holds in 12, undecided in 2 of 14 "
    )
    assert answer(content) == first + "comparisons."
    console = Console(width=200, file=io.StringIO(), color_system=None)
    print_tables(content, console)
    assert console.file.getvalue().startswith(first)  # type: ignore[attr-defined]
    assert markdown(content).splitlines()[2].startswith(first)
    assert answer(read(RESULTS / "awa-landscape.json")) == "Answer: nothing to compare with the paper."
    rows = [{**row, "place": "too wide"} for row in content["rows"][:2]]
    assert "0 of 2 published numbers inside our interval; 2 inside one too wide to confirm it;" in answer(
        {**content, "rows": rows}
    )
    assert sheets(content)[0].head[0] == "row" and sheets({**content, "row_is": "x"})[0].head[0] == "row (x)"
    for name in REPRODUCTIONS:
        reproduction = find(name)
        assert reproduction.row_is or not reproduction.rows[0].replace(".", "").isdigit(), name


def test_headings_name_both_sides() -> None:
    assert all("fedxray" in head and "ours" not in " ".join(head) for head in (NUMBERS, DIFFERENCES, COMPARISONS))
    assert "paper" in NUMBERS and "paper" in DIFFERENCES


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_names_do_not_break_at_80_columns(path: Path) -> None:
    content = read(path)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    print_tables(content, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, printed.splitlines())) <= 80
    spoken = set(printed.split())
    for sheet in sheets(content):
        names = {word for line in sheet.lines for cell in line[:3] for word in cell.split()}
        assert {name for name in names if name not in spoken and f"{name}," not in spoken} == set()


def compared(
    left: list[float], right: list[float], numbers: tuple[Number | None, Number | None], expected: Any
) -> dict[str, Any]:
    """Return the difference of two columns with these values of clients 0, 1, ... and published numbers."""
    columns = tuple(TableColumn(attack=name, metric="psnr") for name in ("a", "b"))
    reproduction = Reproduction(
        name="x",
        shows="Nothing.",
        paper=Paper(title="t", place="p"),
        rows=("r",),
        columns=columns,
        differences=(Difference(left="a", right="b", expected=expected),),
        plan=lambda request, row: {},
    )
    cells = [
        Cell(
            row="r",
            column=column,
            units=tuple(Unit(seed=0, client=client, value=value) for client, value in enumerate(values)),
            paper=number,
        )
        for column, values, number in zip(columns, (left, right), numbers, strict=True)
    ]
    (difference,) = differences(reproduction, cells)
    return difference


HIGH, LOW, WILD = [5.0, 5.1, 4.9], [1.0, 1.2, 0.9], [0.0, 5.0, 9.0]


@pytest.mark.parametrize(
    ("left", "right", "numbers", "expected", "outcome"),
    [
        (HIGH, LOW, (None, None), "above", ("above", "above", "holds")),
        (HIGH, LOW, (None, None), "below", ("above", "below", "reversed")),
        (LOW, HIGH, (None, None), "above", ("below", "above", "reversed")),
        (HIGH, LOW, (0.6, 0.5), "above", ("above", "above", "holds")),
        # In this row the published numbers themselves are the other way round, or equal.
        (HIGH, LOW, (0.5, 0.6), "above", ("above", "below", "reversed")),
        (LOW, HIGH, (0.5, 0.6), "above", ("below", "below", "holds")),
        (HIGH, LOW, (0.5, 0.5), "above", ("above", None, None)),
        (HIGH, LOW, ((0.6, 0.1), 0.6), "above", ("above", None, None)),
        (HIGH, WILD, (0.6, 0.5), "above", ("undecided", "above", "undecided")),
        (HIGH, LOW, (0.6, 0.5), None, ("above", None, None)),
        (HIGH, LOW, (0.6, None), "below", ("above", "below", "reversed")),
        (HIGH[:1], LOW[:1], (0.6, 0.5), "above", (None, "above", None)),
    ],
)
def test_differences_beside_the_published_ones(
    left: list[float], right: list[float], numbers: Any, expected: Any, outcome: tuple[str | None, ...]
) -> None:
    difference = compared(left, right, numbers, expected)
    assert (difference["side"], difference["expected"], difference["verdict"]) == outcome
    assert difference["n"] == len(left) and difference["mean"] == pytest.approx((sum(left) - sum(right)) / len(left))


def test_only_clients_that_both_sides_have_are_compared() -> None:
    assert compared(HIGH, LOW[:2], (None, None), "above")["n"] == 2


def test_utility_is_listed_where_there_are_several_defences() -> None:
    plain = {"metric": "accuracy", "value": 0.8, "low": None, "high": None, "n": 1, "epsilon": None}
    private = plain | {"value": 0.7, "low": 0.6, "high": 0.8, "epsilon": 9.21, "privacy": "delta 1e-05"}
    utility = [{"defence": "none", **plain}, {"defence": "dp-sgd", **private}]
    assert costs_of_audit("leaf", {"utility": utility[:1]}) == []
    costs = costs_of_audit("leaf", {"utility": utility})
    assert [one["row"] for one in costs] == ["leaf", "leaf"] and "privacy" not in costs[1]
    past = {"command": "fedxray reproduce x", "commit": None, "seconds": 1.0}
    reproduction = find("lmra-table10")
    content = document(reproduction, "small", [], past, costs)
    validate(content)
    sheet = next(one for one in sheets(content) if one.title == "Utility under the defences")
    assert sheet.lines[0] == ("leaf", "none", "accuracy", "80.0\u00a0%", "no interval", "1", "–")
    assert sheet.lines[1][3:] == ("70.0\u00a0%", "60.0 to 80.0\u00a0%", "1", "9.2")
    without = document(reproduction, "small", [], past)
    assert "costs" not in without and all(one.title != sheet.title for one in sheets(without))


def test_only_scores_of_own_records_are_read_from_the_ledger() -> None:
    reproduction = find("curious-unknown-lr")
    case = {
        "attack": "images-x1", "defence": "none", "aware": None, "seed": 0, "client": None, "status": "ok",
        "ledger": {"own_psnr": 22.5, "retrieval": 0.1}, "scores": {"retrieval": 1.0, "own_psnr": 3.0},
        "floors": {}, "seconds": 1.0,
    }  # fmt: skip
    cells = cells_of_audit(reproduction, "ridge", {"cases": [case], "summary": [], "plan": {"data": {}}})
    assert {one.column.metric: one.units[0].value for one in cells} == {"own_psnr": 22.5, "retrieval": 1.0}


def test_a_number_printed_once_is_not_compared_between_rows() -> None:
    reproduction = find("awa-settings")
    column = next(one for one in reproduction.columns if (one.name, one.metric) == ("awa", "psnr_awa"))
    cells = [
        Cell(row=row, column=column, units=(Unit(seed=0, client=0, value=value),), paper=22.4)
        for row, value in (("running", 15.0), ("batch", 8.0))
    ]
    (difference,) = differences(reproduction, cells)
    assert (difference["mean"], difference["paper"], difference["rows"]) == (7.0, None, ["running", "batch"])
    several = replace(reproduction, paper=replace(reproduction.paper, once=False))
    assert differences(several, cells)[0]["paper"] == 0
