"""The scoreboard: every table and figure has a row, and verdicts follow from stored results by the stated rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedxray.reproduce.base import NO_TABLE, REPRODUCTIONS, find
from fedxray.reproduce.claims import CLAIMS, Claim
from fedxray.reproduce.document import read
from fedxray.reproduce.scoreboard import PAPERS, VERDICTS, judge, page

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HAVE = {  # how many tables and figures each paper has; those of AIA and DLF with the appendices that it cites
    "dlf": (8, 3),
    "awa": (4, 4),
    "aia": (3, 4),
    "lmra": (10, 7),
    "curious": (1, 23),
}
# Further rows or networks of a table that another reproduction repeats, and finding without a table.
MORE = {"awa-settings", "dlf-networks"}


def test_every_table_and_figure_has_a_row() -> None:
    for paper, (tables, figures) in HAVE.items():
        places = " ; ".join(claim.place for claim in CLAIMS if claim.paper == paper)
        wanted = [*(f"Table {n}" for n in range(1, tables + 1)), *(f"Figure {n}" for n in range(1, figures + 1))]
        assert [place for place in wanted if not re.search(rf"{place}\b", places)] == [], paper
    assert set(HAVE) == set(PAPERS)


def test_every_reproduction_of_a_table_is_used() -> None:
    used = {claim.by for claim in CLAIMS if claim.by}
    assert used <= set(REPRODUCTIONS)
    of_papers = {name for name in REPRODUCTIONS if not find(name).paper.place.startswith(("none of", NO_TABLE))}
    assert of_papers - used == MORE
    assert all(claim.by or claim.why for claim in CLAIMS)
    assert all(claim.by.startswith(claim.paper) for claim in CLAIMS if claim.by)


def document(differences: Sequence[dict[str, Any]] = (), numbers: Sequence[str | None] = (None,)) -> dict[str, Any]:
    """A result with these differences, and one number for each place relative to the paper's (None: not printed)."""
    ours = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 6, "clients": 2, "seeds": 3}
    rows = [
        {"row": "a", "data": "adult", "column": "ours" + more, "metric": "accuracy", "ours": ours, "place": place}
        | {"paper": None if place is None else {"mean": 0.55, "spread": None}}
        for more, place in zip(["", *map(str, range(1, len(numbers)))], numbers, strict=True)
    ]
    printed = any(place is not None for place in numbers)
    return {"name": "x", "scale": "small", "rows": rows, "differences": differences, "paper": {"numbers": printed}}


def difference(side: str | None, expected: str | None = "above", **changes: Any) -> dict[str, Any]:
    low, high = {"above": (0.1, 0.3), "below": (-0.3, -0.1), "undecided": (-0.1, 0.3), None: (None, None)}[side]
    verdict = None if side is None else "holds" if side == expected else "reversed" if side != "undecided" else side
    entry = {"left": "ours", "right": "theirs", "rows": ["a", "a"], "metric": "accuracy", "mean": 0.2, "paper": None}
    return entry | {"low": low, "high": high, "side": side, "expected": expected, "verdict": verdict, **changes}


@pytest.mark.parametrize(
    ("sides", "places", "verdict"),
    [
        (["above"], [None], "holds"),
        (["above", "above"], [None], "holds"),
        (["above", "undecided"], [None], "holds in order"),
        (["above", "undecided", "undecided"], [None], "undecided"),
        (["undecided"], [None], "undecided"),
        ([None], [None], "undecided"),  # a single unit
        (["above", "below"], [None], "does not hold"),
        (["above", "above", "below"], [None], "does not hold"),
        (["above", "above", "below", "undecided"], [None], "undecided"),
        (["below"], [None], "does not hold"),
        ([], ["around", "around"], "holds"),
        ([], ["around", "below"], "undecided"),
        ([], ["above", "below"], "does not hold"),
        ([], ["too wide"], "undecided"),
        ([], ["too wide", "below"], "undecided"),
        ([], [None], "undecided"),
    ],
)
def test_verdicts_by_hand(sides: list[str | None], places: list[str | None], verdict: str) -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x", why="a reason")
    entries = [difference(side, rows=[str(row)] * 2) for row, side in enumerate(sides)]
    found = judge(claim, [document(entries, places)])
    assert found.verdict == verdict and (found.scale, found.units) == ("small", "2 x 3")
    assert found.reason.endswith("a reason") == (verdict in ("does not hold", "undecided"))


