from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run import audit
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.grid import expand
from fedxray.errors import BadInput
from tests.audit.plans import tiny


def small(name: str, label: str) -> Plan:
    attack = [{"name": "attribute-from-model", "label": label}]
    return make_plan(tiny(name=name, attack=attack), Path.cwd(), name.encode())


@pytest.fixture
def two_small_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "shipped_plans", lambda: [small("one", "a (one)"), small("two", "a (two)")])


def test_the_shipped_plans_are_good_and_need_no_download() -> None:
    plans = audit.shipped_plans()
    assert [plan.name for plan in plans] == ["demo-clinic", "demo-diabetes", "demo-digits"]
    assert {plan.data.name for plan in plans} == {"clinic", "diabetes", "digits"}
    labels = [part.title for plan in plans for part in plan.attacks]
    assert len(set(labels)) == len(labels), "they stand in one table"
    assert all(expand(plan)[1] for plan in plans)
    clinic = plans[0].data
    assert clinic.sensitive == "rare_diagnosis"
    defences = [[part.title for part in plan.defences] for plan in plans]
    assert defences == [["none", "gaussian-noise"], ["none"], ["none", "quantise"]]


@pytest.mark.usefixtures("two_small_plans")
def test_a_demo_joins_its_plans_and_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = audit.run_demo(folder)
    results = json.loads((folder / "results.json").read_bytes())
    assert results == ended.document and ended.failed == 0
    assert [plan["name"] for plan in results["plan"]["plans"]] == ["one", "two"]
    assert {(row["plan"], row["attack"]) for row in results["summary"]} == {("one", "a (one)"), ("two", "a (two)")}
    assert {row["plan"] for row in results["utility"]} == {"one", "two"}
    assert (folder / "plan-one.toml").read_bytes() == b"one"
    outside = {path.name for path in folder.iterdir()}
    plans = {"plan-one.toml", "plan-two.toml"}
    assert outside == {"audit.json", ".lock", "results.json", "gallery.json", "private", "log"} | plans
    again = audit.run_demo(folder)
    assert timeless(again.document) == timeless(ended.document)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
@pytest.mark.usefixtures("two_small_plans")
def test_everything_private_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        audit.run_demo(tmp_path / "demo")
        run_audit(small("three", "a"), tmp_path / "audit")
    finally:
        os.umask(before)
    for folder in ("demo", "audit"):
        private = tmp_path / folder / "private"
        entries = [private, *private.rglob("*")]
        assert {path.stat().st_mode & 0o777 for path in entries if path.is_dir()} == {0o700}
        assert {path.stat().st_mode & 0o777 for path in entries if path.is_file()} == {0o600}
        assert (tmp_path / folder / "results.json").stat().st_mode & 0o777 == 0o666, "as the umask lets it"


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    times = {"seconds": None, "cpu_seconds": None}
    return document | {"cases": [case | times for case in document["cases"]]}


@pytest.mark.usefixtures("two_small_plans")
def test_a_demo_overwrites_nothing_but_a_demo(tmp_path: Path) -> None:
    run_audit(small("one", "a"), tmp_path / "audit")
    before = (tmp_path / "audit" / "results.json").read_bytes()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.tex").write_text("precious")
    for folder in (tmp_path / "audit", tmp_path / "thesis"):
        with pytest.raises(BadInput, match="--out"):
            audit.run_demo(folder)
    with pytest.raises(BadInput, match="--engine"):
        audit.run_demo(tmp_path / "new", engine="raay")
    assert (tmp_path / "audit" / "results.json").read_bytes() == before
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["text.tex"]
    assert not (tmp_path / "new").exists()


def test_plans_with_equal_labels_cannot_be_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(audit, "shipped_plans", lambda: [small("one", "a"), small("two", "a")])
    with pytest.raises(ValueError, match="different labels"):
        audit.run_demo(tmp_path / "demo")
