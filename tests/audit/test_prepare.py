from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedxray.audit.plan import make_plan
from fedxray.audit.prepare import prepare
from tests.audit.plans import table, tiny

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_network_and_records_have_the_dtype_of_the_plan(name: str) -> None:
    found = prepare(make_plan(tiny(federation={"dtype": name}), HERE), "none", 0).federation
    dtype = getattr(torch, name)
    assert {weight.dtype for weight in found.model.parameters()} == {dtype}
    assert found.public is not None
    assert {one.x.dtype for one in (*found.clients, *found.holdout, found.public)} == {dtype}
    assert {one.y.dtype for one in found.clients if one.y.is_floating_point()} <= {dtype}


def test_the_same_seed_gives_the_same_and_another_one_another() -> None:
    plan = make_plan(tiny(seeds=[0, 1]), HERE)
    first, again, other = (prepare(plan, "none", seed) for seed in (0, 0, 1))
    assert torch.equal(first.federation.clients[0].x, again.federation.clients[0].x)
    assert all(map(torch.equal, first.federation.model.parameters(), again.federation.model.parameters()))
    assert not torch.equal(first.dataset.x, other.dataset.x), "clinic is generated anew for every seed"


def test_own_data_are_found_in_the_home_and_settings_of_the_partition_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "mine.csv").write_text(table(60))
    data = {
        "path": "~/mine.csv",
        "target": "y",
        "drop": ["b"],
        "clients": 3,
        "partition": "by-column",
        "column": "c",
    }
    found = prepare(make_plan(tiny(data=None) | {"data": data}, HERE), "none", 0)
    assert [column.name for column in found.dataset.space.columns] == ["a", "c"]
    assert len(found.federation.clients) == 3
