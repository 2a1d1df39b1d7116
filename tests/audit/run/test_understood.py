from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fedxray.attacks.inversion import tabular
from fedxray.audit.judge import statistics
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import can_settle, presets, rows_sought, understood
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


def test_synthetic_records_are_called_so(tmp_path: Path) -> None:
    columns = "[columns.age]\nlow = 18\nhigh = 95\n[columns.cost]\nlow = 0\nhigh = 9\n"
    (tmp_path / "cols.toml").write_text(f'records = 20\ntarget = "cost"\n{columns}')
    document = {**tiny(attack=[{"name": "membership-loss"}]), "data": {"schema": "cols.toml", "clients": 2}}
    first, *_ = understood(prepare(make_plan(document, tmp_path), "none", 0))
    assert first == "data        40 synthetic records of cols.toml"


def test_columns_that_are_kept_and_values_that_are_filled_are_marked(tmp_path: Path) -> None:
    rows = "".join(f"{100 + row},{'' if row == 4 else row % 7},{'ab'[row % 2]},{row % 5}\n" for row in range(60))
    (tmp_path / "own.csv").write_text("id,age,ward,cost\n" + rows)
    own = {"path": "own.csv", "target": "cost", "sensitive": "ward", "clients": 2, "keep": ["id"], "missing": "median"}
    document = {**tiny(attack=[{"name": "membership-loss"}]), "data": own}
    lines = understood(prepare(make_plan(document, tmp_path), "none", 0))
    assert f"{'':<12}! kept as a feature: 'id' (all 60 values different, and its name)" in lines
    assert f"{'':<12}1 missing values are filled (median): 1 in 'age'" in lines


def test_rows_that_are_sought_are_stated_before_and_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = {"name": "tabular-inversion", "steps": 2, "restarts": 1, "targets": 1}
    plan = make_plan(tiny(attack=[attack]), tmp_path)
    prepared = prepare(plan, "none", 0)
    held = max(map(len, prepared.federation.clients))
    assert rows_sought(plan, prepared) == []
    monkeypatch.setattr(tabular, "LEAST_ROWS", 4)
    monkeypatch.setattr(tabular, "MOST_PRODUCTS", 1.0)
    (line,) = rows_sought(plan, prepared)
    assert line == f"tabular-inversion: 4 of up to {held}; more with fewer steps or restarts"
    cases = run_audit(plan, tmp_path / "out", power=False).document["cases"]
    assert cases and all(case["ledger"]["rows_sought"] == 4 < case["ledger"]["rows_behind"] for case in cases)


def test_what_can_be_settled_at_best(tmp_path: Path) -> None:
    base = tiny(attack=[{"name": "attribute-from-model"}])
    wide = make_plan({**base, "seeds": [0, 1, 2]}, tmp_path)
    prepared = prepare(wide, "none", 0)
    clients, records = wide.clients, sum(map(len, prepared.split.train)) / wide.clients
    error = 0.5 / math.sqrt(records * clients * 3)
    (line,) = can_settle(wide, prepared)
    assert ("or none" in line) == (statistics.smallest_seen(error, 3, 0.98) <= 0.1)
    (alone,) = can_settle(make_plan({**base, "seeds": [0]}, tmp_path), prepared)
    assert "a leak only from about 5 seeds on" in alone and "a leak only from about 5" in line
    assert "or none" not in alone  # one run never shows that nothing leaks
    (auto,) = can_settle(make_plan({**base, "seeds": "auto"}, tmp_path), prepared)
    assert "or none" in auto or "more records" in auto


def test_rare_values_take_more_seeds_to_show_that_nothing_leaks(tmp_path: Path) -> None:
    """Counted like any other record, 5 seeds of 40 rare ones each were enough."""
    data = {"name": "clinic", "clients": 4, "records": 100, "rare_diagnosis": 0.1, "sensitive": "rare_diagnosis"}
    document = {**tiny(attack=[{"name": "attribute-from-model", "primary": "balanced_accuracy"}]), "data": data}
    plan = make_plan({**document, "seeds": [0, 1, 2, 3, 4]}, tmp_path)
    (line,) = can_settle(plan, prepare(plan, "none", 0))
    assert "no leak from about" in line and "or none" not in line


@pytest.mark.parametrize(("attack", "used"), [
    ({"name": "dlf"}, "dlf: the authors' weights for femnist"),
    ({"name": "dlf-no-prior", "preset": "cifar100"}, "dlf-no-prior: the authors' weights for cifar100"),
    ({"name": "awa"}, "awa: the paper's weights case3"),
    ({"name": "awa", "preset": "ramp"}, "awa: the paper's weights ramp"),
    ({"name": "dlg"}, None),
])  # fmt: skip
def test_the_weights_that_were_tuned_elsewhere_are_stated(
    tmp_path: Path, attack: dict[str, Any], used: str | None
) -> None:
    data = {"name": "digits", "clients": 2, "limit": 4}
    federation = {"algorithm": "fedavg", "rounds": 1, "epochs": 1, "batch_size": 2, "learning_rate": 0.1}
    document = {"name": "p", "data": data, "model": {"name": "mlp"}, "federation": federation, "attack": [attack]}
    plan = make_plan(document, tmp_path)
    assert presets(plan, prepare(plan, "none", 0)) == ([used] if used else [])
