from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedxray.audit.judge.compare import compare
from fedxray.audit.judge.results import failure_line
from fedxray.audit.plan import make_plan, read_plan
from fedxray.audit.run.audit import megabytes, run_audit
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import Store
from fedxray.audit.workers.engines import Deadline, Engine, Progress, Shared, Task, TaskFailure, no_deadline
from fedxray.errors import BadInput
from fedxray.lookup import load
from tests.audit.plans import table, tiny

LOUD = {"name": "gaussian-noise", "scale": 1e12, "label": "loud"}
OWN_MODEL = """
from torch import nn

class Odd(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        if self.training and len(x) > 3:
            raise RuntimeError("only three at a time")
        return self.layer(x)

def build(space):
    return Odd(space.shape[0], space.outputs)
"""


def test_a_run_that_diverges_is_the_outcome_of_its_own_cases_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tiny(defence=[{"name": "none"}, LOUD]), tmp_path)
    ended = run_audit(plan, tmp_path / "out")
    statuses = {(case["defence"], case["status"]) for case in ended.document["cases"]}
    assert statuses == {("none", "ok"), ("loud", "diverged")} and ended.failed == 4
    assert {row["defence"] for row in ended.document["utility"]} == {"none"}
    reason = next(case["reason"] for case in ended.document["cases"] if case["defence"] == "loud")
    assert reason == (
        "training diverged (a model with infinite or NaN entries after round 1). "
        "Lower learning_rate (0.05) or the noise of the defence, or scale the target (scale_target = true)."
    )
    line = f"4 of 6 cases failed: {reason.replace('diverged', 'diverged in seed 0 under loud')}"
    assert (ended.folder / "log").read_text().endswith(f"{line}\n") and failure_line(ended.document["cases"]) == line
    cases = Store(tmp_path / "out").cases
    cases.forget(next(key for key in cases.all_keys() if "loud" in key))
    monkeypatch.setattr("fedxray.audit.run.execute.simulate", broken)  # it is known already
    again = run_audit(plan, tmp_path / "out", resume=True).document["cases"]
    assert [timeless(case) for case in again] == [timeless(case) for case in ended.document["cases"]]


def timeless(case: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in case.items() if not key.endswith("seconds")}


def test_a_network_of_the_user_that_breaks_in_training_is_found_by_the_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "odd_network.py").write_text(OWN_MODEL)
    plan = make_plan(tiny(model=None) | {"model": {"factory": "odd_network:build"}}, tmp_path)
    with pytest.raises(BadInput, match=r"model\.factory: .*odd_network:build.*RuntimeError: only three at a time"):
        run_audit(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_mistake_of_ours_in_the_rehearsal_is_not_blamed_on_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any, **__: Any) -> Any:
        raise IndexError("ours")

    monkeypatch.setattr("fedxray.audit.run.preflight.simulate", wrong)
    with pytest.raises(IndexError, match="ours"):
        run_audit(make_plan(tiny(), tmp_path), tmp_path / "out")


