"""Recipes that a recording tells round by round: schedules, values that cannot be, and rounds that are picked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.recorded.prepare import chosen_of
from fedxray.audit.recorded.recipe import known_recipe
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.writer import open_folder, write_message
from tests.audit.networks import small

SPACE = Space(kind="table", shape=(3,), target="regression")
SCHEDULE = [{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.01}]
KNOWN = {"epochs": 1, "batch_size": 4}
INVERSION = {"name": "tabular-inversion", "steps": 2, "restarts": 1, "controls": []}


def recording(folder: Path, configs: list[dict[str, Any]]) -> Path:
    """One round for every config."""
    state = {name: value.numpy() for name, value in small(SPACE).state_dict().items()}
    back = {name: value + np.float32(0.1) for name, value in state.items()}
    open_folder(folder / "recording", "client")
    for round, config in enumerate(configs, start=1):
        said = Said(what="train", node="1", run="1", round=round, sent=state, reply=back, examples=8, config=config)
        write_message(folder / "recording", said)
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.savez(folder / "own.npz", x=x, y=x[:, 0], part=np.array(["train"] * 8 + ["holdout"] * 4))
    return folder


def plan(
    folder: Path, *, federation: dict[str, Any] | None = None, attack: dict[str, Any] = INVERSION, **transcript: Any
) -> Plan:  # fmt: skip
    return make_plan(
        {
            "transcript": {"path": "recording", "optimizer": "sgd", **transcript},
            "data": {"path": "own.npz", "ready": True, "use": "part"},
            "model": {"factory": "tests.audit.networks:small"},
            "federation": federation or {},
            "attack": [attack],
        },
        folder,
    )


def refusal(found: Plan) -> str:
    with pytest.raises(BadInput) as caught:
        preflight(found)
    return str(caught.value)


def test_a_schedule_is_refused_with_a_way_out(tmp_path: Path) -> None:
    recording(tmp_path, SCHEDULE)
    reported = "0.1 in rounds 0 to 1; 0.01 in round 2"
    message = refusal(plan(tmp_path, federation=KNOWN))
    assert "federation.learning_rate: expected the learning rate, one for all rounds that are read" in message
    assert reported in message and "in [transcript]" in message and "membership-loss" in message
    message = refusal(plan(tmp_path, federation={**KNOWN, "learning_rate": 0.1}))
    assert reported in message and 'rounds = "0 to 1" in [transcript]' in message
    message = refusal(plan(tmp_path, federation={**KNOWN, "learning_rate": 0.01}))
    assert "rounds = [2] in [transcript]" in message
    lines = understood(prepare(plan(tmp_path, attack={"name": "membership-loss"}), "none", 0))
    assert any(f"! learning_rate changes: {reported}" in line for line in lines)


@pytest.mark.parametrize(("rounds", "rate", "read"), [("0 to 1", 0.1, [0, 1]), ([2], 0.01, [2]), ("2 to 9", 0.01, [2])])
def test_the_rounds_of_one_rate_can_be_audited(tmp_path: Path, rounds: Any, rate: float, read: list[int]) -> None:
    recording(tmp_path, SCHEDULE)
    found = plan(tmp_path, federation=KNOWN, rounds=rounds)
    reported = known_recipe(found, chosen_of(found))
    assert (reported.part.learning_rate, reported.missing, reported.sent) == (rate, (), ("learning_rate",))
    ended = run_audit(found, tmp_path / "out").document
    assert [case["status"] for case in ended["cases"]] == ["ok"], ended["cases"][0]["reason"]
    assert ended["cases"][0]["ledger"]["recording"]["rounds"] == read
    assert ended["cases"][0]["ledger"]["rounds_seen"] == read


def test_what_other_rounds_ended_with_is_not_read_either(tmp_path: Path) -> None:
    recording(tmp_path, SCHEDULE)
    state = {name: value.numpy() for name, value in small(SPACE).state_dict().items()}
    for round in (1, 2, 3):
        reported = Said(what="evaluate", node="1", run="1", round=round, sent=state, reply=None, examples=8, config={})
        write_message(tmp_path / "recording", reported)
    assert set(chosen_of(plan(tmp_path, federation=KNOWN)).ended) == {0, 1, 2}
    assert set(chosen_of(plan(tmp_path, federation=KNOWN, rounds="0 to 0")).ended) == {0}


@pytest.mark.parametrize("rounds", [[0, 3], "5 to 9"])
def test_rounds_that_were_not_recorded_are_refused(tmp_path: Path, rounds: Any) -> None:
    recording(tmp_path, SCHEDULE)
    message = refusal(plan(tmp_path, federation=KNOWN, rounds=rounds))
    assert "transcript.rounds: expected rounds of the recording (0 to 2, the first is 0)" in message


@pytest.mark.parametrize("rounds", [[], "first", "1-2", -1])
def test_rounds_are_a_list_or_a_span(tmp_path: Path, rounds: Any) -> None:
    with pytest.raises(BadInput, match=r'transcript.rounds.*: expected "0 to 4", or a list of rounds'):
        plan(tmp_path, rounds=rounds)


@pytest.mark.parametrize(
    ("config", "field", "reported"),
    [
        ({"epochs": 10**9}, "epochs", "1000000000 in round 0"),
        ({"epochs": 2.5}, "epochs", "2.5 in round 0"),
        ({"lr": -1.0}, "learning_rate", "-1.0 in round 0"),
        ({"momentum": 1}, "momentum", "1 in round 0"),
        ({"lr": 0.1, "learning-rate": 0.2}, "learning_rate", "0.2 and 0.1 in round 0"),
    ],
)
def test_what_cannot_be_is_not_believed(tmp_path: Path, config: dict[str, Any], field: str, reported: str) -> None:
    """Where the plan gives the field, that is taken; otherwise it is missing and said to be doubted."""
    recording(tmp_path, [{"lr": 0.1, "epochs": 1, "batch-size": 4} | config])
    message = refusal(plan(tmp_path))
    assert f"federation.{field}: expected" in message and f"got {reported}, which is impossible" in message
    given: dict[str, Any] = {"epochs": 2, "learning_rate": 0.1, "momentum": 0.5}
    found = plan(tmp_path, federation={field: given[field]})
    assert known_recipe(found, chosen_of(found)).missing == ()


def test_whole_numbers_may_come_with_a_point(tmp_path: Path) -> None:
    recording(tmp_path, [{"lr": 1, "epochs": 2.0, "batch-size": 4.0}])
    found = plan(tmp_path)
    reported = known_recipe(found, chosen_of(found)).part
    assert (reported.epochs, reported.batch_size, reported.learning_rate) == (2, 4, 1)
    preflight(found)