def test_numbers_that_miss_make_a_table_hold_in_order_only() -> None:
    claim, shown = Claim(paper="dlf", place="Table 1", says="More.", by="x"), difference("above", paper=0.1)
    assert judge(claim, [document([shown], ["around"])]).verdict == "holds"
    assert judge(claim, [document([shown], ["too wide"])]).verdict == "holds in order"
    missed = judge(claim, [document([shown], ["below"])])
    assert missed.verdict == "holds in order" and "0 of 1 numbers" in missed.reason
    assert missed.numbers.count("paper") == 2 and "+20.0" in missed.numbers and "50.0" in missed.numbers
    # Of a table with numbers a difference without them is not the paper's.
    assert judge(claim, [document([difference("below")], ["around"])]).verdict == "holds"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-0.04, 0.04, "holds"), (-0.04, 0.06, "undecided"), (0.06, 0.1, "does not hold")]
)
def test_no_change_is_shown_by_an_interval_within_the_margin(low: float, high: float, verdict: str) -> None:
    claim = Claim(paper="dlf", place="Table 1", says="Same.", by="x", expects=(("ours", "theirs", "same"),))
    entry = difference("undecided", expected=None, low=low, high=high)
    assert judge(claim, [document([entry])]).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-0.4, 0.04, "holds"), (-0.4, 0.06, "undecided"), (0.06, 0.1, "does not hold")]
)
@pytest.mark.parametrize("side", ["not above", "not below"])
def test_what_is_kept_or_improves_may_fall_by_the_margin_at_most(
    low: float, high: float, verdict: str, side: str
) -> None:
    claim = Claim(paper="dlf", place="Table 1", says="Kept.", by="x", expects=(("ours", "theirs", side),))
    low, high = (low, high) if side == "not above" else (-high, -low)
    entry = difference("undecided", expected=None, low=low, high=high)
    assert judge(claim, [document([entry])]).verdict == verdict


def test_claims_name_differences_that_their_reproduction_has() -> None:
    """Else a claim with `expects` would be undecided for ever."""
    for claim in (claim for claim in CLAIMS if claim.expects and claim.paper == "lmra"):
        differences = find(claim.by).differences
        pairs = {one.rows or (one.left, one.right) for one in differences}
        assert {(left, right) for left, right, _ in claim.expects} & pairs, claim.place


@pytest.mark.parametrize(("low", "high", "verdict"), [(-0.01, 0.02, "does not hold"), (-0.01, 0.06, "undecided")])
def test_an_order_is_absent_where_nothing_near_the_published_difference_is_possible(
    low: float, high: float, verdict: str
) -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x")
    entry = difference("undecided", low=low, high=high, paper=0.1)
    assert judge(claim, [document([entry], ["around"])]).verdict == verdict
    near = difference("undecided", low=low, high=high, paper=0.015)
    assert judge(claim, [document([near], ["around"])]).verdict == "undecided"


def test_only_what_a_claim_names_counts() -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x", only=("ours",), rows=("b",), metrics=("psnr",))
    assert judge(claim, [document()]).verdict == "not measured yet"
    assert judge(Claim(paper="dlf", place="Table 1", says="More.", by="y"), [document()]).verdict == "not measured yet"
    assert judge(Claim(paper="dlf", place="Table 1", says="Drawn.", why="a drawing"), []).verdict == "not testable here"


def test_of_an_order_in_several_documents_that_with_the_most_units_counts() -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x")
    many, one = difference("above", n=6), difference(None, n=1)
    for entries in ((many, one), (one, many)):
        assert judge(claim, [document([entry]) for entry in entries]).verdict == "holds"
    other = {**one, "metric": "auc"}
    assert "1 of 2 orders" in judge(claim, [document([many]), document([other])]).reason


def test_of_a_number_in_several_documents_that_with_the_most_units_counts() -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x")
    few, many = document(numbers=["outside"]), document(numbers=["around"])
    many["rows"][0]["ours"] = {**many["rows"][0]["ours"], "n": 7}
    for documents in ([few, many], [many, few]):
        assert judge(claim, documents).reason == "1 of 1 numbers within our interval"


def test_of_a_table_with_numbers_a_claim_may_name_further_orders() -> None:
    results = [document([difference("above")], ["around"])]
    plain = Claim(paper="dlf", place="Table 1", says="More.", by="x")
    named = Claim(paper="dlf", place="Table 1", says="More.", by="x", expects=(("ours", "theirs", "above"),))
    assert "orders" not in judge(plain, results).reason and "1 of 1 orders" in judge(named, results).reason


def test_a_search_that_lowers_the_loss() -> None:
    claim = Claim(paper="awa", place="Figure 1", says="Falls.", by="x", searched=True)
    one = {"row": "a", "column": "ours", "seed": 0, "client": 0, "loss": 1.0, "loss_of_starts": 2.0}
    assert judge(claim, [document() | {"searches": [one, one]}]).verdict == "holds"
    assert judge(claim, [document() | {"searches": [{**one, "loss": 2.0}]}]).verdict == "does not hold"


def test_the_page_counts_its_rows_and_shows_stored_numbers() -> None:
    text = page([read(path) for path in sorted(RESULTS.glob("*.json"))])
    counts = [int(number) for number, _ in re.findall(rf"(\d+) ({'|'.join(VERDICTS)})\b", text.splitlines()[2])]
    assert len(counts) == len(VERDICTS) and sum(counts) == len(CLAIMS) == int(text.splitlines()[2].split()[0])
    for verdict, count in zip(VERDICTS, counts, strict=True):
        assert text.count(f"**{verdict}**") == count


def test_a_stand_in_counts_only_until_its_real_data_set_is_measured() -> None:
    claim = Claim(paper="dlf", place="Table 1", says="More.", by="x")
    stand_in, real = document([difference("below")]), document([difference("above")])
    for content, data in ((stand_in, "femnist-like"), (real, "femnist")):
        content["rows"] = [row | {"data": data} for row in content["rows"]]
    assert judge(claim, [stand_in]).verdict == "does not hold"
    assert judge(claim, [stand_in, real]).verdict == judge(claim, [real]).verdict == "holds"