def test_what_failed_is_tried_again_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedxray.audit.run import execute

    plan = make_plan(tiny(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(execute, "simulate", broken)
        assert run_audit(plan, tmp_path / "out").failed == 2
    lost = next((tmp_path / "out" / "private" / "runs").glob("*.lost.json"))
    kept = json.loads(lost.read_bytes())
    assert (
        re.fullmatch(r"the federation could not be run: MemoryError in test_audit\.py, line \d+", kept["reason"])
        and "MemoryError: no memory" in kept["traceback"]
    )
    again = run_audit(plan, tmp_path / "out", resume=True)
    assert again.failed == 0 and again.document["utility"]


class Deadly(Engine):
    """An engine in which the worker of some tasks dies."""

    def __init__(self, doomed: str) -> None:
        self.doomed = doomed

    def __enter__(self) -> Deadly:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(
        self, tasks: Sequence[Task], progress: Progress, deadline: Deadline = no_deadline, shared: Shared = ()
    ) -> list[TaskFailure]:
        for task in tasks:
            if self.doomed not in task.label:
                load(task.function)(*shared, task.item)
        return [TaskFailure(task=task, reason="killed by SIGKILL") for task in tasks if self.doomed in task.label]


@pytest.mark.parametrize(
    ("doomed", "failed", "reason"),
    [("client1", 1, "killed by SIGKILL"), ("none.seed0-", 2, "the federation could not be run: killed by SIGKILL")],
)
def test_a_dead_worker_costs_its_own_cases_alone(tmp_path: Path, doomed: str, failed: int, reason: str) -> None:
    ended = run_audit(make_plan(tiny(), tmp_path), tmp_path / "out", engine=Deadly(doomed))
    assert ended.failed == failed
    assert {case["reason"] for case in ended.document["cases"] if case["status"] == "failed"} == {reason}
    assert reason in (ended.folder / "log").read_text()


def test_the_first_runs_are_attacked_before_the_others_are_run(tmp_path: Path) -> None:
    """So that every attack has shown how long a case takes; as many as there are workers, none of which waits."""
    labels: list[str] = []
    plan = make_plan(tiny(seeds=[0, 1, 2]), tmp_path)
    run_audit(plan, tmp_path / "out", progress=lambda done, total, label: labels.append(label), power=False)
    runs = [place for place, label in enumerate(labels) if "client" not in label]
    assert runs == [0, 3, 4] and len(labels) == 9
    assert all(".seed0" in label for label in labels[:3])


def broken(*_: Any, **__: Any) -> Any:
    raise MemoryError("no memory")


def test_a_log_is_kept_that_may_be_shared(tmp_path: Path) -> None:
    ended = run_audit(make_plan(tiny(), tmp_path, b"# the plan"), tmp_path / "out")
    lines = (ended.folder / "log").read_text().splitlines()
    assert "1 runs, 2 cases" in lines[0] and "0 of 2 cases failed" in lines[-1]
    assert (ended.folder / "plan.toml").read_bytes() == b"# the plan"


def test_a_plan_made_in_python_is_kept_as_one_that_can_be_run_again(tmp_path: Path) -> None:
    plan = make_plan(tiny(attack=[{"name": "attribute-from-model", "model": {"name": "global-model"}}]), tmp_path)
    ended = run_audit(plan, tmp_path / "out")
    again = read_plan(ended.folder / "plan.toml")
    assert again.digest() == plan.digest() and again.text == (ended.folder / "plan.toml").read_bytes()


def test_records_that_changed_are_noticed_on_resume(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(table(60))
    data = {"path": "mine.csv", "target": "y", "clients": 2}
    plan = make_plan(tiny(data=None, attack=[{"name": "membership-loss"}]) | {"data": data}, tmp_path)
    first = run_audit(plan, tmp_path / "out")
    file.touch()
    assert run_audit(plan, tmp_path / "out", resume=True).document == first.document
    file.write_text(table(60, first=5.5))
    with pytest.raises(BadInput, match=r"^data\.path: .*changed since.*another --out"):
        run_audit(plan, tmp_path / "out", resume=True)
    other = run_audit(plan, tmp_path / "new")
    assert other.failed == 0, "another folder is another audit"
    shared = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    kept = json.loads((tmp_path / "out" / "private" / "records.json").read_bytes())["sha256"]["data.path"]
    assert [path.name for path in shared if kept in path.read_text()] == ["results.json"]
    assert first.document["data"] == {"records": 60, "sha256": kept}
    with pytest.raises(BadInput, match="other contents"):
        compare(first.document, other.document)


def test_new_records_are_read_though_the_process_knows_the_old_ones(tmp_path: Path) -> None:
    plan = make_plan(tiny(data=None) | {"data": {"path": "mine.csv", "target": "y", "clients": 2}}, tmp_path)
    lengths = []
    for rows in (60, 70):
        (tmp_path / "mine.csv").write_text(table(rows))
        lengths.append(len(prepare(plan, "none", 0).dataset))
    assert lengths == [60, 70]


def test_sizes_in_words() -> None:
    assert [megabytes(count) for count in (1500, 2_500_000, 3 * 10**9)] == ["2 kB", "2 MB", "3,000 MB"]


def test_a_federation_starts_from_the_weights_of_a_file_and_notices_their_change(tmp_path: Path) -> None:
    file = tmp_path / "start.safetensors"
    drawn = prepare(make_plan(tiny(), tmp_path), "none", 0).federation.model.state_dict()
    plan = make_plan(tiny(model={"weights": file.name}), tmp_path)
    for seed, scale in ((0, 0.5), (1, 2.0)):
        save_file({name: value * scale for name, value in drawn.items()}, file)
        begun = prepare(plan, "none", seed).federation.model.state_dict()
        assert all(torch.equal(begun[name], value * scale) for name, value in drawn.items())
        if seed == 0:
            run_audit(plan, tmp_path / "out")
    with pytest.raises(BadInput, match=r"^model\.weights: .*changed since.*another --out"):
        run_audit(plan, tmp_path / "out", resume=True)
