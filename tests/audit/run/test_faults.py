"""Faults around an audit: errors that quote records, a folder that disappears, a training that diverges."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.preflight import try_factories
from fedxray.audit.run.store import Store
from fedxray.errors import BadInput
from tests.audit.plans import tiny, write_toml
from tests.audit.stored import case_entries
from tests.conftest import Command

SECRET = "patient-4711"
OWN_ATTACK = f'''
from dataclasses import dataclass
import torch
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import of_membership

@dataclass(frozen=True, kw_only=True)
class Own(Attack):
    """An attack of the user's."""
    name = "own"
    kind = "membership"
    roles = ("server",)
    grants = ("target-records",)
    floors = ("chance",)
    controls = ()
    raises: bool = True

    def needs(self):
        return ()

    def attack(self, view, context):
        if self.raises:
            raise ValueError("a record: {SECRET}")
        count = len(view.grants.target_records.x)
        facts = {{"taken": "{SECRET}"}}
        return of_membership(torch.zeros(count), status="undetermined", reason="saw {SECRET}", facts=facts)
'''


@pytest.fixture
def own_attacks(tmp_path: Path) -> Path:
    (tmp_path / "own_attack.py").write_text(OWN_ATTACK)
    attacks = [
        {"factory": "own_attack:Own", "label": "raises"},
        {"factory": "own_attack:Own", "label": "states", "raises": False},
    ]
    return write_toml(tmp_path / "plan.toml", tiny(attack=attacks))


def test_what_own_code_states_stays_in_private(own_attacks: Path, fedxray: Command) -> None:
    ended = fedxray("audit", own_attacks, "--engine", "inline", "--out", "out")
    assert ended.code == 4 and "2 of 4 cases failed: raises: ValueError in own_attack.py, line 23" in ended.err
    out = own_attacks.parent / "out"
    files = [path for path in out.rglob("*") if path.is_file()]
    holders = {path.relative_to(out).parts[0] for path in files if SECRET.encode() in path.read_bytes()}
    assert holders == {"private"} and SECRET not in ended.out + ended.err
    reasons = {case["reason"] for case in json.loads((out / "results.json").read_bytes())["cases"]}
    assert reasons == {"ValueError in own_attack.py, line 23", "the reason that the attack states is in private/cases"}
    stored = [Store(out).read_case(case) for case in case_entries(out)]
    assert {case["detail"] for case in stored if "detail" in case} == {f"saw {SECRET}"}
    assert all(f"a record: {SECRET}" in case["traceback"] for case in stored if case.get("traceback"))


def test_a_training_that_diverges_ends_with_4_and_one_line_on_what_to_change(tmp_path: Path, fedxray: Command) -> None:
    plan = write_toml(tmp_path / "plan.toml", tiny(federation={"rounds": 40, "learning_rate": 1e6}))
    ended = fedxray("audit", plan, "--engine", "inline", "--out", "out", "--quiet")
    assert ended.code == 4 and ended.out == ""
    (line,) = ended.err.splitlines()
    assert re.match(r"fedxray: 2 of 2 cases failed: training diverged in seed 0 \(.* after round \d+\)\. ", line)
    assert "Lower learning_rate (1e+06), or scale the target" in line
    words = line.removeprefix("fedxray: ")
    assert words in (tmp_path / "out" / "log").read_text()
    assert html.escape(words) in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("code", "option", "words"),
    [
        ("os._exit(3)", "--dry-run", "expected own_code:build to return, got its process ended with code 3"),
        (
            "os.kill(os.getpid(), 9)",
            "--quiet",
            "expected own_code:build to return, got its process was killed by SIGKILL",
        ),
        ("time.sleep(600)", "--quiet", "expected own_code:build to return within 0.5 s, got no end, so it was stopped"),
    ],
)
def test_a_factory_that_exits_or_hangs_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedxray: Command, code: str, option: str, words: str
) -> None:
    monkeypatch.setenv("FEDXRAY_FACTORY_SECONDS", "0.5" if "sleep" in code else "60")
    (tmp_path / "own_code.py").write_text(f"import os, time\n\ndef build(space):\n    {code}\n")
    plan = write_toml(tmp_path / "plan.toml", tiny(model=None) | {"model": {"factory": "own_code:build"}})
    ended = fedxray("audit", plan, "--out", "out", option)
    assert ended.code == 2 and "Traceback" not in ended.err and not (tmp_path / "out").exists()
    assert f"fedxray: model.factory: {words}" in ended.err


@pytest.mark.parametrize("part", ["defence", "attack"])
def test_a_factory_of_a_defence_or_attack_that_exits_is_reported(tmp_path: Path, part: str) -> None:
    (tmp_path / "own_code.py").write_text("import os\n\ndef build():\n    os._exit(3)\n")
    plan = make_plan(tiny(**{part: [{"factory": "own_code:build", "label": "own"}]}), tmp_path)
    with pytest.raises(BadInput, match=f"^{part} own: factory: expected own_code:build to return, got .* code 3"):
        try_factories(plan)


def test_a_factory_that_works_is_called_and_a_limit_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_code.py").write_text(OWN_ATTACK)
    plan = make_plan(tiny(attack=[{"factory": "own_code:Own"}]), tmp_path)
    try_factories(plan)
    monkeypatch.setenv("FEDXRAY_FACTORY_SECONDS", "soon")
    with pytest.raises(BadInput, match="FEDXRAY_FACTORY_SECONDS: expected a number of seconds above 0"):
        try_factories(plan)


@pytest.mark.parametrize("engine", ["inline", "processes"])
@pytest.mark.parametrize("when", [1, 2])
def test_a_folder_deleted_during_a_run_is_one_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], engine: str, when: int
) -> None:
    folder = tmp_path / "out"

    def delete(done: int, total: int, label: str) -> None:
        if done == when:
            shutil.rmtree(folder)

    jobs = 2 if engine == "processes" else None
    with pytest.raises(BadInput, match=r"--out: expected a folder that stays.*deleted"):
        run_audit(make_plan(tiny(), tmp_path), folder, engine=engine, jobs=jobs, progress=delete)
    assert capfd.readouterr().err == "" and not folder.exists()


def test_a_folder_deleted_while_a_case_runs_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedxray.audit.run import execute

    def delete(*_: Any) -> Any:
        shutil.rmtree(tmp_path / "out")
        raise FileNotFoundError(2, "No such file", "evidence")

    monkeypatch.setattr(execute, "evaluate", delete)
    with pytest.raises(BadInput, match=r"--out: expected a folder that stays.*deleted"):
        run_audit(make_plan(tiny(), tmp_path), tmp_path / "out")
