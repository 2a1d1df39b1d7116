"""Whose node it is: proved by its own recording, or on the user's word, and never another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedxray.audit.plan import make_plan
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.errors import BadInput
from tests.audit.plans import tiny
from tests.audit.recordings import record_simulation

BASE = tiny(federation={"rounds": 2, "epochs": 2}, data={"records": 60}, attack=[{"name": "membership-loss"}])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's recording of two nodes, and what each node recorded itself."""
    folder = tmp_path_factory.mktemp("owners")
    plan = make_plan(BASE, folder)
    record_simulation(plan, folder / "server", [0, 1], side="server")
    for client in (0, 1):
        record_simulation(plan, folder / f"node{client}", [client])
    record_simulation(plan, folder / "saved", [1], side="checkpoints")
    record_simulation(plan, folder / "both", [0, 1])
    changed = make_plan({**BASE, "federation": {"rounds": 2, "epochs": 1}}, folder)
    record_simulation(changed, folder / "other", [1])
    return folder


def document(path: str = "server", node: int | None = 101, **transcript: Any) -> dict[str, Any]:
    found = {**BASE, "federation": {}, "transcript": {"path": path, **transcript}}
    return {**found, "data": {**BASE["data"], **({} if node is None else {"node": node})}}


def owner(place: Path, **changes: Any) -> tuple[str, list[str]]:
    prepared = prepare(make_plan(document(**changes), place), "none", 0)
    return (prepared.recorded or {})["owner"], [line.strip() for line in understood(prepared)]


def test_a_node_that_recorded_itself_is_the_users(place: Path) -> None:
    found, lines = owner(place, path="node1", node=None)
    assert found == "recorded by the node itself"
    assert not any("is yours" in line for line in lines)


def test_without_a_proof_it_is_the_users_word(place: Path) -> None:
    found, lines = owner(place)
    assert found == "on the user's word"
    assert "that the node is yours: on the user's word" in lines
    preflight(make_plan(document(), place))


def test_imported_checkpoints_are_the_users_on_word(place: Path) -> None:
    found, lines = owner(place, path="saved", node=None)
    assert found == "on the user's word" and "that the node is yours: on the user's word" in lines


def test_a_folder_of_several_nodes_is_the_users_on_word(place: Path) -> None:
    found, lines = owner(place, path="both")
    assert found == "on the user's word" and "that the node is yours: on the user's word" in lines


def test_the_nodes_own_recording_proves_it(place: Path) -> None:
    assert owner(place, own="node1")[0] == "the node's own recording holds the same replies"


def test_one_round_or_several_nodes_prove_little(place: Path) -> None:
    """Replies are passed around: what holds those of others, or a single one, does not show whose node it is."""
    assert owner(place, own="both")[0] == "on the user's word"
    assert owner(place, own="node1", rounds=[1])[0] == "on the user's word"


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"own": "node0"}, "expected replies of node 101 in the same run and rounds, got none of them"),
        (
            {"own": "other"},
            "expected the replies of node 101 in the server's recording, got others in round 0 (the first is 0)",
        ),
        ({"own": "server"}, "a recording of the node's own side, got one of the side server in server"),
        ({"own": "saved"}, "a recording of the node's own side, got one of the side checkpoints in saved"),
        ({"own": "nowhere"}, "expected a recording with recording.json, got none"),
        ({"path": "node1", "node": None, "own": "node1"}, "expected a server's recording beside it"),
    ],
)
def test_another_nodes_recording_is_no_proof(place: Path, changes: dict[str, Any], reported: str) -> None:
    with pytest.raises(BadInput) as caught:
        owner(place, **changes)
    assert reported in str(caught.value)


@pytest.mark.parametrize("path", ["server", "saved", "both"])
def test_records_that_the_node_did_not_train_on_are_refused_on_word_alone(place: Path, path: str) -> None:
    """With other targets the training makes these records worse; a proof by its own recording outweighs that."""
    prepared = prepare(make_plan(BASE, place), "none", 0)
    index = prepared.split.train[1]
    x, y = prepared.dataset.x[index].numpy(), -prepared.dataset.y[index].numpy()
    held = prepared.split.holdout[1]
    more = prepared.dataset.x[held].numpy(), prepared.dataset.y[held].numpy()
    use = np.array(["train"] * len(x) + ["holdout"] * len(more[0]))
    np.savez(place / "w.npz", x=np.concatenate([x, more[0]]), y=np.concatenate([y, more[1]]), part=use)
    data = {"path": "w.npz", "ready": True, "use": "part", "node": 101}
    with pytest.raises(BadInput, match=r"node 101 as yours: no other node.s data is reconstructed, got records on"):
        preflight(make_plan({**document(path), "data": data}, place))
    preflight(make_plan({**document(own="node1"), "data": data}, place))
    facts = prepare(make_plan({**document(own="node1"), "data": data}, place), "none", 0).recorded or {}
    fell, rounds = facts["learnt"]
    assert 2 * fell < rounds == 2, "said in the ledger even where the node is proved"
