"""Networks of which a recording trains or holds only a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.prepare import prepare
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recording.format import Said
from fedxray.federation.recording.writer import open_folder, write_message
from tests.audit.networks import half_frozen, normed

SPACE = Space(kind="table", shape=(3,), target="regression")


def recording(folder: Path, states: list[dict[str, Any]], *, rounded: bool = False, by_position: bool = False) -> None:
    """Two rounds by the states that were sent; replies move the head alone."""
    open_folder(folder / "recording", "client")
    for round, state in enumerate(states, start=1):
        back = {name: value + 0.1 if name.startswith("2.") else value for name, value in state.items()}
        if rounded:
            back = {name: value.astype(np.float16) for name, value in back.items()}
        sides = [state, back]
        if by_position:
            sides = [{str(at): value for at, value in enumerate(side.values())} for side in sides]
        reported = Said(what="train", node="1", run="1", round=round, sent=sides[0], reply=sides[1], examples=12)
        write_message(folder / "recording", reported)


def state_of(model: nn.Module, *names: str) -> dict[str, Any]:
    return {name: value.numpy() for name, value in model.state_dict().items() if not names or name.startswith(names)}


def plan(folder: Path, network: str, **transcript: Any) -> Plan:
    """The plan of an audit of that recording."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(16, 3)).astype(np.float32)
    use = np.array(["train"] * 12 + ["holdout"] * 4)
    np.savez(folder / "own.npz", x=x, y=x[:, 0], part=use)
    return make_plan(
        {
            "transcript": {"path": "recording", **transcript},
            "data": {"path": "own.npz", "ready": True, "use": "part"},
            "model": {"factory": f"tests.audit.networks:{network}"},
            "attack": [{"name": "membership-loss"}],
        },
        folder,
    )


def facts(folder: Path, network: str = "half_frozen", **transcript: Any) -> tuple[Any, list[str], Any]:
    prepared = prepare(plan(folder, network, **transcript), "none", 0)
    reported = prepared.recorded or {}
    return (
        (reported["not_recorded"], reported["frozen_changed"]),
        [line.strip() for line in understood(prepared)],
        prepared,
    )


@pytest.mark.parametrize("by_position", [False, True])
def test_recorded_values_of_frozen_layers_are_taken(tmp_path: Path, by_position: bool) -> None:
    state = state_of(half_frozen(SPACE)) | {"0.weight": np.full((4, 3), 0.5, np.float32)}
    recording(tmp_path, [state, state], by_position=by_position)
    found, _, prepared = facts(tmp_path)
    assert found == ([], [])
    assert torch.equal(prepared.federation.model.state_dict()["0.weight"], torch.full((4, 3), 0.5))


def test_a_frozen_layer_of_another_shape_is_refused(tmp_path: Path) -> None:
    recording(tmp_path, [state_of(half_frozen(SPACE))])
    with pytest.raises(
        BadInput, match=r"model sent in round 0 \(Flower's round 1\): expected '0.weight' of shape \[5, 3\], as in the"
    ):
        prepare(plan(tmp_path, "wider"), "none", 0)


def test_a_frozen_layer_that_changes_is_reported(tmp_path: Path) -> None:
    state = state_of(half_frozen(SPACE))
    recording(tmp_path, [state, state | {"0.bias": state["0.bias"] + 1}])
    found, lines, _ = facts(tmp_path)
    assert found == ([], ["0.bias"])
    assert "! [model] does not train 0.bias, yet the recording changes it" in lines


def test_rounding_is_no_move(tmp_path: Path) -> None:
    recording(tmp_path, [state_of(half_frozen(SPACE))], rounded=True)
    assert facts(tmp_path, widen=True)[0] == ([], [])


def test_parameters_that_no_message_holds_are_reported(tmp_path: Path) -> None:
    recording(tmp_path, [state_of(half_frozen(SPACE), "2.")])
    found, lines, _ = facts(tmp_path)
    assert found == (["0.weight", "0.bias"], [])
    assert "! no message holds 0.weight, 0.bias: [model] gives its own" in lines


def test_statistics_that_no_message_holds_are_reported(tmp_path: Path) -> None:
    recording(tmp_path, [state_of(normed(SPACE), "0.", "1.weight", "1.bias", "2.")])
    found, lines, _ = facts(tmp_path, "normed")
    assert found == (["1.running_mean", "1.running_var", "1.num_batches_tracked"], [])
    assert any("! no message holds 1.running_mean" in line for line in lines)
