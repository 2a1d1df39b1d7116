"""The level of a leak that is read from all records together: held-out records are asked about among the others."""

from __future__ import annotations

from pathlib import Path

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from tests.audit.plans import tiny


def test_a_leak_of_training_records_is_at_record_level_and_what_everybody_shows_is_not(tmp_path: Path) -> None:
    document = tiny(
        seeds=[0, 1, 2],
        data={"records": 60, "holdout": 0.3},
        model={"hidden": [32]},
        federation={"rounds": 8, "batch_size": 8, "epochs": 2},
        attack=[
            {"name": "attribute-from-updates", "messages": 8},
            {"name": "attribute-from-model", "model": "global-model", "label": "everybody"},
        ],
    )
    summary = run_audit(make_plan(document, tmp_path), tmp_path / "out").document["summary"]
    rows = {row["attack"]: row for row in summary}
    found, everybody = rows["attribute-from-updates"], rows["everybody"]
    assert found["kind"] == "record" and found["controls"]["held-out"]["low"] > 0
    assert everybody["kind"] != "record" and everybody["controls"]["held-out"]["low"] < 0
