"""Every registered reproduction is consistent, and its plans are valid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedxray.audit.run.grid import expand
from fedxray.metrics.table import metric
from fedxray.reproduce.base import (
    NO_TABLE,
    REPRODUCTIONS,
    Difference,
    Paper,
    Reproduction,
    Request,
    TableColumn,
    columns_of,
    find,
)
from fedxray.reproduce.document import OF_OWN_RECORDS, sentences
from fedxray.reproduce.run import job

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_a_registered_reproduction_is_complete(name: str) -> None:
    reproduction = find(name)
    assert reproduction.name == name
    assert reproduction.shows.endswith(".") and reproduction.paper.title and reproduction.paper.place
    without = reproduction.paper.place == NO_TABLE or "Appendix" in reproduction.paper.place
    assert reproduction.paper.numbers or reproduction.paper.trend or without
    empty = {"rows": [], "differences": [], "scale": "paper", "paper": {"clients": None}}
    text = " ".join(sentences(reproduction, empty))
    assert ("The paper has no such table" in text) is (reproduction.paper.place == NO_TABLE)
    for row, columns in reproduction.paper.numbers.items():
        for title, numbers in columns.items():
            known = {column.metric for column in reproduction.columns if column.name == title}
            assert set(numbers) <= known, (row, title)
    if reproduction.plan is not None:  # what is measured directly may have metrics of its own
        assert all(column.metric in OF_OWN_RECORDS or metric(column.metric) for column in reproduction.columns)


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_the_plans_of_all_rows_are_valid(name: str, scale: str) -> None:
    reproduction = find(name)
    if reproduction.plan is None:
        return
    plans = job(name, Request(scale=scale), reproduction.rows).plans()
    assert tuple(plans) == reproduction.rows
    labels = {part.title for plan in plans.values() for part in plan.attacks}
    assert {column.attack for column in reproduction.columns} == labels, "each column is measured in some row"
    for plan in plans.values():
        assert expand(plan)[1]
        assert {column.defence for column in reproduction.columns} <= {part.title for part in plan.defences}


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_clients_and_seeds_are_those_asked_for(name: str) -> None:
    reproduction = find(name)
    if reproduction.plan is None:
        return
    one, more = (
        job(name, Request(clients=1, seeds=count), reproduction.rows[:1]).plans()[reproduction.rows[0]]
        for count in (1, 2)
    )
    assert one.seeds == [0] and more.seeds == [0, 1]
    assert len(expand(more)[1]) == 2 * len(expand(one)[1])


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_controls_can_be_left_out(name: str) -> None:
    reproduction = find(name)
    if reproduction.plan is None:
        return
    asked = job(name, Request(controls=False), reproduction.rows[:1])
    assert asked.command().endswith(" --no-controls")
    for plan in asked.plans().values():
        assert all(part.controls is not None and not part.controls for part in plan.attacks)


def test_a_restored_column_alone_keeps_its_attack() -> None:
    (plan,) = job("curious-restoration", Request(), ("cifar10-2",), ("raw+ddrm",)).plans().values()
    assert "raw+ddrm" in {part.title for part in plan.attacks}


def test_listing_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom fedxray.reproduce.base import REPRODUCTIONS, find\n"
        "for name in REPRODUCTIONS: find(name)\nassert 'torch' not in sys.modules\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr


def make(**changes: object) -> Reproduction:
    given = {
        "name": "x",
        "shows": "Nothing.",
        "paper": Paper(title="t", place="p"),
        "rows": ("a",),
        "columns": columns_of({"dlf": "Ours"}, ("psnr",)),
        "plan": lambda request, row: {},
    }
    return Reproduction(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": None},
        {"measure": lambda request, row: []},
        {"rows": ("a/b",)},
        {"rows": ("a", "a")},
        {"small_rows": ("b",)},
        {"differences": (Difference(left="dlf", right="other"),)},
        {"differences": (Difference(left="dlf", right="dlf", rows=("a", "b")),)},
        {"paper": Paper(title="t", place="p", numbers={"b": {}})},
        {"paper": Paper(title="t", place="p", numbers={"a": {"other": {"psnr": 1.0}}})},
    ],
)
def test_an_inconsistent_description_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="x:"):
        make(**changes)


def test_a_column_may_have_a_title_of_its_own() -> None:
    reproduction = make(columns=(TableColumn(attack="dlf", metric="psnr", title="best"),))
    assert [column.attack for column in reproduction.chosen_columns(("best",))] == ["dlf"]


def test_numbers_of_clients_and_seeds() -> None:
    assert Request().pick_clients(small=2, paper=100) == 2
    assert Request(scale="paper").pick_clients(small=2, paper=100, most=50) == 50
    assert Request(clients=7).pick_clients(small=2, paper=100, most=50) == 7
    assert Request(scale="paper").pick_seeds(small=1, paper=3) == [0, 1, 2]
