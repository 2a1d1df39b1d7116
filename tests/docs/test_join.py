"""Results that were measured apart: numbers are copied, differences are those of one measurement."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from fedxray.errors import BadInput
from fedxray.reproduce.base import Unit, find
from fedxray.reproduce.document import Cell, document

joined = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "join.py"))["joined"]
REPRODUCTION = find("awa-table4")
VALUES = {("case1", "awa"): (16.0, 18.0, 17.0), ("case1", "dlg"): (8.0, 9.0, 8.5), ("case2", "awa"): (15.0, 14.0, 13.0)}


def part(*places: tuple[str, str], commit: str | None = "c1", **changed: Any) -> dict[str, Any]:
    cells = [
        Cell(
            row=row,
            column=next(one for one in REPRODUCTION.columns if (one.name, one.metric) == (name, "psnr_awa")),
            units=tuple(Unit(seed=0, client=client, value=value) for client, value in enumerate(VALUES[row, name])),
            paper=REPRODUCTION.paper.numbers[row].get(name, {}).get("psnr_awa"),
        )
        for row, name in places
    ]
    past = {"command": f"fedxray reproduce {places}", "commit": commit, "seconds": 2.0}
    return {**document(REPRODUCTION, "paper", cells, past), **changed}


def test_joined_parts_equal_one_measurement() -> None:
    together = part(*VALUES)
    apart = joined(REPRODUCTION, [part(("case2", "awa")), part(("case1", "dlg"), commit="c2"), part(("case1", "awa"))])
    for key in ("rows", "differences", "sentences", "paper", "name"):
        assert apart[key] == together[key], key
    (pair,) = [one for one in apart["differences"] if (one["left"], one["right"]) == ("awa", "dlg")]
    assert pair["rows"] == ["case1", "case1"] and pair["mean"] == pytest.approx(8.5) and pair["n"] == 3
    assert apart["commit"] == "c1, c2" and apart["seconds"] == 6.0 and apart["command"].count(" && ") == 2


def test_a_number_may_be_in_several_parts_with_equal_values_only() -> None:
    twice = joined(REPRODUCTION, [part(("case1", "awa")), part(("case1", "awa"), ("case1", "dlg"))])
    assert [one["column"] for one in twice["rows"]] == ["awa", "dlg"]
    changed = part(("case1", "awa"))
    changed["rows"][0]["units"][0]["value"] = 3.0
    with pytest.raises(BadInput, match=r"awa \(psnr_awa\) in case1 with other values"):
        joined(REPRODUCTION, [part(("case1", "awa")), changed])


def test_joining_a_part_again_changes_nothing() -> None:
    once = joined(REPRODUCTION, [part(("case1", "awa")), part(("case1", "dlg"), commit="c2")])
    assert joined(REPRODUCTION, [once, part(("case1", "dlg"), commit="c2")]) == once


@pytest.mark.parametrize("key", ["name", "scale"])
def test_other_tables_and_scales_are_refused(key: str) -> None:
    with pytest.raises(BadInput, match="documents of one reproduction"):
        joined(REPRODUCTION, [part(("case1", "awa")), part(("case1", "dlg"), **{key: "small"})])


def test_a_number_that_the_table_no_longer_has_is_refused() -> None:
    old = part(("case1", "awa"))
    old["rows"][0]["column"] = "awa-of-old"
    with pytest.raises(BadInput, match="a row and a column of the table"):
        joined(REPRODUCTION, [old])


def test_results_of_searches_are_kept() -> None:
    search = {"row": "case1", "column": "awa", "seed": 0, "client": 0, "quantity": "q_conv", "found": 1.0, "true": None}
    search |= {"low": 1.0, "high": 2.0, "nearly": 1, "trials": 3}
    content = joined(REPRODUCTION, [part(("case1", "awa")), part(("case1", "dlg"), searches=[search], commit=None)])
    assert content["searches"] == [search] and content["commit"] == "c1" and "costs" not in content
