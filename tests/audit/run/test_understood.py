from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.prepare import prepare
from tests.audit.plans import tiny


@pytest.mark.parametrize(("data", "unused"), [({}, 0), ({"limit": 5}, 54)])
def test_records_of_no_client_are_reported(tmp_path: Path, data: dict[str, Any], unused: int) -> None:
    plan = make_plan(tiny(data=data, attack=[{"name": "membership-loss"}]), tmp_path)
    prepared = prepare(plan, "none", 0)
    given = [*prepared.split.train, *prepared.split.holdout, prepared.split.public]
    assert 80 - sum(len(part) for part in given) == unused
    lines = [line for line in understood(prepared) if line.startswith("unused")]
    assert lines == ([f"unused      {unused} records"] if unused else [])
    cases = run_audit(plan, tmp_path / "out").document["cases"]
    assert {case["ledger"]["unused_records"] for case in cases} == {unused}
