"""Small audits report to the last bit what tests/golden holds; `python scripts/golden.py` writes and checks it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

GOLDEN: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scripts" / "golden.py"))
QUICK = ("curious-client", "awa-search", "flower")
REWRITE = "If that is meant: python scripts/golden.py write"


@pytest.fixture(scope="module")
def same_environment() -> None:
    """Skip where the processor or the libraries are others: bits may differ there."""
    elsewhere = list(GOLDEN["differences"](GOLDEN["read"](GOLDEN["ENVIRONMENT"]), GOLDEN["environment"]()))
    if elsewhere:
        pytest.skip(f"golden results were written in another environment: {'; '.join(elsewhere)}")


def compare(name: str) -> None:
    """Fail with the first differing place."""
    audit = GOLDEN["AUDITS"][name]
    present = GOLDEN["run_audit"](audit).results
    found = list(GOLDEN["differences"](GOLDEN["read"](audit.result_file()), present))
    assert not found, f"{name} differs in {len(found)} places, first {found[0]}. {REWRITE} {audit.stored}"


@pytest.mark.usefixtures("same_environment")
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_audit_reports_the_same_bits(name: str) -> None:
    compare(name)


@pytest.mark.slow
@pytest.mark.usefixtures("same_environment")
@pytest.mark.parametrize("name", [name for name in GOLDEN["AUDITS"] if name not in QUICK])
def test_every_other_audit_reports_the_same_bits(name: str) -> None:
    compare(name)


def test_every_audit_has_stored_results_without_times_and_versions() -> None:
    for audit in GOLDEN["AUDITS"].values():
        stored = GOLDEN["read"](audit.result_file())
        assert stored["cases"] and audit.plan_file().is_file()
        assert GOLDEN["without"](stored, GOLDEN["LEFT_OUT"]) == stored
        assert {case["status"] for case in stored["cases"]} == {"ok"}


def test_the_goldens_hold_rows_of_attackers_that_know_the_defence_and_of_those_that_do_not() -> None:
    stored = GOLDEN["read"](GOLDEN["GOLDEN"] / "membership-dp-sgd.json")
    rows = {(row["attack"], row["defence"], row["aware"]) for row in stored["summary"]}
    assert {("membership-loss", "dp-sgd", aware) for aware in (True, False)} <= rows


@pytest.mark.parametrize(
    ("stored", "present", "places"),
    [
        ({"a": [1.0, {"b": 2}]}, {"a": [1.0, {"b": 2}]}, []),
        ({"a": [1.0, {"b": 2}]}, {"a": [1.0, {"b": 3}]}, ["$.a[1].b: stored 2, now 3"]),
        ({"a": 1}, {"a": 1.0}, ["$.a: stored 1, now 1.0"]),
        ({"a": 0.1}, {"a": 0.10000000000000002}, ["$.a: stored 0.1, now 0.10000000000000002"]),
        ({"a": [1]}, {"a": [1, 2]}, ["$.a: stored 1 items [1], now 2 items [1, 2]"]),
        ({"a": 1}, {"b": True}, ['$.a: stored 1, now "(absent)"', '$.b: stored "(absent)", now true']),
    ],
)
def test_a_difference_is_named_by_its_path(stored: Any, present: Any, places: list[str]) -> None:
    assert list(GOLDEN["differences"](stored, present)) == places


def test_the_canonical_text_keeps_every_bit() -> None:
    document = {"b": [{"y": 0.1 + 0.2, "x": None}, {"x": 5e-324}], "a": {"z": [], "text": "é"}, "c": []}
    text = GOLDEN["canonical"](document)
    assert json.loads(text) == document and text.isascii()
    assert text == GOLDEN["canonical"](dict(reversed(document.items())))
