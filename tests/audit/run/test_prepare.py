from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedxray.audit.plan import make_plan, read_plan
from fedxray.audit.run.prepare import prepare
from fedxray.errors import BadInput
from tests.audit.plans import table, tiny, write_toml

HERE = Path(__file__).parents[1]


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
    data = {"path": "~/mine.csv", "target": "y", "drop": ["b"], "clients": 3, "partition": "by-column", "column": "c"}
    found = prepare(make_plan(tiny(data=None) | {"data": data}, HERE), "none", 0)
    assert [column.name for column in found.dataset.space.columns] == ["a", "c"]
    assert len(found.federation.clients) == 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"target": "z"}, "data.target: expected a column of mine.csv, got 'z'"),
        ({"clients": 999}, "data.clients: expected at most 60"),
        ({"partition": "by-column"}, "data.column: expected"),
    ],
)
def test_messages_about_data_name_the_key_of_the_plan(tmp_path: Path, changed: dict[str, object], words: str) -> None:
    (tmp_path / "mine.csv").write_text(table(60))
    data = {"path": "mine.csv", "target": "y", "clients": 2} | changed
    with pytest.raises(BadInput) as caught:
        prepare(make_plan(tiny(data=None) | {"data": data}, tmp_path), "none", 0)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("key", ["schema", "path"])
def test_a_wrong_file_of_data_names_its_key_and_never_offers_the_plan(tmp_path: Path, key: str) -> None:
    document = tiny(data=None) | {
        "data": {key: "scema.toml", "clients": 2} | ({"target": "y"} if key == "path" else {})
    }
    file = write_toml(tmp_path / "schemas.toml", document)
    (tmp_path / "my-schema.toml").write_text("records = 20")
    with pytest.raises(BadInput) as caught:
        prepare(read_plan(file), "none", 0)
    message = str(caught.value)
    assert message.startswith(f"data.{key}: ") and "my-schema.toml" in message and "schemas.toml" not in message


def test_a_loss_that_does_not_fit_the_target_is_refused() -> None:
    plan = make_plan(tiny(federation={"loss": "cross-entropy"}), HERE)  # the tiny plan learns a number
    with pytest.raises(BadInput, match=r"federation\.loss: expected 'mse'"):
        prepare(plan, "none", 0)
