"""The report of a recording: its records, without clients and seeds, of which it has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.report import build_report
from fedxray.report.overview import worst_words
from fedxray.report.rows import shown_rows
from fedxray.report.setup import setups
from tests.report.reading import read_page
from tests.report.synthetic import STORIES, make_cases, make_document


def recorded(record: int | None, **data: Any) -> dict[str, Any]:
    """Made-up results as of a recording, with the most exposed record where there is one."""
    made = make_document(make_cases(STORIES[2:3]))
    made["plan"] = {**made["plan"], "transcript": {"path": "r"}, "data": {**made["plan"]["data"], **data}}
    for case in made["cases"]:
        case["ledger"]["recording"] = {"side": "client", "node": "7", "rounds": [0], "records": [80, 30, 10]}
    for row in made["summary"]:
        row["worst"] = {"client": 0, "seed": 0, "record": record, "value": 0.9}
    return made


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"use": "part"}, "by the column `part`: 80 training, 30 held out, 10 public"),
        ({}, "80 training, 30 held out, 10 public"),
    ],
)
def test_the_split_is_that_of_the_node(data: dict[str, Any], wanted: str) -> None:
    ((_, facts),) = setups(recorded(None, **data))
    assert dict(facts)["Split"] == wanted and "Runs" not in dict(facts)


def test_a_simulation_with_named_uses_draws_no_shares() -> None:
    made = make_document(make_cases(STORIES[2:3]))
    made["plan"] = {**made["plan"], "data": {**made["plan"]["data"], "use": "part"}}
    ((_, facts),) = setups(made)
    assert dict(facts)["Split"] == "by the column `part`" and dict(facts)["Runs"].startswith("seeds 0")


@pytest.mark.parametrize(("record", "wanted"), [(None, None), (17, "record 17")])
def test_only_a_record_can_be_the_most_exposed_of_one_node(record: int | None, wanted: str | None) -> None:
    made = recorded(record)
    worst = worst_words(shown_rows(made)[0])
    assert (worst[1] if worst else None) == wanted
    del made["plan"]["transcript"]
    simulated = worst_words(shown_rows(made)[0])
    assert simulated is not None and simulated[1].startswith("client 0, seed 0")


@pytest.mark.parametrize("unit", ["client-run", "record"])
def test_a_score_states_its_sample(tmp_path: Path, unit: str) -> None:
    made = make_document(make_cases(STORIES[2:3]))
    made["summary"] = [{**row, "n": 41, "unit": unit} for row in made["summary"]]
    results.write(made, tmp_path)
    text = read_page(build_report(tmp_path).read_text()).text
    assert f"41 {unit}s" in text and f"41 {'record' if unit == 'client-run' else 'client-run'}s" not in text
